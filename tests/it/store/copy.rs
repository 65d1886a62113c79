//! A copy of a database into another one, on both engines.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use domain::event::NewEvent;
use rusqlite::{Connection, OpenFlags};
use store::copy::{self, CopiedTable, CopyError, Progress};
use store::postgres::open as postgres_open;
use store::rows::{Store, events, messages};
use store::{OpenErrorKind, Settings, StoreError, open};

use super::everything::everything;
use super::old::WRITTEN;
use super::postgres::options;
use super::rows::{at, message};
use crate::postgres::{Database, database};
use crate::rows::{Row, write};

/// The next numbers of events and messages in [`filled`].
const NEXT: (i64, i64) = (41, 10);

fn sqlite(path: &Path) -> copy::Database {
    copy::Database::Sqlite(path.to_owned())
}

fn postgres(database: &Database<'_>) -> copy::Database {
    copy::Database::Postgres(Box::new(database.parsed_url()))
}

fn copied(from: &copy::Database, to: &copy::Database) -> Result<Vec<CopiedTable>, CopyError> {
    copy::copy(from, to, &mut |_| {})
}

/// Copies on a thread that may block.
async fn copied_aside(
    from: copy::Database,
    to: copy::Database,
) -> Result<Vec<CopiedTable>, CopyError> {
    tokio::task::spawn_blocking(move || copied(&from, &to)).await.unwrap()
}

#[track_caller]
fn refused(from: &copy::Database, to: &copy::Database) -> String {
    let error = copied(from, to).unwrap_err();
    let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn run(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Makes a database with the newest schema and rows in each table. Rows with greater numbers were
/// deleted.
fn filled(folder: &Path) -> PathBuf {
    let path = folder.join("filled.db");
    run(&path, WRITTEN);
    let engine = open::file(&path, Settings::default()).unwrap();
    futures::executor::block_on(engine.close());
    run(
        &path,
        "INSERT INTO pauses (since) VALUES (7);
         INSERT INTO workspaces (id, project_id, task_id, state, branch, subdirectory, content, created_at, revision)
             VALUES ('w', 'p', 't', 'ready', 'agents/p-1', '', '{\"n_commits\":1}', 5, 2),
                 ('W', 'p', 'u', 'wanted', 'agents/p-2', 'a b', NULL, 6, 1);
         INSERT INTO checks (id, task_id, launch_id, round, name, commit_id, result, exit_code, duration_ms, output, started_at, revision)
             VALUES ('c', 't', 'l1', 1, 'tests', 'c0ffee', 'failed', 3, 1500, 'an é', 7, 2),
                 ('C', 'u', NULL, 2, 'uncommitted files', NULL, 'failed', NULL, NULL, '', 8, 1);
         INSERT INTO conversations (id, task_id, agent_id, coordinator_id, cli_session, account, model, directory, workspace_id, has_begun, last_launch_id, n_unhelpful, opened_at, last_used_at, closed_because, closed_at, revision)
             VALUES ('v', 't', 'a', 'crd', 's', 'claude', 'opus', '/é', 'w', TRUE, 'l1', 1, 7, 8, 'asked', 9, 2),
                 ('V', 't', 'a', 'crd', 'S', 'claude', NULL, '/p', NULL, FALSE, NULL, 0, 9, 9, NULL, NULL, 1);
         UPDATE sqlite_sequence SET seq = 40 WHERE name = 'events';
         UPDATE sqlite_sequence SET seq = 9 WHERE name = 'messages';
         INSERT INTO comments (id, task_id, author, content, created_at) VALUES
             ('cmt_1', 't', 'é日本', 'two\nlines', 5), ('cmt_2', 't', NULL, 'x', 6);
         INSERT INTO deleted_names (kind, object_id, short_id, name) VALUES
             ('task', 't_gone', 'P-9', 'é日本'), ('agent', 'a_gone', NULL, 'Ann');
         INSERT INTO creation_digests (kind, object_id, digest) VALUES
             ('task', 't', '{}'), ('agent', 't', '{}');
         INSERT INTO attention_marks (item, person, until, marked_at) VALUES
             ('att_1', 'ann', 5, 1), ('att_1', 'é日本', NULL, 2), ('att_B', 'ann', NULL, 3);
         INSERT INTO output_tails (launch_id, tail) VALUES
             ('unusual', 'é日本 \u{1f980} '' \" \\ ? $1'), ('B', ''), ('a', 'x'), ('_', 'x')",
    );
    path
}

/// Returns the cells of each table of a file.
fn dump(path: &Path) -> BTreeMap<String, Vec<String>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let tables = texts("SELECT name FROM sqlite_schema WHERE type = 'table'");
    let of_table = |table: String| {
        let columns = texts(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let cells: Vec<String> = columns.iter().map(|name| format!("quote({name})")).collect();
        let cells = cells.join(" || ',' || ");
        let rows = texts(&format!("SELECT {cells} AS row FROM {table} ORDER BY row"));
        (table, rows)
    };
    tables.into_iter().filter(|table| table != "_sqlx_migrations").map(of_table).collect()
}

fn n_rows(path: &Path) -> usize {
    dump(path).values().map(Vec::len).sum()
}

/// Returns the number of rows in all tables that a copy takes.
fn n_rows_of(database: &Database<'_>) -> u64 {
    let tables = database.run_sql(
        "SELECT relname FROM pg_stat_user_tables \
         WHERE relname NOT IN ('_sqlx_migrations', 'servers', 'writer')",
    );
    let counts: Vec<String> =
        tables.lines().map(|table| format!("(SELECT COUNT(*) FROM {table})")).collect();
    assert!(counts.len() > 10, "{tables}");
    database.run_sql(&format!("SELECT {}", counts.join(" + "))).parse().unwrap()
}

/// Adds an event and a message, and returns their numbers.
async fn next_numbers(store: &Store) -> (i64, i64) {
    let (kind, detail) = ("thing.happened", None);
    let (agent, project, launch, task) = (None, None, None, None);
    let event = NewEvent { at: at(9), kind, agent, project, launch, task, detail };
    write(store, vec![Row::Event(event), Row::Message(message("m_next", "a", "p"))]).await.unwrap();
    let numbers = store.read(|tx| Ok::<_, StoreError>((events::span(tx)?, messages::newest(tx)?)));
    let (span, message) = numbers.await.unwrap();
    (span.newest, message)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_cells_are_equal_after_a_copy_to_postgresql_and_back() {
    let Some(database) = tokio::task::spawn_blocking(database).await.unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (filled(folder.path()), folder.path().join("back.db"));
    let before = dump(&source);
    let empty: Vec<_> = before.iter().filter(|(_, rows)| rows.is_empty()).collect();
    assert!(empty.is_empty(), "add rows of these tables to the fixture: {empty:?}");
    let bytes = fs::read(&source).unwrap();

    let there = copied_aside(sqlite(&source), postgres(&database)).await.unwrap();
    assert_eq!(fs::read(&source).unwrap(), bytes);
    let names: Vec<&str> = there.iter().map(|table| table.name.as_str()).collect();
    let all: Vec<&str> =
        before.keys().map(String::as_str).filter(|name| *name != "sqlite_sequence").collect();
    assert_eq!(names, all);
    for table in &there {
        assert_eq!(table.n_rows, before[&table.name].len() as u64, "{table:?}");
    }
    assert_eq!(copied_aside(postgres(&database), sqlite(&back)).await.unwrap(), there);
    assert_eq!(dump(&back), before);

    let options = options("after the copy");
    let on_postgres = Store::connect(database.parsed_url(), options).await.unwrap();
    let (first, last) = (Store::open(&source).await.unwrap(), Store::open(&back).await.unwrap());
    let expected = everything(&first).await;
    assert_eq!(everything(&on_postgres).await, expected);
    assert_eq!(everything(&last).await, expected);
    for store in [first, on_postgres, last] {
        assert_eq!(next_numbers(&store).await, NEXT);
        store.close().await;
    }
}

#[test]
fn a_file_is_copied_to_another_file_and_each_table_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (filled(folder.path()), folder.path().join("target.db"));
    // Several batches, and one that is not full.
    run(
        &source,
        "WITH RECURSIVE numbers (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM numbers LIMIT 150)
         INSERT INTO events (seq, at, kind) SELECT n, n, 'thing.happened' FROM numbers",
    );
    let mut reports = Vec::new();
    let tables = copy::copy(&sqlite(&source), &sqlite(&target), &mut |progress| {
        let Progress { table, n_rows, is_done } = progress;
        reports.push((table.to_owned(), n_rows, is_done));
    });
    let tables = tables.unwrap();
    assert_eq!(dump(&target), dump(&source));
    let of_events: Vec<_> = reports.iter().filter(|(table, ..)| table == "events").collect();
    let numbers: Vec<_> =
        of_events.iter().map(|(_, n_rows, is_done)| (*n_rows, *is_done)).collect();
    assert_eq!(numbers, [(64, false), (128, false), (151, true)]);
    let done: Vec<_> = reports.iter().filter(|(.., is_done)| *is_done).collect();
    assert_eq!(done.len(), tables.len());
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&target).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_database_that_was_restored_without_its_counters_goes_on_after_its_newest_row() {
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (filled(folder.path()), folder.path().join("target.db"));
    copied(&sqlite(&source), &postgres(&database)).unwrap();
    database.run_sql("ALTER TABLE messages ALTER COLUMN seq RESTART WITH 1");
    copied(&postgres(&database), &sqlite(&target)).unwrap();
    let counters = dump(&target).remove("sqlite_sequence").unwrap();
    assert_eq!(counters, ["'events',40", "'messages',5"]);
}

#[test]
fn a_source_that_cannot_be_copied_is_named_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let target = sqlite(&file("target.db"));
    let missing = refused(&sqlite(&file("none.db")), &target);
    assert!(missing.contains("there is no database") && missing.contains("none.db"), "{missing}");
    assert!(!file("none.db").exists());

    fs::write(file("empty.db"), "").unwrap();
    let empty = refused(&sqlite(&file("empty.db")), &target);
    assert!(empty.contains("is empty, so there is nothing to copy"), "{empty}");

    run(&file("foreign.db"), "CREATE TABLE accounts_of_another_program (id TEXT)");
    let foreign = refused(&sqlite(&file("foreign.db")), &target);
    assert!(foreign.contains("another program"), "{foreign}");

    run(&file("older.db"), WRITTEN);
    let bytes = fs::read(file("older.db")).unwrap();
    let older = refused(&sqlite(&file("older.db")), &target);
    assert!(older.contains("schema 10") && older.contains("start the daemon"), "{older}");
    assert_eq!(fs::read(file("older.db")).unwrap(), bytes);

    let newer = filled(folder.path());
    run(&newer, "UPDATE _sqlx_migrations SET version = 999 WHERE version = 11");
    match copied(&sqlite(&newer), &target) {
        Err(CopyError::Sqlite(error)) => {
            assert!(matches!(error.kind, OpenErrorKind::Newer { found: 999, .. }), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!file("target.db").exists());
}

#[test]
fn a_postgresql_source_that_cannot_be_copied_is_named_and_left_as_it_is() {
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().unwrap();
    let target = sqlite(&folder.path().join("target.db"));
    let empty = refused(&postgres(&database), &target);
    assert!(empty.contains("is empty, so there is nothing to copy"), "{empty}");

    let server = postgres_open::database(&database.parsed_url(), options("a server")).unwrap();
    let used = refused(&postgres(&database), &target);
    assert!(used.contains("is used by another server, `a server`"), "{used}");
    let used = refused(&sqlite(&filled(folder.path())), &postgres(&database));
    assert!(used.contains("is used by another server, `a server`"), "{used}");
    futures::executor::block_on(server.close());

    database.run_sql("DELETE FROM _sqlx_migrations WHERE version > 8");
    let older = refused(&postgres(&database), &target);
    assert!(older.contains("schema 8") && older.contains("start the daemon"), "{older}");
    assert_eq!(database.run_sql("SELECT MAX(version) FROM _sqlx_migrations"), "8");
    database.run_sql("DROP TABLE _sqlx_migrations");
    let foreign = refused(&postgres(&database), &target);
    assert!(foreign.contains("another program"), "{foreign}");
    assert!(!folder.path().join("target.db").exists());
}

#[test]
fn a_target_with_rows_is_refused_with_their_tables_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (source, used) = (filled(folder.path()), folder.path().join("used.db"));
    // The rows are found before the schema of the target is brought up to date.
    run(&used, WRITTEN);
    let bytes = fs::read(&used).unwrap();
    let error = refused(&sqlite(&source), &sqlite(&used));
    assert!(error.contains("not empty (`accounts` has 1 row, `agents` has 3 rows"), "{error}");
    assert!(error.contains("used.db") && error.contains("name an empty database"), "{error}");
    assert_eq!(fs::read(&used).unwrap(), bytes);

    let Some(database) = database() else { return };
    copied(&sqlite(&source), &postgres(&database)).unwrap();
    database.run_sql("DELETE FROM agents");
    let n_before = n_rows_of(&database);
    let error = refused(&sqlite(&source), &postgres(&database));
    assert!(error.contains("`accounts` has 1 row, `assignments` has 4 rows"), "{error}");
    assert_eq!(n_rows_of(&database), n_before);
}

#[test]
fn a_target_without_rows_gets_the_newest_schema_first() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (filled(folder.path()), folder.path().join("target.db"));
    run(&target, WRITTEN);
    for table in dump(&target).keys() {
        run(&target, &format!("DELETE FROM {table}"));
    }
    assert_eq!(n_rows(&target), 0);
    copied(&sqlite(&source), &sqlite(&target)).unwrap();
    assert_eq!(dump(&target), dump(&source));
}

#[test]
fn a_copy_that_fails_in_the_middle_leaves_the_target_empty() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (filled(folder.path()), folder.path().join("target.db"));
    // Tables are copied in the order of their names, and this is the last one.
    run(&source, "UPDATE tasks SET created_at = 'soon' WHERE id = 'u'");
    let error = refused(&sqlite(&source), &sqlite(&target));
    for part in
        ["the row `u` of `tasks`", "column `created_at`", "found a text", "nothing was copied"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(n_rows(&target), 0);

    run(&source, "UPDATE tasks SET created_at = 1 WHERE id = 'u'");
    // The target has a unique index that the source lacks.
    run(
        &source,
        "DROP INDEX launches_open; UPDATE launches SET state = 'running', agent_id = 'a',
             project_id = 'p', purpose = 'tasks'",
    );
    let error = refused(&sqlite(&source), &sqlite(&target));
    assert!(
        error.contains("could not write the table `launches`") && error.contains("UNIQUE"),
        "{error}"
    );
    assert_eq!(n_rows(&target), 0);
}

#[test]
fn a_target_with_another_schema_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (filled(folder.path()), folder.path().join("target.db"));
    futures::executor::block_on(open::file(&target, Settings::default()).unwrap().close());
    run(
        &target,
        "CREATE TRIGGER change AFTER INSERT ON tasks
         BEGIN UPDATE tasks SET title = 'another one' WHERE id = 'u'; END",
    );
    let bytes = fs::read(&target).unwrap();
    let error = refused(&sqlite(&source), &sqlite(&target));
    assert!(error.contains("target.db` has another schema than this program made"), "{error}");
    assert!(error.contains("it has the trigger `change`"), "{error}");
    assert_eq!(fs::read(&target).unwrap(), bytes);

    run(&target, "DROP TRIGGER change; ALTER TABLE tasks ADD COLUMN another TEXT");
    let error = refused(&sqlite(&source), &sqlite(&target));
    assert!(error.contains("its table `tasks` differs"), "{error}");
    run(&target, "ALTER TABLE tasks DROP COLUMN another");
    run(&source, "ALTER TABLE tasks ADD COLUMN another TEXT");
    let error = refused(&sqlite(&source), &sqlite(&target));
    assert!(error.contains("different columns in the table `tasks`"), "{error}");
    run(&source, "ALTER TABLE tasks DROP COLUMN another");
    copied(&sqlite(&source), &sqlite(&target)).unwrap();
    assert_eq!(dump(&target), dump(&source));
}

#[test]
fn a_copy_to_postgresql_that_fails_in_the_middle_leaves_the_target_empty() {
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = filled(folder.path());
    // PostgreSQL keeps no such character.
    run(&source, "UPDATE tasks SET title = 'a' || char(0) || 'b' WHERE id = 'u'");
    let error = refused(&sqlite(&source), &postgres(&database));
    assert!(error.contains("could not write the table `tasks`"), "{error}");
    assert!(error.contains("0x00") && error.contains("nothing was copied"), "{error}");
    assert_eq!(n_rows_of(&database), 0);
    let next = "SELECT last_value, is_called FROM events_seq_seq";
    assert_eq!(database.run_sql(next), "1|f", "the counters are as they were, too");

    run(&source, "UPDATE tasks SET title = 'ab' WHERE id = 'u'");
    copied(&sqlite(&source), &postgres(&database)).unwrap();
    let n_copied = usize::try_from(n_rows_of(&database)).unwrap();
    assert_eq!(n_copied + 2, n_rows(&source), "all but the two counters");
}
