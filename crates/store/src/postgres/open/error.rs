//! The reasons why a PostgreSQL database cannot be opened, each with a remedy.

use std::fmt;

use tokio_postgres::error::SqlState;

use super::super::super::db::{BoxError, DbError};
use super::super::super::schema;
use super::super::chain;
use super::{InUse, OLDEST_VERSION};
use postgres_url::PostgresUrl;

/// The reason why a database cannot be opened. The text names the database and the remedy.
#[derive(Debug, thiserror::Error)]
pub struct OpenError {
    pub kind: OpenErrorKind,
    /// The URL of the database, without a password.
    pub url: String,
    /// The name of the user who logs in.
    pub user: String,
    /// The error of PostgreSQL or of the system, if there is one.
    pub source: Option<BoxError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenErrorKind {
    Unreachable,
    /// The server does not use TLS, or its certificate is not trusted.
    Tls,
    WrongPassword,
    NoDatabase,
    /// The user may not connect, or create tables.
    NotAllowed,
    TooOld {
        /// The version of the server.
        found: String,
    },
    /// The server is a standby, which only answers reads.
    Standby,
    /// A connection pooler stands before the server and does not pass on the settings of a session.
    Pooled,
    NotUtf8 {
        /// The encoding of the database.
        found: String,
    },
    /// The database has tables of another program.
    Foreign,
    /// A newer version of this program has written it.
    Newer {
        found: i64,
        known: i64,
    },
    /// The database to copy from has no tables.
    Empty,
    /// An older version of this program has written the database to copy from.
    Older {
        found: i64,
        known: i64,
    },
    /// Another server uses the database.
    InUse {
        /// The name of that server.
        by: String,
    },
    Other,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, user, .. } = self;
        match &self.kind {
            OpenErrorKind::Unreachable => write!(
                f,
                "the database `{url}` does not answer: start PostgreSQL, or correct the host and \
                 the port in the URL"
            ),
            OpenErrorKind::Tls => write!(
                f,
                "the connection to the database `{url}` can't be protected by TLS: give the server \
                 a certificate for its name (`sslrootcert=FILE` names its authority), or add \
                 `sslmode=disable` on a network that is trusted"
            ),
            OpenErrorKind::WrongPassword => write!(
                f,
                "PostgreSQL refused the login of `{user}` for `{url}`: set `store.password` or \
                 `store.password_file`, or allow this user in `pg_hba.conf`"
            ),
            OpenErrorKind::NoDatabase => write!(
                f,
                "there is no database for `{url}`: create it with \
                 `CREATE DATABASE … OWNER {user} ENCODING 'UTF8'`"
            ),
            OpenErrorKind::NotAllowed => write!(
                f,
                "the user `{user}` may not create tables in the database `{url}`: make it the \
                 owner with `ALTER DATABASE … OWNER TO {user}`"
            ),
            OpenErrorKind::TooOld { found } => write!(
                f,
                "the database `{url}` is on PostgreSQL {found}, and this program needs version \
                 {OLDEST_VERSION} or newer: upgrade the server"
            ),
            OpenErrorKind::Standby => write!(
                f,
                "the database `{url}` is on a standby, which can't be written: name the primary in \
                 the URL, or all hosts, separated by commas"
            ),
            OpenErrorKind::Pooled => write!(
                f,
                "the database `{url}` is behind a connection pooler such as pgbouncer, which does \
                 not keep the state of a session: name PostgreSQL itself in the URL"
            ),
            OpenErrorKind::NotUtf8 { found } => write!(
                f,
                "the database `{url}` has the encoding {found}: create one with \
                 `ENCODING 'UTF8' TEMPLATE template0`"
            ),
            OpenErrorKind::Foreign => write!(
                f,
                "the database `{url}` has tables of another program, and was left as it is: name a \
                 database of its own for this program"
            ),
            OpenErrorKind::Newer { found, known } => write!(
                f,
                "the database `{url}` was written by a newer version of this program (schema \
                 {found}, this one knows {known}), and was left as it is: use the newer version, \
                 or restore a copy from before the upgrade"
            ),
            OpenErrorKind::Empty => {
                write!(f, "the database `{url}` is empty, so there is nothing to copy")
            }
            OpenErrorKind::Older { found, known } => write!(
                f,
                "the database `{url}` was written by an older version of this program (schema \
                 {found}, this one copies schema {known}), and was left as it is: start the daemon \
                 of this version with it once, stop it, then copy"
            ),
            OpenErrorKind::InUse { by } => write!(
                f,
                "the database `{url}` is used by another server, {by}: end that one, or name \
                 another database"
            ),
            OpenErrorKind::Other => write!(f, "could not open the database `{url}`"),
        }
    }
}

/// A kind of problem and its cause, before it is told which database it concerns.
pub(in crate::postgres) struct Problem {
    pub(super) kind: OpenErrorKind,
    pub(super) source: Option<BoxError>,
}

impl Problem {
    pub(in crate::postgres) fn new(kind: OpenErrorKind) -> Self {
        Self { kind, source: None }
    }

    pub(in crate::postgres) fn of(self, url: &PostgresUrl) -> OpenError {
        let Self { kind, source } = self;
        OpenError { kind, url: url.to_string(), user: url.user().to_owned(), source }
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self { kind: OpenErrorKind::Other, source: Some(error.into()) }
    }
}

impl From<schema::MigrationError> for Problem {
    fn from(error: schema::MigrationError) -> Self {
        Self { kind: OpenErrorKind::Other, source: Some(error.into()) }
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Self {
        let (DbError::Statement(source) | DbError::Database(source) | DbError::Lost(source)) =
            error;
        match source.downcast::<InUse>() {
            Ok(in_use) => Self::new(OpenErrorKind::InUse { by: in_use.0 }),
            Err(source) => Self { kind: OpenErrorKind::Other, source: Some(source) },
        }
    }
}

impl From<tokio_postgres::Error> for Problem {
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match error.code() {
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => OpenErrorKind::NotAllowed,
            _ => OpenErrorKind::Other,
        };
        Self { kind, source: Some(chain(&error).into()) }
    }
}
