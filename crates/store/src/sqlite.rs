//! One connection to an SQLite database.
#![allow(clippy::disallowed_methods, reason = "the thread of a connection blocks")]

mod copy;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ErrorCode, OpenFlags, Row, Statement, ToSql};

use domain::store_state::{Database, DatabaseKind};

use super::database_files::DatabaseFiles;
use super::db::{BoxError, Cell, Cells, Columns, Db, DbError, Value};
use super::engine::{Connection, Locked};
use super::open::Settings;

/// The number of instructions of SQLite's virtual machine between two checks of the deadline.
const N_INSTRUCTIONS: i32 = 100_000;
/// The number of compiled statements that a connection keeps.
const N_STATEMENTS: usize = 64;

/// A log that is larger than this is emptied when no reader needs it.
const LARGE_LOG: u64 = 8 << 20;

/// The options of a connection to a database.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) path: PathBuf,
    /// The files that the first connection opened. `None` until then.
    pub(super) place: Option<Arc<DatabaseFiles>>,
    pub(super) settings: Settings,
    /// The memory for pages, in KiB.
    pub(super) cache_kib: u32,
    pub(super) access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The connection cannot write, not even to complete the work of a crashed process.
    ReadOnly,
    /// The connection can complete the work of a crashed process, but runs no statement that
    /// writes.
    QueryOnly,
    ReadWrite,
}

/// One connection.
pub(super) struct Sqlite {
    connection: rusqlite::Connection,
    /// `None` for a database in memory, which cannot be opened again.
    options: Option<Options>,
    deadline: Arc<Deadline>,
    is_log_reported: bool,
}

/// The result of emptying the log of a database.
enum Emptied {
    Yes,
    /// A reader still needs a state from before its end.
    NotWhileItIsRead,
}

/// The time when the running read is interrupted, in milliseconds since `epoch`; 0 for never.
struct Deadline {
    epoch: Instant,
    at: AtomicU64,
}

impl Options {
    /// Returns the path of the log, the file beside the database with the latest writes.
    fn log(&self) -> PathBuf {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        log.into()
    }

    /// Opens a connection. The file must exist.
    pub(super) fn connect(&self) -> rusqlite::Result<rusqlite::Connection> {
        let access = if self.access == Access::ReadOnly {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        };
        let connection = rusqlite::Connection::open_with_flags(
            &self.path,
            access | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        distrust_schema(&connection)?;
        connection.busy_timeout(self.settings.busy_timeout)?;
        connection.pragma_update(None, "cache_size", -i64::from(self.cache_kib))?;
        if self.access == Access::QueryOnly {
            connection.pragma_update(None, "query_only", true)?;
        } else {
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
        }
        if let Some(max_pages) = self.settings.max_pages {
            connection.pragma_update(None, "max_page_count", max_pages)?;
        }
        Ok(connection)
    }
}

/// Lets no trigger and no view of a database run. This program makes neither, so they belong to
/// another person, as do functions with side effects in other objects.
pub(super) fn distrust_schema(connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    for setting in [
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
    ] {
        connection.set_db_config(setting, false)?;
    }
    Ok(())
}

impl Sqlite {
    /// Wraps a connection, which `options` opens again after a failure.
    pub(super) fn new(connection: rusqlite::Connection, options: Option<Options>) -> Self {
        connection.set_prepared_statement_cache_capacity(N_STATEMENTS);
        // A plan must not depend on the values of parameters. Otherwise, most statements are
        // compiled again when they get other values. If the setting fails, statements are only
        // slower.
        let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
        let deadline = Arc::new(Deadline { epoch: Instant::now(), at: AtomicU64::new(0) });
        let mut sqlite = Self { connection, options, deadline, is_log_reported: false };
        sqlite.watch_the_clock();
        sqlite
    }

    pub(super) fn open(options: &Options) -> Result<Self, DbError> {
        let connection = options.connect().map_err(failed)?;
        // The check follows the opening, so that it is about the file that was opened.
        if let Some(missing) = options.place.as_ref().and_then(|place| place.missing()) {
            return Err(DbError::Database(missing.into()));
        }
        Ok(Self::new(connection, Some(options.clone())))
    }

    /// Fails if the files of the database are not in their place.
    fn check_place(&self) -> Result<(), DbError> {
        let place = self.options.as_ref().and_then(|options| options.place.as_ref());
        let Some(place) = place else { return Ok(()) };
        // A log with contents damages the database that it is found beside.
        place.check(|| drop(self.empty_the_log()))
    }

    /// Writes the log into the database, as far as no reader needs the former state, and empties it
    /// if possible.
    fn empty_the_log(&self) -> rusqlite::Result<Emptied> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            Ok(if row.get(0)? { Emptied::NotWhileItIsRead } else { Emptied::Yes })
        })
    }

    /// Empties a log that has grown, and reports one that cannot be emptied.
    fn keep_log_small(&mut self) {
        let Some(options) = self.options.as_ref() else { return };
        let log = options.log();
        let size = || std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
        if size() <= LARGE_LOG.min(options.settings.largest_log) && !self.is_log_reported {
            return;
        }
        // A busy timeout would make a reader that holds the log delay all writes, too.
        let emptied = self
            .connection
            .busy_timeout(Duration::ZERO)
            .and_then(|()| self.empty_the_log())
            .map_err(|error| error.to_string());
        // Setting the busy timeout of an open connection does not fail.
        let _ = self.connection.busy_timeout(options.settings.busy_timeout);
        let size = size();
        let largest = options.settings.largest_log;
        if size > largest && !self.is_log_reported {
            let cause = match &emptied {
                Ok(Emptied::NotWhileItIsRead) => {
                    "another process reads an old state of the database (checkpoint: busy)"
                }
                Ok(Emptied::Yes) => "the database writes to it faster than it can be emptied",
                Err(error) => error,
            };
            tracing::warn!(
                log = %log.display(), size_mib = size >> 20, cause,
                remedy = "find the process with `fuser` or `lsof` on this file, and end it",
                "the log of the database grows and takes space on the disk"
            );
            self.is_log_reported = true;
        } else if size <= LARGE_LOG.min(largest) && self.is_log_reported {
            tracing::info!(log = %log.display(), "the log of the database is small again");
            self.is_log_reported = false;
        }
    }

    fn watch_the_clock(&mut self) {
        let deadline = Arc::clone(&self.deadline);
        // Only fails if the connection is closed.
        let _ = self.connection.progress_handler(N_INSTRUCTIONS, Some(move || deadline.is_over()));
    }

    fn run(&self, sql: &str) -> Result<(), DbError> {
        self.statement(sql)?.raw_execute().map(drop).map_err(failed)
    }

    fn statement(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, DbError> {
        self.connection.prepare_cached(sql).map_err(failed)
    }
}

impl Deadline {
    fn set(&self, after: Duration) {
        let at = (self.epoch.elapsed() + after).as_millis();
        self.at.store(u64::try_from(at).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at > 0 && self.epoch.elapsed() > Duration::from_millis(at)
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Bool(is_true) => ValueRef::Integer((*is_true).into()),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

fn bind(statement: &mut Statement<'_>, args: &[Value<'_>]) -> Result<(), DbError> {
    for (n, arg) in args.iter().enumerate() {
        statement.raw_bind_parameter(n + 1, arg).map_err(failed)?;
    }
    let n_given = args.len();
    let n_wanted = statement.parameter_count();
    if n_given == n_wanted {
        return Ok(());
    }
    let problem = format!("the statement has {n_wanted} parameters, and {n_given} were given");
    Err(DbError::Statement(problem.into()))
}

impl Db for Sqlite {
    fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64, DbError> {
        let mut statement = self.statement(sql)?;
        bind(&mut statement, args)?;
        Ok(statement.raw_execute().map_err(failed)? as u64)
    }

    fn query(
        &mut self,
        sql: &str,
        args: &[Value<'_>],
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError> {
        let mut statement = self.statement(sql)?;
        bind(&mut statement, args)?;
        let mut rows = statement.raw_query();
        loop {
            match rows.next() {
                Ok(Some(row)) => {
                    if each(&mut Cells::new(row)).is_break() {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) =>
                {
                    let problem = format!("interrupted, as it took too long: `{sql}`");
                    return Err(DbError::Statement(problem.into()));
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl Columns for Row<'_> {
    fn cell(&self, column: usize) -> Result<Cell<'_>, BoxError> {
        Ok(match self.get_ref(column)? {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Int(number),
            ValueRef::Text(text) => Cell::Text(std::str::from_utf8(text)?),
            ValueRef::Real(_) => return Err("it is a floating-point number".into()),
            ValueRef::Blob(_) => return Err("it is a blob".into()),
        })
    }

    fn name(&self, column: usize) -> Option<&str> {
        self.as_ref().column_name(column).ok()
    }
}

impl Connection for Sqlite {
    fn begin(&mut self, locked: Locked) -> Result<(), DbError> {
        self.check_place()?;
        self.run("BEGIN IMMEDIATE")?;
        locked();
        Ok(())
    }

    fn begin_read(&mut self) -> Result<(), DbError> {
        if let Some(options) = &self.options {
            self.deadline.set(options.settings.longest_read);
        }
        self.run("BEGIN")
    }

    fn savepoint(&mut self) -> Result<(), DbError> {
        self.run("SAVEPOINT closure")
    }

    fn undo_to_savepoint(&mut self) -> Result<(), DbError> {
        self.run("ROLLBACK TO closure")
    }

    fn commit(&mut self) -> Result<(), DbError> {
        self.run("COMMIT")
    }

    fn rollback(&mut self) {
        self.deadline.clear();
        if !self.connection.is_autocommit() {
            // The next `begin` finds a connection that failed here.
            let _ = self.run("ROLLBACK");
        }
    }

    fn reconnect(&mut self) -> Result<bool, DbError> {
        self.check_place()?;
        if let Some(options) = &self.options {
            *self = Self::open(options)?;
        }
        Ok(false)
    }

    fn database(&self) -> Database {
        let url = self.options.as_ref().map(|options| format!("sqlite:{}", options.path.display()));
        Database {
            kind: DatabaseKind::Sqlite,
            version: rusqlite::version().to_owned(),
            url: url.unwrap_or_else(|| "sqlite::memory:".to_owned()),
        }
    }

    fn rest(&mut self) {
        // Best effort: it only saves memory.
        let _ = self.connection.execute_batch("PRAGMA shrink_memory");
    }

    fn look_after(&mut self) {
        // `check_place` has logged the problem.
        if self.check_place().is_ok() {
            self.keep_log_small();
        }
    }

    fn close(&mut self) {
        // This is best effort: the next start finds a log that is not empty.
        let _ = self.empty_the_log();
        if let Ok(nothing) = rusqlite::Connection::open_in_memory() {
            drop(std::mem::replace(&mut self.connection, nothing));
        }
    }
}

/// Classifies an error: a constraint or a wrong statement concerns only its closure.
fn failed(error: rusqlite::Error) -> DbError {
    let is_of_statement = match &error {
        rusqlite::Error::SqliteFailure(cause, _) => matches!(
            cause.code,
            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
        ),
        _ => true,
    };
    // The code stays in the chain of causes, so that callers can tell a full disk from a lock.
    if is_of_statement { DbError::Statement(error.into()) } else { DbError::Database(error.into()) }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_statement_is_compiled_once_whatever_its_parameters_are() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (seq INTEGER PRIMARY KEY, name TEXT, n BIGINT)")
            .unwrap();
        let sqlite = Sqlite::new(connection, None);
        for sql in [
            "SELECT seq FROM t WHERE seq > ?1 ORDER BY seq LIMIT ?2",
            "SELECT seq FROM t WHERE name = ?1 AND n = ?2",
            "UPDATE t SET name = ?1 WHERE n = ?2",
        ] {
            let mut statement = sqlite.statement(sql).unwrap();
            for n in 0..3 {
                bind(&mut statement, &[n.into(), (n + 1).into()]).unwrap();
                assert!(statement.raw_query().next().unwrap().is_none());
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
        }
    }
}
