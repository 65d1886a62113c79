//! The kinds of errors of PostgreSQL.

use std::io;

use tokio_postgres::error::SqlState;

use super::super::db::DbError;
use super::chain;

/// Classifies the error of a statement. The text names the statement if that is at fault.
pub(super) fn failed(error: &tokio_postgres::Error, sql: &str) -> DbError {
    let Some(reported) = error.as_db_error() else {
        let is_lost = error.is_closed()
            || std::iter::successors(std::error::Error::source(error), |error| error.source())
                .any(<dyn std::error::Error>::is::<io::Error>);
        let text = chain(error);
        return if is_lost {
            DbError::Lost(text.into())
        } else {
            DbError::Statement(format!("{text}: `{sql}`").into())
        };
    };
    let code = reported.code();
    let text = match reported.detail() {
        Some(detail) => format!("{} ({detail})", reported.message()),
        None => reported.message().to_owned(),
    };
    match kind(code) {
        Kind::Interrupted => {
            let text = format!("interrupted, as it took too long: `{sql}`");
            DbError::Statement(text.into())
        }
        Kind::OfStatement => DbError::Statement(format!("{text} [{}]", code.code()).into()),
        Kind::OfConnection => DbError::Lost(format!("{text} [{}]", code.code()).into()),
        Kind::OfDatabase => DbError::Database(format!("{text} [{}]", code.code()).into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OfStatement,
    /// The statement took longer than the limit of its connection.
    Interrupted,
    /// A new connection may work, also because it may reach another host.
    OfConnection,
    OfDatabase,
}

/// Returns the kind of an error code (PostgreSQL's appendix "Error Codes").
fn kind(code: &SqlState) -> Kind {
    if *code == SqlState::QUERY_CANCELED {
        return Kind::Interrupted;
    }
    // A role that may not connect or write will not be allowed to by a new connection.
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return Kind::OfDatabase;
    }
    // A lock that another server holds for too long, and a server that has become a standby.
    if [SqlState::LOCK_NOT_AVAILABLE, SqlState::READ_ONLY_SQL_TRANSACTION].contains(code) {
        return Kind::OfConnection;
    }
    // The session waited too long inside a transaction.
    if code.code() == "25P03" {
        return Kind::OfConnection;
    }
    match &code.code()[..2] {
        // Integrity, data, syntax and names, limits of a statement, an aborted transaction.
        "22" | "23" | "42" | "54" | "25" => Kind::OfStatement,
        // Connection, operator intervention, serialization.
        "08" | "57" | "40" => Kind::OfConnection,
        _ => Kind::OfDatabase,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_kind() {
        for (code, expected) in [
            ("23505", Kind::OfStatement),
            ("42P01", Kind::OfStatement),
            ("25P02", Kind::OfStatement),
            ("25P03", Kind::OfConnection),
            ("25006", Kind::OfConnection),
            ("57P01", Kind::OfConnection),
            ("57014", Kind::Interrupted),
            ("55P03", Kind::OfConnection),
            ("40001", Kind::OfConnection),
            ("42501", Kind::OfDatabase),
            ("53100", Kind::OfDatabase),
            ("XX001", Kind::OfDatabase),
        ] {
            assert_eq!(kind(&SqlState::from_code(code)), expected, "{code}");
        }
    }
}
