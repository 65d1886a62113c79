//! One connection to a PostgreSQL database.
//!
//! A transaction that writes first takes the lock of the table `writer`. It takes its snapshot
//! after that, so it sees all that was committed before, and the order of the answers is the order
//! of the commits. Events are numbered under the lock, so their numbers follow that order, too.
//!
//! A connection that ends during a COMMIT leaves its outcome unknown. Each transaction therefore
//! writes its number into the server's row of the table `servers`. The next connection takes the
//! lock, which waits for the end of the former transaction, and reads the number.

mod client;
mod connect;
mod copy;
mod failure;
mod listener;
mod look;
pub mod open;

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Column, Row, Statement};

use domain::store_state::{Database, DatabaseKind};

use super::db::{BoxError, Cell, Cells, Columns, Db, DbError, Value};
use super::engine::{Connection, Locked};

pub use look::{DatabaseFacts, Schema, look};

use client::{Client, Connector};
use failure::failed;
use listener::Listener;

/// The number of compiled statements that a connection keeps.
const N_STATEMENTS: usize = 512;
/// The channel of the messages that servers send each other.
const CHANNEL: &str = "agent_coordinator";
/// The longest message that a server sends. PostgreSQL refuses those from 8,000 bytes.
const LONGEST_MESSAGE: usize = 7_000;
/// The message of a transaction whose messages are too long together.
const EVERYTHING: &str = "*";

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Writer,
    /// Reads that take longer than this are interrupted.
    Reader {
        longest_read: Duration,
    },
    /// Copies the whole database while no server uses it.
    Copier,
    /// Receives the messages of other servers.
    Listener,
}

/// The function that hears what other servers announce. The listener's thread calls it.
pub type Hear = Arc<dyn Fn(EventUpdate<'_>) + Send + Sync>;

/// The news from other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventUpdate<'a> {
    /// A text that a transaction of another server has announced.
    Announced(&'a str),
    /// Any text may have been announced: the listener was not connected, or the texts of a
    /// transaction were too long.
    Anything,
}

/// One connection.
pub(super) struct Postgres {
    client: Client,
    server: Arc<Server>,
    role: Role,
    /// The version of the PostgreSQL server. Only the writer asks for it.
    version: String,
    statements: HashMap<String, Statement>,
    /// The number of the last transaction that wrote.
    number: i64,
    /// The commit of the last transaction has an unknown outcome.
    is_in_doubt: bool,
    /// The open transaction has changed rows.
    has_written: bool,
    /// The messages that the open transaction sends with its commit.
    messages: Vec<String>,
    /// The number of messages before the last savepoint.
    n_kept: usize,
    /// The writer's connection ends it.
    listener: Option<Listener>,
}

/// This server as a user of the database.
#[derive(Debug)]
struct Server {
    connector: Connector,
    /// The key of its row in `servers`, which no other start of a server has.
    id: String,
    /// The name that other servers tell people, such as `host (pid 7)`.
    name: String,
    /// The number of servers that may use the database at once.
    sharing: Sharing,
}

/// The number of servers that may use a database at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Another server is refused.
    OneServer,
    /// Several servers share the database. Only tests use this.
    Several,
}

impl Postgres {
    /// Connects as a reader.
    fn reader(server: Arc<Server>, longest_read: Duration) -> Result<Self, DbError> {
        let role = Role::Reader { longest_read };
        let client = server.connect(role)?;
        Ok(Self::new(client, server, role))
    }

    fn new(client: Client, server: Arc<Server>, role: Role) -> Self {
        Self {
            client,
            server,
            role,
            version: String::new(),
            statements: HashMap::new(),
            number: 0,
            is_in_doubt: false,
            has_written: false,
            messages: Vec::new(),
            n_kept: 0,
            listener: None,
        }
    }

    fn replace_client(&mut self) -> Result<(), DbError> {
        let mut client = self.server.connect(self.role)?;
        if matches!(self.role, Role::Writer | Role::Copier) {
            self.server.take(&mut client, Some(self.client.session()))?;
        }
        if self.role == Role::Writer {
            self.server.register(&mut client)?;
        }
        self.client = client;
        self.statements.clear();
        if self.role == Role::Writer { self.find_version() } else { Ok(()) }
    }

    /// Finds the version of the server, which another connection may have to another server.
    fn find_version(&mut self) -> Result<(), DbError> {
        let sql = "SHOW server_version";
        let row = self.client.query_one(sql, &[]).map_err(|error| failed(&error, sql))?;
        self.version = row.get(0);
        Ok(())
    }

    fn run(&mut self, sql: &str) -> Result<(), DbError> {
        self.client.batch_execute(sql).map_err(|error| failed(&error, sql))
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, DbError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        // No statement of the program has a question mark in a text or a comment.
        let prepared = self.client.prepare(&sql.replace('?', "$"));
        let statement = prepared.map_err(|error| failed(&error, sql))?;
        if self.statements.len() >= N_STATEMENTS {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn ask(&mut self, sql: &str, args: &[Value<'_>]) -> Result<Vec<Row>, DbError> {
        let statement = self.statement(sql)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|arg| arg as _).collect();
        self.client.query(&statement, &args).map_err(|error| failed(&error, sql))
    }

    /// Returns the statements that end a transaction that has written.
    fn ending(&self) -> String {
        // The transactions of a group often announce the same.
        let messages: BTreeSet<&str> = self.messages.iter().map(String::as_str).collect();
        let messages = messages.into_iter().collect::<Vec<_>>().join("\n");
        let message = if messages.len() > LONGEST_MESSAGE { EVERYTHING } else { &messages };
        let notify = match message {
            "" => String::new(),
            message => {
                let text = quoted(&format!("{}\n{message}", self.server.id));
                format!("NOTIFY {CHANNEL}, {text}; ")
            }
        };
        let number = self.number;
        let id = quoted(&self.server.id);
        format!("UPDATE servers SET last_number = {number} WHERE id = {id}; {notify}COMMIT")
    }

    /// Returns whether the transaction with the last number was committed. Waits for its end.
    fn is_committed(&mut self) -> Result<bool, DbError> {
        self.run(BEGIN_WRITE)?;
        let sql = "SELECT last_number FROM servers WHERE id = $1";
        let found = self.client.query_opt(sql, &[&self.server.id]);
        let found: Option<Row> = found.map_err(|error| failed(&error, sql))?;
        let last: Option<i64> = found.map(|row| row.get(0));
        self.run("ROLLBACK")?;
        Ok(last == Some(self.number))
    }
}

/// Takes the lock before the first query, which takes the snapshot.
const BEGIN_WRITE: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE writer IN EXCLUSIVE MODE";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Returns `text` as a literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl ToSql for Value<'_> {
    fn to_sql(&self, kind: &Type, out: &mut bytes::BytesMut) -> Result<IsNull, BoxError> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Int(number), &Type::INT8) => number.to_sql(kind, out),
            (Self::Int(number), &Type::INT4) => i32::try_from(*number)?.to_sql(kind, out),
            (Self::Bool(is_true), &Type::BOOL) => is_true.to_sql(kind, out),
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR) => text.as_ref().to_sql(kind, out),
            _ => Err(format!("the statement expects {kind}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl Columns for Row {
    fn cell(&self, column: usize) -> Result<Cell<'_>, BoxError> {
        let kind = self.columns().get(column).ok_or("there is no such column")?.type_();
        Ok(match *kind {
            Type::INT8 => self.try_get::<_, Option<i64>>(column)?.map_or(Cell::Null, Cell::Int),
            Type::INT4 => int(self.try_get::<_, Option<i32>>(column)?),
            Type::BOOL => int(self.try_get::<_, Option<bool>>(column)?),
            Type::TEXT | Type::VARCHAR | Type::NAME => {
                self.try_get::<_, Option<&str>>(column)?.map_or(Cell::Null, Cell::Text)
            }
            _ => return Err(format!("it has the type {kind}").into()),
        })
    }

    fn name(&self, column: usize) -> Option<&str> {
        self.columns().get(column).map(Column::name)
    }
}

fn int(number: Option<impl Into<i64>>) -> Cell<'static> {
    number.map_or(Cell::Null, |number| Cell::Int(number.into()))
}

impl Db for Postgres {
    fn execute(&mut self, sql: &str, args: &[Value<'_>]) -> Result<u64, DbError> {
        self.has_written = true;
        let statement = self.statement(sql)?;
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|arg| arg as _).collect();
        self.client.execute(&statement, &args).map_err(|error| failed(&error, sql))
    }

    fn query(
        &mut self,
        sql: &str,
        args: &[Value<'_>],
        each: &mut dyn FnMut(&mut Cells<'_>) -> ControlFlow<()>,
    ) -> Result<(), DbError> {
        let is_first = self.client.has_before();
        let rows = match self.ask(sql, args) {
            // The server was started again since the last read.
            Err(DbError::Lost(_)) if is_first && matches!(self.role, Role::Reader { .. }) => {
                self.replace_client()?;
                self.client.before_next(BEGIN_READ, Box::new(|| ()));
                self.ask(sql, args)?
            }
            rows => rows?,
        };
        for row in &rows {
            if each(&mut Cells::new(row)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn announce(&mut self, text: &str) {
        self.messages.push(text.to_owned());
    }
}

impl Connection for Postgres {
    fn begin(&mut self, locked: Locked) -> Result<(), DbError> {
        self.has_written = false;
        self.messages.clear();
        self.n_kept = 0;
        self.client.before_next(BEGIN_WRITE, locked);
        Ok(())
    }

    fn begin_read(&mut self) -> Result<(), DbError> {
        self.client.before_next(BEGIN_READ, Box::new(|| ()));
        Ok(())
    }

    fn savepoint(&mut self) -> Result<(), DbError> {
        self.n_kept = self.messages.len();
        self.run("SAVEPOINT closure")
    }

    fn undo_to_savepoint(&mut self) -> Result<(), DbError> {
        self.messages.truncate(self.n_kept);
        self.run("ROLLBACK TO closure")
    }

    fn commit(&mut self) -> Result<(), DbError> {
        if self.client.take_back() {
            return Ok(());
        }
        if !self.has_written {
            // If the answer is lost, nothing else is.
            return self.run("COMMIT");
        }
        self.number += 1;
        let committed = self.run(&self.ending());
        self.is_in_doubt = matches!(committed, Err(DbError::Lost(_)));
        committed
    }

    fn rollback(&mut self) {
        if !self.client.take_back() && !self.client.is_closed() {
            // The next `begin` finds a connection that failed here.
            let _ = self.run("ROLLBACK");
        }
    }

    fn reconnect(&mut self) -> Result<bool, DbError> {
        self.replace_client()?;
        if !self.is_in_doubt {
            return Ok(false);
        }
        let is_committed = self.is_committed()?;
        self.is_in_doubt = false;
        Ok(is_committed)
    }

    fn database(&self) -> Database {
        Database {
            kind: DatabaseKind::Postgres,
            version: self.version.clone(),
            url: self.server.connector.url.to_string(),
        }
    }

    fn rest(&mut self) {}

    fn look_after(&mut self) {}

    fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.end();
        }
        let id = quoted(&self.server.id);
        let sql = format!("DELETE FROM servers WHERE id = {id}; SELECT pg_advisory_unlock_all()");
        // The row of a server that is gone harms nothing, and the next start removes it.
        let _ = self.run(&sql);
    }
}

/// Returns an error and its causes as one text. The driver's own text is only its kind.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
