//! Compares the schema of an SQLite database with the schema that the migrations make.
//!
//! A database that another person made may have objects that this program does not know, such as a
//! trigger that changes rows. `open` asks this module before it accepts such a file.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::{SchemaError, apply, first_missing, newest_version};
use crate::backup;
use domain::printable::one_line;

/// The tables that a database of ours may have in addition: the origin of a backup, and what SQLite
/// makes when a person runs `ANALYZE`.
const OPTIONAL: [(&str, &str); 3] = [
    (backup::ORIGIN, backup::ORIGIN_TABLE),
    ("sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
];

/// The number of characters of a name or of a line of SQL that a message repeats.
const LONGEST_SHOWN: usize = 120;

/// The first object of a database that differs from the schema of its version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Difference {
    #[error(
        "it has the {kind} `{name}`, which schema {version} does not have; `DROP {}` removes it",
        .kind.to_uppercase()
    )]
    Foreign { kind: String, name: String, version: i64 },
    #[error("it does not have the {kind} `{name}` of schema {version}")]
    Missing { kind: String, name: String, version: i64 },
    #[error(
        "its {kind} `{name}` differs from schema {version}: expected `{expected}`, found `{found}`"
    )]
    Changed { kind: String, name: String, version: i64, expected: String, found: String },
}

/// An object's type and name, and the lines of its SQL with the table that it belongs to. An
/// automatic index has no SQL.
type Object = ((String, String), Vec<String>);

/// Returns the first object that a database of ours would not have, would have, or would have with
/// other SQL. A database with an older schema is compared with the schema of that version.
///
/// # Errors
/// A migration that this program does not have, and a failed statement.
pub(crate) fn first_difference(connection: &Connection) -> Result<Option<Difference>, SchemaError> {
    let version = first_missing(connection)?.map_or_else(newest_version, |first| first - 1);
    let mut made = Connection::open_in_memory()?;
    apply(&mut made, ..=version)?;
    let mut expected: BTreeMap<_, _> = objects(&made)?.into_iter().collect();
    expected.extend(OPTIONAL.map(|(name, sql)| object("table".to_owned(), name, name, Some(sql))));
    for ((kind, name), found) in objects(connection)? {
        // An object that SQLite lists twice is foreign the second time.
        let known = expected.remove(&(kind.clone(), name.clone()));
        if known.as_ref() == Some(&found) {
            continue;
        }
        let name = one_line(&name, LONGEST_SHOWN);
        let Some(known) = known else {
            return Ok(Some(Difference::Foreign { kind, name, version }));
        };
        let n_same = known.iter().zip(&found).take_while(|(known, found)| known == found).count();
        let line = |lines: &[String]| {
            lines.get(n_same).map_or_else(String::new, |line| one_line(line, LONGEST_SHOWN))
        };
        let expected = line(&known);
        let found = line(&found);
        return Ok(Some(Difference::Changed { kind, name, version, expected, found }));
    }
    let is_optional = |name: &str| OPTIONAL.iter().any(|(optional, _)| *optional == name);
    let missing = expected.into_keys().find(|(_, name)| !is_optional(name));
    Ok(missing.map(|(kind, name)| Difference::Missing { kind, name, version }))
}

/// Returns all objects of a schema, in the order of their types and names.
fn objects(connection: &Connection) -> rusqlite::Result<Vec<Object>> {
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let name: String = row.get(1)?;
        let table: String = row.get(2)?;
        let sql: Option<String> = row.get(3)?;
        Ok(object(row.get(0)?, &name, &table, sql.as_deref()))
    })?;
    rows.collect()
}

/// Makes an object. The library that wrote the first databases indented its SQL in another way, so
/// the blanks around a line do not count. Line ends do, because a comment ends there.
fn object(kind: String, name: &str, table: &str, sql: Option<&str>) -> Object {
    let lines = sql.unwrap_or_default().lines().map(|line| line.trim().to_owned());
    let of_table = format!("of the table {table}");
    ((kind, name.to_owned()), lines.chain([of_table]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(version: i64) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, ..=version).unwrap();
        connection
    }

    #[test]
    fn the_schema_of_each_version_is_accepted() {
        for version in 1..=newest_version() {
            let database = database(version);
            assert!(first_difference(&database).unwrap().is_none(), "{version}");
            database.execute_batch(&format!("{}; ANALYZE", backup::ORIGIN_TABLE)).unwrap();
            assert!(first_difference(&database).unwrap().is_none(), "{version}");
        }
    }

    #[test]
    fn the_first_object_that_differs_is_named() {
        let newest = newest_version();
        for (version, sql, expected) in [
            (
                newest,
                "CREATE TRIGGER move AFTER INSERT ON tasks BEGIN DELETE FROM agents; END",
                format!(
                    "it has the trigger `move`, which schema {newest} does not have; \
                     `DROP TRIGGER` removes it"
                ),
            ),
            (12, "CREATE VIEW workspaces AS SELECT 1 AS id", "the view `workspaces`".to_owned()),
            (newest, "CREATE TABLE other (id TEXT)", "the table `other`".to_owned()),
            (newest, "CREATE VIRTUAL TABLE v USING fts5 (x)", "the table `v`".to_owned()),
            (newest, "CREATE INDEX other ON tasks (title)", "the index `other`".to_owned()),
            (
                newest,
                "DROP INDEX tasks_of_parent",
                format!("it does not have the index `tasks_of_parent` of schema {newest}"),
            ),
            (
                newest,
                "DROP INDEX tasks_of_parent; CREATE INDEX tasks_of_parent ON tasks (title)",
                "expected `CREATE INDEX tasks_of_parent ON tasks (parent_id)`, found \
                 `CREATE INDEX tasks_of_parent ON tasks (title)`"
                    .to_owned(),
            ),
            (
                newest,
                "ALTER TABLE agents ADD COLUMN other TEXT",
                "its table `agents` differs from".to_owned(),
            ),
            (
                newest,
                "CREATE TABLE backup_origin (place TEXT DEFAULT (random()))",
                "its table `backup_origin` differs from".to_owned(),
            ),
            (newest, "DROP TABLE checks", "does not have the index".to_owned()),
        ] {
            let database = database(version);
            database.execute_batch(sql).unwrap();
            let found = first_difference(&database).unwrap().expect(sql).to_string();
            assert!(found.contains(&expected), "{sql}: {found}");
        }
    }
}
