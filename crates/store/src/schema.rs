//! The migrations of the schema, and how they are applied.
//!
//! The table `_sqlx_migrations` keeps the format of the library that wrote it first, so a program
//! of any version knows which migrations a database has.

mod difference;

use std::ops::RangeBounds;

use rusqlite::{Connection, Transaction, TransactionBehavior, params_from_iter};
use sha2::{Digest as _, Sha384};

pub(super) use self::difference::first_difference;
use super::project_keys::{self, Migrating};

/// One change of the schema. A released migration is never edited, because databases have its
/// checksum.
pub(super) struct Migration {
    pub(super) version: i64,
    pub(super) description: &'static str,
    pub(super) sql: &'static str,
}

/// A migration that a database has.
pub(super) struct Applied {
    pub(super) version: i64,
    pub(super) is_complete: bool,
    pub(super) checksum: Vec<u8>,
}

/// The reason why the schema cannot be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error("a statement failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the journal mode stays `{mode}`")]
    NoLog { mode: String },
    #[error(transparent)]
    Migrations(#[from] MigrationError),
}

/// A migration that a database has, and that does not fit those of this program.
#[derive(Debug, thiserror::Error)]
pub(super) enum MigrationError {
    #[error("migration {version} was applied with another text than this program has")]
    Edited { version: i64 },
    #[error("migration {version} was not completed; restore a copy from before it")]
    Incomplete { version: i64 },
    #[error("migration {version} was applied, and this program does not have it")]
    Unknown { version: i64 },
}

/// The migration whose columns the program fills in.
const SHORT_IDS: i64 = 12;

/// All migrations, the oldest first.
pub(super) const MIGRATIONS: &[Migration] = &[
    migration(1, "coordination", include_str!("migrations/0001_coordination.sql")),
    migration(2, "output tails", include_str!("migrations/0002_output_tails.sql")),
    migration(3, "contract", include_str!("migrations/0003_contract.sql")),
    migration(4, "activities", include_str!("migrations/0004_activities.sql")),
    migration(5, "start limit", include_str!("migrations/0005_start_limit.sql")),
    migration(6, "accounts", include_str!("migrations/0006_accounts.sql")),
    migration(7, "credentials", include_str!("migrations/0007_credentials.sql")),
    migration(8, "history", include_str!("migrations/0008_history.sql")),
    migration(9, "forge_items", include_str!("migrations/0009_forge_items.sql")),
    migration(10, "ended chats", include_str!("migrations/0010_ended_chats.sql")),
    migration(11, "creations", include_str!("migrations/0011_creations.sql")),
    migration(SHORT_IDS, "short ids", include_str!("migrations/0012_short_ids.sql")),
    migration(13, "workspaces", include_str!("migrations/0013_workspaces.sql")),
    migration(14, "order of starts", include_str!("migrations/0014_order_of_starts.sql")),
    migration(15, "checks", include_str!("migrations/0015_checks.sql")),
    migration(16, "forever", include_str!("migrations/0016_forever.sql")),
    migration(17, "publication", include_str!("migrations/0017_publication.sql")),
    migration(18, "workspace settings", include_str!("migrations/0018_workspace_settings.sql")),
    migration(19, "attention", include_str!("migrations/0019_attention.sql")),
    migration(20, "authors", include_str!("migrations/0020_authors.sql")),
    migration(21, "samples", include_str!("migrations/0021_samples.sql")),
    migration(22, "removals", include_str!("migrations/0022_removals.sql")),
    migration(23, "archived from", include_str!("migrations/0023_archived_from.sql")),
    migration(24, "comments", include_str!("migrations/0024_comments.sql")),
    migration(25, "stops", include_str!("migrations/0025_stops.sql")),
    migration(26, "merge hooks", include_str!("migrations/0026_merge_hooks.sql")),
    migration(27, "begun writes", include_str!("migrations/0027_begun_writes.sql")),
    migration(28, "creation digests", include_str!("migrations/0028_creation_digests.sql")),
    migration(29, "no samples", include_str!("migrations/0029_no_samples.sql")),
    migration(30, "pause file", include_str!("migrations/0030_pause_file.sql")),
    migration(31, "final deletions", include_str!("migrations/0031_final_deletions.sql")),
    migration(32, "launch spend", include_str!("migrations/0032_launch_spend.sql")),
    migration(33, "conversations", include_str!("migrations/0033_conversations.sql")),
];

const fn migration(version: i64, description: &'static str, sql: &'static str) -> Migration {
    Migration { version, description, sql }
}

impl Migration {
    pub(super) fn checksum(&self) -> Vec<u8> {
        Sha384::digest(self.sql.as_bytes()).to_vec()
    }

    /// Does what the SQL of the migration cannot do, after it.
    ///
    /// # Errors
    /// A failed statement.
    pub(super) fn fill<D: Migrating>(&self, db: &mut D) -> Result<(), D::Error> {
        if self.version == SHORT_IDS { project_keys::fill(db) } else { Ok(()) }
    }
}

/// The newest version that this program knows.
pub(super) fn newest_version() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// Creates the table of the applied migrations.
pub(super) const APPLIED: &str = "\
    CREATE TABLE IF NOT EXISTS _sqlx_migrations (
        version BIGINT PRIMARY KEY,
        description TEXT NOT NULL,
        installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        success BOOLEAN NOT NULL,
        checksum BLOB NOT NULL,
        execution_time BIGINT NOT NULL
    )";

/// Returns the migrations that a database does not have, the oldest first.
///
/// # Errors
/// An applied migration that this program does not have, or has with another text.
pub(super) fn missing(
    applied: &[Applied],
) -> Result<impl Iterator<Item = &'static Migration>, MigrationError> {
    for Applied { version, is_complete, checksum } in applied {
        let version = *version;
        match MIGRATIONS.iter().find(|migration| migration.version == version) {
            None => return Err(MigrationError::Unknown { version }),
            Some(_) if !is_complete => return Err(MigrationError::Incomplete { version }),
            Some(known) if known.checksum() != *checksum => {
                return Err(MigrationError::Edited { version });
            }
            Some(_) => {}
        }
    }
    let is_missing =
        |migration: &&Migration| applied.iter().all(|known| known.version != migration.version);
    Ok(MIGRATIONS.iter().filter(is_missing))
}

/// Returns the first version that an SQLite database does not have, or `None` if it is up to date.
///
/// # Errors
/// The errors of [`missing`].
pub(super) fn first_missing(connection: &Connection) -> Result<Option<i64>, SchemaError> {
    let exists = "SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'";
    let mut applied = Vec::new();
    if connection.prepare(exists)?.exists([])? {
        let sql = "SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version";
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            applied.push(Applied {
                version: row.get(0)?,
                is_complete: row.get(1)?,
                checksum: row.get(2)?,
            });
        }
    }
    let first = missing(&applied)?.map(|migration| migration.version).next();
    Ok(first)
}

/// Applies the migrations of these versions to an SQLite database, each in a transaction of its
/// own.
///
/// # Errors
/// A failed statement. The migrations before it stay applied.
pub(super) fn apply(
    connection: &mut Connection,
    versions: impl RangeBounds<i64>,
) -> Result<(), SchemaError> {
    connection.execute_batch(APPLIED)?;
    for migration in MIGRATIONS.iter().filter(|migration| versions.contains(&migration.version)) {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(migration.sql)?;
        migration.fill(&mut &tx)?;
        let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
            VALUES (?1, ?2, TRUE, ?3, -1)";
        tx.execute(sql, (migration.version, migration.description, migration.checksum()))?;
        tx.commit()?;
    }
    Ok(())
}

impl Migrating for &Transaction<'_> {
    type Error = rusqlite::Error;

    fn pairs(&mut self, sql: &str) -> Result<Vec<(String, String)>, rusqlite::Error> {
        let mut statement = self.prepare(sql)?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    fn run(&mut self, sql: &str, args: &[&str]) -> Result<(), rusqlite::Error> {
        self.execute(sql, params_from_iter(args)).map(drop)
    }
}

/// Returns statements of the schema as PostgreSQL knows them. Texts are in the order of their bytes,
/// as in SQLite: lists are read page by page in that order.
pub(super) fn for_postgres(sql: &str) -> String {
    sql.replace(" TEXT", " TEXT COLLATE \"C\"")
        .replace(
            "INTEGER PRIMARY KEY AUTOINCREMENT",
            "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        )
        .replace(" BLOB", " BYTEA")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a database of schema 28 after a project was deleted, while that can be undone.
    const DELETED_28: &str = include_str!("../../../tests/fixtures/store/deletion_28.sql");
    /// Questions with the rows of their answers after the upgrade.
    const ANSWERS_31: &str = include_str!("../../../tests/fixtures/store/deletion_28.expected");

    /// Launches and work of schema 31 with usage.
    const USAGE_31: &str = include_str!("../../../tests/fixtures/store/usage_31.sql");
    /// Questions with the rows of their answers after the upgrade.
    const ANSWERS_32: &str = include_str!("../../../tests/fixtures/store/usage_31.expected");
    /// The tables that have usage columns in schema 31, and those columns.
    const WITH_USAGE: [&str; 2] = ["launches", "executions"];
    const OF_USAGE: &str = "SUM(input_tokens) || ' ' || SUM(output_tokens) || ' ' || \
        SUM(cache_read_tokens) || ' ' || SUM(cache_write_tokens) || ' ' || SUM(cost_usd_micros)";

    #[track_caller]
    fn check_answers(connection: &Connection, answers: &str) {
        for answer in answers.split("\n\n") {
            let (sql, rows) = answer.split_once('\n').unwrap();
            assert_eq!(texts(connection, sql), rows.lines().collect::<Vec<_>>(), "{sql}");
        }
    }

    fn texts(connection: &Connection, sql: &str) -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn a_deletion_that_waits_for_its_undo_is_finished_and_nothing_else_goes() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, ..=28).unwrap();
        connection.execute_batch(DELETED_28).unwrap();
        apply(&mut connection, 29..=31).unwrap();
        check_answers(&connection, ANSWERS_31);
        assert!(connection.prepare("SELECT 1 FROM deletions").is_err());
        assert!(connection.prepare("SELECT 1 FROM samples").is_err());
    }

    #[test]
    fn an_upgrade_loses_no_usage_and_leaves_no_other_copy() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, ..=31).unwrap();
        connection.execute_batch(USAGE_31).unwrap();
        let sums = |connection: &Connection, responses, tables: &str| {
            let sql = format!("SELECT {OF_USAGE} || ' ' || SUM({responses}) FROM {tables}");
            texts(connection, &sql)
        };
        let of_launches = sums(&connection, "turns", "launches");
        assert_eq!(of_launches, ["1 3 12 4 5 13"]);
        let of_work = sums(&connection, "turns", "executions");
        apply(&mut connection, 32..=32).unwrap();
        check_answers(&connection, ANSWERS_32);
        let joined = "launch_spend AS s JOIN launches AS l ON l.id = s.launch_id";
        assert_eq!(sums(&connection, "responses", joined), of_launches);
        let joined = "launch_spend AS s JOIN executions AS e ON e.launch_id = s.launch_id";
        assert_eq!(sums(&connection, "responses", joined), of_work);
        for table in WITH_USAGE {
            for column in ["input_tokens", "cost_usd_micros", "turns"] {
                assert!(connection.prepare(&format!("SELECT {column} FROM {table}")).is_err());
            }
        }
    }
}
