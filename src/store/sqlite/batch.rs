//! The statements of one commit, handed to the driver in one call: each call wakes its thread and waits for it, which costs more
//! than most statements do.
//!
//! A batch says what becomes of a statement that found something else than it wanted. It neither begins nor ends anything by
//! itself: what is to be undone after a failure is the caller's to undo.

use std::fmt::Write as _;

use futures::StreamExt as _;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, Either, Executor as _, Row as _, SqliteConnection};

use super::{Binds, Value};
use crate::store::{CommitError, StoreError};

/// Statements of one call. More of them are several calls: the driver's text and its answers have bounds.
const MAX_STATEMENTS: usize = 32;
/// Statements of a call that the driver keeps compiled. What people do in one go has countless forms; what happens to launches
/// has few.
const MAX_KEPT: usize = 8;

/// Why a commit was not applied.
pub(super) enum Failure {
    /// This commit can't be made; others can.
    Refused(CommitError),
    /// The database failed.
    Broken(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            // What a constraint keeps out is a bug in this commit, and the others of its group shall not suffer for it.
            sqlx::Error::Database(cause) if cause.kind() != sqlx::error::ErrorKind::Other => {
                Self::Refused(
                    StoreError::Unavailable { action: "write to", source: error.into() }.into(),
                )
            }
            _ => Self::Broken(error),
        }
    }
}

/// What a statement has to find, and the refusal where it doesn't.
pub(super) enum Wanted {
    Anything,
    /// It changes one row.
    OneChange(CommitError),
    /// As `OneChange`, and there is no other row where only one may be.
    OneChangeOnly {
        outdated: CommitError,
        taken: CommitError,
    },
    NoRow(CommitError),
    /// A row with this in its column `revision`; 0 where there is none.
    Revision(i64, CommitError),
}

impl Wanted {
    /// What counts of a row.
    fn found(&self, row: &SqliteRow) -> Result<i64, sqlx::Error> {
        if matches!(self, Self::Revision(..)) { row.try_get("revision") } else { Ok(0) }
    }

    /// What to answer a statement that has changed `n_changed` rows, and found one with `revision` in its column of this name.
    fn judge(self, n_changed: u64, found: Option<i64>) -> Result<(), CommitError> {
        match self {
            Self::OneChange(refusal) | Self::OneChangeOnly { outdated: refusal, .. }
                if n_changed != 1 =>
            {
                Err(refusal)
            }
            Self::NoRow(refusal) if found.is_some() => Err(refusal),
            Self::Revision(revision, refusal) if found.unwrap_or(0) != revision => Err(refusal),
            _ => Ok(()),
        }
    }

    fn failed(self, error: sqlx::Error) -> Failure {
        let is_taken =
            error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation);
        match self {
            Self::OneChangeOnly { taken, .. } if is_taken => Failure::Refused(taken),
            _ => error.into(),
        }
    }
}

/// Statements that were added and not run yet.
#[derive(Default)]
pub(super) struct Batch {
    sql: String,
    arguments: SqliteArguments,
    wanted: Vec<Wanted>,
    /// The first value that has no form in the database.
    unencodable: Option<sqlx::Error>,
}

impl Batch {
    /// Adds a statement, whose parameters `$1` … are bound next.
    pub(super) fn add(&mut self, sql: &str, wanted: Wanted) -> &mut Self {
        let n_bound = self.arguments.len();
        let mut parts = sql.split('$');
        self.sql.push_str(parts.next().unwrap_or_default());
        for part in parts {
            // The parameters of all statements are counted through.
            let n_digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(n_digits);
            let number: usize = number.parse().expect("a dollar is that of a parameter");
            let _ = write!(self.sql, "${}{rest}", n_bound + number);
        }
        self.sql.push(';');
        self.wanted.push(wanted);
        self
    }

    /// Whether it is to be run before more is added.
    pub(super) const fn is_full(&self) -> bool {
        self.wanted.len() >= MAX_STATEMENTS
    }

    /// Runs what was added, and is empty then. Not cancel-safe: what of it was run is unknown then.
    pub(super) async fn run(&mut self, connection: &mut SqliteConnection) -> Result<(), Failure> {
        let Self { sql, arguments, wanted, unencodable } = std::mem::take(self);
        if let Some(error) = unencodable {
            return Err(error.into());
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let query =
            sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(wanted.len() <= MAX_KEPT);
        let mut results = connection.fetch_many(query);
        let mut verdict = Ok(());
        // Read to the end in any case: a statement that is given up has an unknown end.
        for wanted in wanted {
            let mut found = None;
            let n_changed = loop {
                match results.next().await {
                    Some(Ok(Either::Right(row))) => found = Some(wanted.found(&row)?),
                    Some(Ok(Either::Left(done))) => break done.rows_affected(),
                    Some(Err(error)) => {
                        // What went before may be the cause.
                        verdict.map_err(Failure::Refused)?;
                        return Err(wanted.failed(error));
                    }
                    None => return Err(Failure::Broken(sqlx::Error::WorkerCrashed)),
                }
            };
            verdict = verdict.and(wanted.judge(n_changed, found));
        }
        verdict.map_err(Failure::Refused)
    }
}

impl Binds for &mut Batch {
    fn bind<'t, T: Value<'t>>(self, value: T) -> Self {
        if let Err(error) = self.arguments.add(value) {
            self.unencodable.get_or_insert(sqlx::Error::Encode(error));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Connection as _;

    use super::*;

    fn refusal(what: &'static str) -> CommitError {
        CommitError::Outdated { what, id: String::new() }
    }

    async fn database() -> SqliteConnection {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let mut batch = Batch::default();
        batch.add(
            "CREATE TABLE t (id TEXT PRIMARY KEY, revision INTEGER, mark INTEGER UNIQUE)",
            Wanted::Anything,
        );
        batch
            .add("INSERT INTO t (id, revision) VALUES ($1, $2)", Wanted::Anything)
            .bind("a")
            .bind(3);
        assert!(batch.run(&mut connection).await.is_ok());
        connection
    }

    /// What is refused of a batch of two, of which the second is to come to nothing with the first.
    async fn refused(sql: &str, wanted: Wanted, id: &str) -> Option<String> {
        let mut connection = database().await;
        let mut batch = Batch::default();
        batch.add(sql, wanted).bind(id);
        batch.add(
            "UPDATE t SET revision = $1 + 1 WHERE id = $2 AND revision = $1",
            Wanted::OneChange(refusal("row")),
        );
        batch.bind(3).bind("a");
        match batch.run(&mut connection).await {
            Ok(()) => None,
            Err(Failure::Refused(error)) => Some(error.to_string()),
            Err(Failure::Broken(error)) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn the_first_that_finds_something_else_refuses_all() {
        let select = "SELECT revision FROM t WHERE id = $1";
        assert_eq!(refused(select, Wanted::Revision(3, refusal("first")), "a").await, None);
        assert_eq!(refused(select, Wanted::Revision(0, refusal("first")), "b").await, None);
        assert_eq!(refused(select, Wanted::NoRow(refusal("first")), "b").await, None);
        let first = Some("first `` has changed meanwhile".to_owned());
        assert_eq!(refused(select, Wanted::Revision(2, refusal("first")), "a").await, first);
        assert_eq!(refused(select, Wanted::Revision(3, refusal("first")), "b").await, first);
        assert_eq!(refused(select, Wanted::NoRow(refusal("first")), "a").await, first);
        let delete = "DELETE FROM t WHERE id = $1";
        assert_eq!(refused(delete, Wanted::OneChange(refusal("first")), "b").await, first);
        let second = Some("row `` has changed meanwhile".to_owned());
        assert_eq!(refused(delete, Wanted::OneChange(refusal("first")), "a").await, second);
    }

    #[tokio::test]
    async fn what_went_before_is_told_rather_than_what_it_led_to() {
        let mut connection = database().await;
        let mut batch = Batch::default();
        batch
            .add("SELECT revision FROM t WHERE id = $1", Wanted::NoRow(refusal("first")))
            .bind("a");
        batch.add("INSERT INTO t (id) VALUES ($1)", Wanted::Anything).bind("a");
        let made = batch.run(&mut connection).await;
        assert!(matches!(made, Err(Failure::Refused(CommitError::Outdated { what: "first", .. }))));
    }

    #[tokio::test]
    async fn many_statements_are_run_as_well() {
        let mut connection = database().await;
        let mut batch = Batch::default();
        let mut sum = 0;
        while !batch.is_full() {
            sum += 2;
            batch.add(
                "UPDATE t SET mark = coalesce(mark, 0) + $1 WHERE id = $2",
                Wanted::OneChange(refusal("row")),
            );
            batch.bind(2).bind("a");
        }
        assert!(batch.run(&mut connection).await.is_ok());
        batch.add("SELECT mark AS revision FROM t", Wanted::Revision(sum, refusal("sum")));
        assert!(batch.run(&mut connection).await.is_ok());
    }

    #[tokio::test]
    async fn what_only_one_may_have_is_told_from_what_has_changed() {
        let mut connection = database().await;
        let insert = "INSERT INTO t (id, mark) VALUES ($1, 1) ON CONFLICT (id) DO NOTHING";
        let wanted = || Wanted::OneChangeOnly { outdated: refusal("row"), taken: refusal("mark") };
        let mut told = Vec::new();
        for id in ["b", "b", "c"] {
            let mut batch = Batch::default();
            batch.add(insert, wanted()).bind(id);
            told.push(match batch.run(&mut connection).await {
                Ok(()) => "made",
                Err(Failure::Refused(CommitError::Outdated { what, .. })) => what,
                Err(_) => "broken",
            });
        }
        assert_eq!(told, ["made", "row", "mark"]);
    }
}
