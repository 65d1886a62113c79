//! Databases that earlier versions of this program wrote.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use domain::{
    Account, Agent, Credential, Execution, ForgeItem, Launch, Notice, Project, Session,
    StartHistory, Task, Usage,
};
use rusqlite::Connection;
use store::rows::{events, messages, output_tails};
use store::{Engine, Entity, MessageFilter, Settings, StoreError, open};

use super::rows::id;

/// A database with rows in each table. The version before the store of closures wrote it.
pub(super) const WRITTEN: &str = include_str!("../../fixtures/store/schema_10.sql");

fn write(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

/// Returns the texts that a query finds.
fn texts(path: &Path, sql: &str) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The columns of launches and executions that moved to another table.
const OF_USAGE: &str = "'input_tokens', 'output_tokens', 'cache_read_tokens', \
    'cache_write_tokens', 'cost_usd_micros', 'turns'";

/// Returns the columns of a table that stay, except for the revision.
fn columns(path: &Path, table: &str) -> Vec<String> {
    let table = format!("pragma_table_info('{table}')");
    let sql = format!("SELECT name FROM {table} WHERE name NOT IN ('revision', {OF_USAGE})");
    texts(path, &sql)
}

/// Returns these columns of all rows of a table, each row as one text.
fn dump(path: &Path, table: &str, columns: &[String]) -> Vec<String> {
    let columns: Vec<String> = columns.iter().map(|name| format!("quote({name})")).collect();
    let row = columns.join(" || ',' || ");
    texts(path, &format!("SELECT {row} AS row FROM {table} ORDER BY row"))
}

/// Reads all rows of an entity and writes them back.
async fn rewrite<E: Entity + Send + 'static>(engine: &Engine) -> usize {
    let rewritten: Result<usize, StoreError> = engine
        .write(|tx| {
            let rows = tx.list::<E>("", &[])?;
            for row in &rows {
                assert!(tx.put(row)?, "{} has another revision", E::NAME);
            }
            Ok(rows.len())
        })
        .await;
    rewritten.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_the_version_before_is_read_and_written_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    write(&path, WRITTEN);
    let tables = [
        "agents",
        "projects",
        "tasks",
        "launches",
        "sessions",
        "executions",
        "notices",
        "pairs",
        "accounts",
        "credentials",
        "forge_items",
    ];
    // A migration may add columns.
    let columns = tables.map(|table| columns(&path, table));
    let dump_all = || std::array::from_fn::<_, 11, _>(|n| dump(&path, tables[n], &columns[n]));
    let before = dump_all();

    let engine = open::file(&path, Settings::default()).unwrap();
    let n_rewritten = [
        rewrite::<Agent>(&engine).await,
        rewrite::<Project>(&engine).await,
        rewrite::<Task>(&engine).await,
        rewrite::<Launch>(&engine).await,
        rewrite::<Session>(&engine).await,
        rewrite::<Execution>(&engine).await,
        rewrite::<Notice>(&engine).await,
        rewrite::<StartHistory>(&engine).await,
        rewrite::<Account>(&engine).await,
        rewrite::<Credential>(&engine).await,
        rewrite::<ForgeItem>(&engine).await,
    ];
    let rest: Result<_, StoreError> = engine
        .read(|tx| {
            let chats = messages::list_chats(tx)?;
            let chat = chats.first().expect("somebody said something");
            let all = MessageFilter::oldest(chat.agent.clone(), chat.project.clone(), 10);
            let tail = output_tails::get(tx, &id("l1"))?.or(output_tails::get(tx, &id("l2"))?);
            Ok((messages::list(tx, &all)?.len(), events::list(tx, 0, 10)?.len(), tail))
        })
        .await;
    let (n_messages, n_events, tail) = rest.unwrap();
    assert!(n_messages > 0 && n_events > 0 && tail.is_some());
    engine.close().await;

    assert_eq!(n_rewritten, before.each_ref().map(Vec::len));
    assert!(n_rewritten.iter().all(|n| *n > 0), "{n_rewritten:?}");
    assert_eq!(dump_all(), before);
    // The next start has nothing to migrate.
    let copy = folder.path().join("state.db.before-11");
    std::fs::remove_file(&copy).unwrap();
    open::file(&path, Settings::default()).unwrap().close().await;
    assert!(!copy.exists());
}

#[tokio::test]
async fn a_database_is_copied_before_its_first_migration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    write(&path, WRITTEN);
    let of_launches = columns(&path, "launches");
    let before = dump(&path, "launches", &of_launches);
    open::file(&path, Settings::default()).unwrap().close().await;

    let copy = folder.path().join("state.db.before-11");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(columns(&copy, "launches"), of_launches);
    assert_eq!(dump(&copy, "launches", &of_launches), before);
    let n_migrations = |path: &Path| texts(path, "SELECT description FROM _sqlx_migrations").len();
    assert_eq!((n_migrations(&copy), n_migrations(&path)), (10, 33));
    let is_new = |name: &String| !of_launches.contains(name);
    let new: Vec<String> = columns(&path, "launches").into_iter().filter(is_new).collect();
    let expected = [
        "n_tasks_created",
        "n_messages_created",
        "workspace_id",
        "claimed_task_id",
        "conversation_id",
        "fresh_because",
    ];
    assert_eq!(new, expected);
}

/// Projects and tasks for the migration that gives them short ids.
pub(super) const WITHOUT_KEYS: &str = "
    INSERT INTO projects (id, name, working_directory, status, created_at, revision) VALUES
        ('prj_1', 'Shop', '/', 'active', 30, 1), ('prj_2', 'shop', '/', 'active', 20, 1),
        ('prj_3', '店', '/', 'active', 40, 1), ('shop2', '店', '/', 'archived', 10, 1);
    INSERT INTO tasks (id, project_id, title, description, status, priority, dependencies, \
            created_at, status_since, revision) VALUES
        ('a', 'prj_1', '', '', 'done', 'low', '[]', 3, 3, 1),
        ('b', 'prj_1', '', '', 'todo', 'low', '[]', 1, 3, 1),
        ('c', 'prj_1', '', '', 'todo', 'low', '[]', 3, 3, 1),
        ('d', 'prj_2', '', '', 'todo', 'low', '[]', 9, 9, 1),
        ('e', 'prj_gone', '', '', 'todo', 'low', '[]', 9, 9, 1);
";

/// The keys of these projects. The oldest project chooses first.
pub(super) const KEYS: [&str; 4] =
    ["prj_1 SHOP3 4", "prj_2 SHOP 2", "prj_3 PRJ3 1", "shop2 SHOP2 1"];
/// The short ids of these tasks, in the order of their creation.
pub(super) const SHORT_IDS: [&str; 5] =
    ["a SHOP3-2", "b SHOP3-1", "c SHOP3-3", "d SHOP-1", "e PRJ-1"];

#[tokio::test]
async fn an_older_database_gets_keys_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    write(&path, WRITTEN);
    write(&path, WITHOUT_KEYS);
    open::file(&path, Settings::default()).unwrap().close().await;
    let keys = "SELECT p.id || ' ' || p.project_key || ' ' || k.next_number FROM projects AS p \
        JOIN project_keys AS k ON k.key = p.project_key AND k.project_id = p.id ORDER BY p.id";
    let old = ["p PRJ 3", "q PRJ2 2"];
    assert_eq!(texts(&path, keys), [&old[..1], &KEYS[..3], &old[1..], &KEYS[3..]].concat());
    let short_ids = "SELECT id || ' ' || project_key || '-' || number FROM tasks ORDER BY id";
    let old = ["t PRJ2-1", "u PRJ-1", "v PRJ-2"];
    assert_eq!(texts(&path, short_ids), [&SHORT_IDS[..], &old].concat());
}

#[tokio::test]
async fn launches_of_an_older_database_keep_their_usage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    write(&path, WRITTEN);
    let numbers = "id || ' ' || input_tokens || ' ' || output_tokens || ' ' || cache_read_tokens \
        || ' ' || cache_write_tokens || ' ' || cost_usd_micros || ' ' || turns";
    let before = texts(&path, &format!("SELECT {numbers} FROM launches ORDER BY id"));
    let engine = open::file(&path, Settings::default()).unwrap();
    let read = engine.read(|tx| {
        let launches: Vec<Launch> = tx.list("ORDER BY id", &[])?;
        let executions: Vec<Execution> = tx.list("ORDER BY id", &[])?;
        Ok::<_, StoreError>((launches, executions))
    });
    let (launches, executions) = read.await.unwrap();
    let shown = launches.iter().map(|launch| {
        let Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            cost_usd_micros,
            turns,
            ..
        } = launch.activity.usage;
        format!(
            "{} {input_tokens} {output_tokens} {cache_read_tokens} {cache_write_tokens} \
            {cost_usd_micros} {turns}",
            launch.id
        )
    });
    assert_eq!(shown.collect::<Vec<_>>(), before);
    for execution in executions {
        let launch = launches.iter().find(|launch| launch.id == execution.launch).unwrap();
        assert_eq!(execution.usage, launch.activity.usage);
    }
}

#[tokio::test]
async fn an_edited_or_incomplete_migration_is_named() {
    for (sql, expected) in [
        ("UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 3", "migration 3"),
        ("UPDATE _sqlx_migrations SET success = 0 WHERE version = 4", "migration 4"),
        ("UPDATE _sqlx_migrations SET version = -1 WHERE version = 10", "migration -1"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        write(&path, WRITTEN);
        write(&path, sql);
        let error = open::file(&path, Settings::default()).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(expected), "{source}");
    }
}
