//! Opens a PostgreSQL database. Each problem is reported with a remedy.

mod error;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use postgres_url::{PostgresUrl, Tls};
use runtime::clock;

use super::super::db::{BoxError, DbError};
use super::super::engine::Engine;
use super::super::project_keys::Migrating;
use super::super::schema;
use super::client::{Client, Connector, Session};
use super::failure::failed;
use super::listener::Listener;
use super::{Hear, Postgres, Role, Server, Sharing, chain};

pub(super) use error::Problem;
pub use error::{OpenError, OpenErrorKind};

/// The oldest version of PostgreSQL that this program is tested with.
const OLDEST_VERSION: u32 = 13;
/// The key of the lock that only one server has: "acor".
const SERVER_LOCK: i64 = 0x6163_6f72;
/// The beginning of the name of each session.
const SESSION_PREFIX: &str = "agent-coordinator ";
/// A transaction that does nothing for this long is ended, because it holds the writer's lock.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A transaction that waits for the lock of `writer` for this long fails. It is longer than
/// [`LONGEST_PAUSE`], so that a server that has stopped loses the lock first.
const LONGEST_LOCK: Duration = Duration::from_secs(15);
const _: () = assert!(LONGEST_PAUSE.as_millis() < LONGEST_LOCK.as_millis());

/// A host that does not answer for this long is given up. A write then has time for a new
/// connection before its caller gets an error.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// The time to wait for the end of a server that is gone. PostgreSQL notices the end of its session
/// only after the statement that runs.
const TIMEOUT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The options for opening a database.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this server for people, such as `host (pid 7)`.
    pub name: String,
    /// A text that no other start of a server has.
    pub id: String,
    pub sharing: Sharing,
    /// A read that takes longer than this is interrupted.
    pub longest_read: Duration,
    /// A caller gets an error after this time if PostgreSQL stands still. It is longer than the
    /// time for which a write waits for a new connection, whose error says more.
    pub longest_wait: Duration,
    /// A host that does not answer for this long is given up.
    pub longest_silence: Duration,
}

/// One server without a name.
impl Default for Options {
    fn default() -> Self {
        Self {
            name: "a server without a name".to_owned(),
            id: String::new(),
            sharing: Sharing::OneServer,
            longest_read: Duration::from_secs(10),
            longest_wait: Duration::from_secs(25),
            longest_silence: LONGEST_SILENCE,
        }
    }
}

/// Opens the database and brings its schema up to date. Blocks, so it is not called on a thread
/// that drives asynchronous tasks.
///
/// # Errors
/// [`OpenError`] names the problem and the remedy.
pub fn database(url: &PostgresUrl, options: Options) -> Result<Engine, OpenError> {
    open(url, options, None)
}

/// Opens the database as [`database`] does. `hear` gets what other servers announce, until the
/// engine is closed.
///
/// # Errors
/// The errors of [`database`].
pub fn database_with_listener(
    url: &PostgresUrl,
    options: Options,
    hear: Hear,
) -> Result<Engine, OpenError> {
    open(url, options, Some(hear))
}

fn open(url: &PostgresUrl, options: Options, hear: Option<Hear>) -> Result<Engine, OpenError> {
    let Options { name, id, sharing, longest_read, longest_wait, longest_silence } = options;
    let connector = Connector { url: url.clone(), name: session_name(&name), longest_silence };
    let server = Arc::new(Server { connector, id, name, sharing });
    let open = || -> Result<Engine, Problem> {
        let mut writer = first_writer(Arc::clone(&server))?;
        if let Some(hear) = hear {
            writer.listener = Some(Listener::start(Arc::clone(&server), hear)?);
        }
        let reader = {
            let server = Arc::clone(&server);
            move || -> Result<Box<dyn super::Connection>, DbError> {
                Ok(Box::new(Postgres::reader(Arc::clone(&server), longest_read)?))
            }
        };
        Ok(Engine::start(writer, reader, Some(longest_wait))?)
    };
    open().map_err(|problem| problem.of(url))
}

/// Opens an existing database to copy its rows, and keeps servers away from it. Nothing in it is
/// changed.
///
/// # Errors
/// [`OpenError`] names the problem and the remedy.
pub(crate) fn to_read(url: &PostgresUrl) -> Result<Postgres, OpenError> {
    let open = || -> Result<Postgres, Problem> {
        let mut end = copier(url)?;
        if !is_ours(&mut end.client)? {
            return Err(Problem::new(OpenErrorKind::Empty));
        }
        let applied = applied(&mut end.client)?;
        if schema::missing(&applied)?.next().is_some() {
            let found = newest(&applied);
            let known = schema::newest_version();
            return Err(Problem::new(OpenErrorKind::Older { found, known }));
        }
        Ok(end)
    };
    open().map_err(|problem| problem.of(url))
}

/// Opens a database to copy rows into it, and keeps servers away from it. `refuse_rows` is called
/// before the first change of a database that has tables.
///
/// # Errors
/// The error of `refuse_rows`; [`OpenError`] names the problem and the remedy.
pub(crate) fn to_fill<E: From<OpenError>>(
    url: &PostgresUrl,
    refuse_rows: impl FnOnce(&mut Postgres) -> Result<(), E>,
) -> Result<Postgres, E> {
    let mut end = copier(url).map_err(|problem| problem.of(url))?;
    if is_ours(&mut end.client).map_err(|problem| problem.of(url))? {
        applied(&mut end.client).map_err(|problem| problem.of(url))?;
        refuse_rows(&mut end)?;
    }
    migrate(&mut end.client).map_err(|problem| problem.of(url))?;
    Ok(end)
}

/// Connects for a copy, and takes the lock that only one server has.
fn copier(url: &PostgresUrl) -> Result<Postgres, Problem> {
    let id = String::new();
    let name = format!("store copy (pid {})", std::process::id());
    let connector =
        Connector { url: url.clone(), name: session_name(&name), longest_silence: LONGEST_SILENCE };
    let server = Server { connector, id, name, sharing: Sharing::OneServer };
    let mut client = reach(&server, Role::Copier)?;
    server.take(&mut client, None)?;
    Ok(Postgres::new(client, Arc::new(server), Role::Copier))
}

/// Connects, and checks the server and the database.
fn reach(server: &Server, role: Role) -> Result<Client, Problem> {
    let mut client = Client::connect(server.connector.clone(), &options(role))
        .map_err(|error| refused(error, server.connector.url.tls()))?;
    check_server(&mut client)?;
    Ok(client)
}

/// Connects the writer, and brings the database up to date. Only the server that has the database
/// changes it.
#[allow(clippy::disallowed_methods, reason = "the thread that opens a store may block")]
fn first_writer(server: Arc<Server>) -> Result<Postgres, Problem> {
    let mut client = reach(&server, Role::Writer)?;
    let give_up_at = clock::unpaused() + TIMEOUT;
    loop {
        match server.take(&mut client, None) {
            Err(error) if is_in_use(&error) && clock::unpaused() < give_up_at => {
                thread::sleep(LOOK_AGAIN);
            }
            taken => break taken?,
        }
    }
    migrate(&mut client)?;
    server.register(&mut client)?;
    let mut writer = Postgres::new(client, server, Role::Writer);
    writer.find_version()?;
    Ok(writer)
}

/// Returns whether another server has the database.
fn is_in_use(error: &DbError) -> bool {
    matches!(error, DbError::Lost(source) if source.is::<InUse>())
}

/// Checks the server and the encoding of the database, and returns the version of the server.
pub(super) fn check_server(client: &mut Client) -> Result<String, Problem> {
    let text = |client: &mut Client, sql: &str| -> Result<String, Problem> {
        Ok(client.query_one(sql, &[])?.get(0))
    };
    let number = text(client, "SHOW server_version_num")?;
    let version = text(client, "SHOW server_version")?;
    if is_too_old(&number) {
        return Err(Problem::new(OpenErrorKind::TooOld { found: version }));
    }
    if client.query_one("SELECT pg_is_in_recovery()", &[])?.get(0) {
        return Err(Problem::new(OpenErrorKind::Standby));
    }
    // A pooler that ignores the options of a session also gives its transactions to any session.
    let sql = "SELECT setting FROM pg_settings WHERE name = 'lock_timeout'";
    if text(client, sql)? != LONGEST_LOCK.as_millis().to_string() {
        return Err(Problem::new(OpenErrorKind::Pooled));
    }
    let found = text(client, "SHOW server_encoding")?;
    if found != "UTF8" {
        return Err(Problem::new(OpenErrorKind::NotUtf8 { found }));
    }
    Ok(version)
}

/// Returns whether `number`, such as `150018` for 15.18, is before [`OLDEST_VERSION`].
fn is_too_old(number: &str) -> bool {
    number.parse::<u32>().is_ok_and(|number| number / 10_000 < OLDEST_VERSION)
}

/// Returns whether the database has the tables of this program. Without any table, it has not.
///
/// # Errors
/// The tables of another program.
pub(super) fn is_ours(client: &mut Client) -> Result<bool, Problem> {
    let exists = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";
    if client.query_one(exists, &[])?.get(0) {
        return Ok(true);
    }
    let sql = "SELECT COUNT(*) FROM pg_catalog.pg_class AS c \
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
        WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v')";
    let n_tables: i64 = client.query_one(sql, &[])?.get(0);
    if n_tables > 0 { Err(Problem::new(OpenErrorKind::Foreign)) } else { Ok(false) }
}

/// Returns the migrations that the database has.
///
/// # Errors
/// A migration of a newer version of this program.
pub(super) fn applied(client: &mut Client) -> Result<Vec<schema::Applied>, Problem> {
    let sql = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";
    let applied: Vec<schema::Applied> = client
        .query(sql, &[])?
        .into_iter()
        .map(|row| schema::Applied {
            version: row.get(0),
            is_complete: row.get(1),
            checksum: row.get(2),
        })
        .collect();
    let found = newest(&applied);
    let known = schema::newest_version();
    if found > known {
        return Err(Problem::new(OpenErrorKind::Newer { found, known }));
    }
    Ok(applied)
}

pub(super) fn newest(applied: &[schema::Applied]) -> i64 {
    applied.iter().map(|applied| applied.version).max().unwrap_or(0)
}

fn migrate(client: &mut Client) -> Result<(), Problem> {
    client.batch_execute("BEGIN")?;
    // Two servers that start at once apply the migrations one after the other.
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&(SERVER_LOCK + 1)])?;
    if !is_ours(client)? {
        client.batch_execute(&schema::for_postgres(schema::APPLIED))?;
        client.batch_execute(&schema::for_postgres(include_str!("../migrations/postgres.sql")))?;
    }
    for migration in schema::missing(&applied(client)?)? {
        client.batch_execute(&schema::for_postgres(migration.sql))?;
        migration.fill(client)?;
        let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
            VALUES ($1, $2, TRUE, $3, -1)";
        let checksum = migration.checksum();
        let args: [&(dyn ToSql + Sync); 3] =
            [&migration.version, &migration.description, &checksum];
        client.execute(sql, &args)?;
    }
    Ok(client.batch_execute("COMMIT")?)
}

impl Migrating for Client {
    type Error = tokio_postgres::Error;

    fn pairs(&mut self, sql: &str) -> Result<Vec<(String, String)>, tokio_postgres::Error> {
        let rows = self.query(sql, &[])?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    fn run(&mut self, sql: &str, args: &[&str]) -> Result<(), tokio_postgres::Error> {
        let args: Vec<&(dyn ToSql + Sync)> =
            args.iter().map(|arg| arg as &(dyn ToSql + Sync)).collect();
        self.execute(sql, &args).map(drop)
    }
}

/// Finds the reason why a server does not accept a connection.
pub(super) fn refused(error: BoxError, tls: &Tls) -> Problem {
    if error.is::<std::io::Error>() {
        return Problem { kind: OpenErrorKind::Unreachable, source: Some(error) };
    }
    let Some(error) = error.downcast_ref::<tokio_postgres::Error>() else {
        return Problem { kind: OpenErrorKind::Tls, source: Some(error) };
    };
    let text = chain(error);
    let kind = match error.as_db_error().map(|reported| (reported.code(), reported.message())) {
        Some((code, _))
            if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION]
                .contains(code) =>
        {
            OpenErrorKind::WrongPassword
        }
        Some((code, _)) if *code == SqlState::INVALID_CATALOG_NAME => OpenErrorKind::NoDatabase,
        Some((code, _)) if *code == SqlState::INSUFFICIENT_PRIVILEGE => OpenErrorKind::NotAllowed,
        Some((code, message))
            if *code == SqlState::PROTOCOL_VIOLATION && message.contains("startup parameter") =>
        {
            OpenErrorKind::Pooled
        }
        Some(_) => OpenErrorKind::Other,
        None if text.contains("password missing") => OpenErrorKind::WrongPassword,
        None if text.contains("database does not allow writes") => OpenErrorKind::Standby,
        None if *tls != Tls::Off && text.to_lowercase().contains("tls") => OpenErrorKind::Tls,
        None => OpenErrorKind::Unreachable,
    };
    Problem { kind, source: Some(text.into()) }
}

/// Returns the name of the sessions of a server, which PostgreSQL shows.
fn session_name(server: &str) -> String {
    format!("{SESSION_PREFIX}{server}")
}

/// Returns the options of a session.
pub(super) fn options(role: Role) -> String {
    let ms = |duration: Duration| duration.as_millis();
    let (longest_pause, statement_timeout) = match role {
        // This limit does not end a commit that waits for a standby.
        Role::Writer => (LONGEST_PAUSE, 2 * LONGEST_LOCK),
        Role::Reader { longest_read } => (LONGEST_PAUSE, longest_read),
        Role::Listener => (LONGEST_PAUSE, LONGEST_LOCK),
        // Zero means no limit. A copy waits for the other database, and delays no server.
        Role::Copier => (Duration::ZERO, Duration::ZERO),
    };
    format!(
        "-c idle_in_transaction_session_timeout={} -c lock_timeout={} -c statement_timeout={} \
         -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 \
         -c tcp_user_timeout=10000 \
         -c client_min_messages=error",
        ms(longest_pause),
        ms(LONGEST_LOCK),
        ms(statement_timeout)
    )
}

impl Server {
    /// Connects a session.
    pub(super) fn connect(&self, role: Role) -> Result<Client, DbError> {
        Client::connect(self.connector.clone(), &options(role))
            .map_err(|error| DbError::Lost(chain(error.as_ref()).into()))
    }

    /// Makes the session that of the only server.
    ///
    /// PostgreSQL may not have noticed that the connection of the `former` session is cut. That
    /// session is ended, and the next attempt finds the lock free.
    pub(super) fn take(
        &self,
        client: &mut Client,
        former: Option<&Session>,
    ) -> Result<(), DbError> {
        let failed = |error: tokio_postgres::Error| failed(&error, "taking the lock of the server");
        let sql = "SELECT $1 OR pg_try_advisory_lock($2)";
        let needs_no_lock = self.sharing == Sharing::Several;
        let row = client.query_one(sql, &[&needs_no_lock, &SERVER_LOCK]).map_err(failed)?;
        if row.get(0) {
            return Ok(());
        }
        if let Some(session) = former
            && session.end(client).map_err(failed)?
        {
            return Err(DbError::Lost("the former session of this server ends".into()));
        }
        let holder = holder(client).map_err(failed)?;
        let holder = holder.map_or_else(|| "one that ends".to_owned(), |name| format!("`{name}`"));
        Err(DbError::Lost(InUse(holder).into()))
    }

    /// Gives the server its row. The only server removes those of earlier ones.
    pub(super) fn register(&self, client: &mut Client) -> Result<(), DbError> {
        let failed = |error: tokio_postgres::Error| failed(&error, "giving the server its row");
        if self.sharing == Sharing::OneServer {
            let sql = "DELETE FROM servers WHERE id <> $1";
            client.execute(sql, &[&self.id]).map_err(failed)?;
        }
        let sql = "INSERT INTO servers (id, name, last_number) VALUES ($1, $2, 0) \
            ON CONFLICT (id) DO NOTHING";
        client.execute(sql, &[&self.id, &self.name]).map_err(failed)?;
        Ok(())
    }
}

/// Returns the name of the server or the copy that has the lock of the database. Its session has the
/// name: a server that starts has no row yet, and a copy never has one.
pub(super) fn holder(client: &mut Client) -> Result<Option<String>, tokio_postgres::Error> {
    let sql = "SELECT a.application_name FROM pg_catalog.pg_locks AS l \
        JOIN pg_catalog.pg_database AS d ON d.oid = l.database \
        JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
        WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted \
        AND l.objsubid = 1 AND l.classid = 0 AND CAST(l.objid AS BIGINT) = $1";
    let row = client.query_opt(sql, &[&SERVER_LOCK])?;
    Ok(row.map(|row| {
        let session: &str = row.get(0);
        session.strip_prefix(SESSION_PREFIX).unwrap_or(session).to_owned()
    }))
}

/// Another server has the lock.
#[derive(Debug, thiserror::Error)]
#[error("the database is used by another server, {0}")]
struct InUse(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_before_the_oldest_one_is_too_old() {
        for (number, expected) in [
            ("90624", true),
            ("120022", true),
            ("130000", false),
            ("150018", false),
            ("180001", false),
            ("no number", false),
        ] {
            assert_eq!(is_too_old(number), expected, "{number}");
        }
    }

    #[test]
    fn a_server_that_is_too_old_is_told_the_version_that_is_needed() {
        let found = "12.22 (Debian 12.22-1)".to_owned();
        let error = OpenError {
            kind: OpenErrorKind::TooOld { found },
            url: "postgres://u@h/d".to_owned(),
            user: "u".to_owned(),
            source: None,
        };
        let text = error.to_string();
        assert!(
            text.contains("is on PostgreSQL 12.22") && text.contains("version 13 or"),
            "{text}"
        );
    }
}
