//! Databases that earlier versions of this program wrote.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agent_coordinator::domain::{
    Account, Agent, Credential, Execution, ForgeItem, Launch, Notice, PairRecord, Project, Session,
    Task,
};
use agent_coordinator::rows::{events, messages, output_tails};
use agent_coordinator::store::{Engine, Entity, MessageFilter, Settings, StoreError, open};
use rusqlite::Connection;

use super::rows::id;

/// A database with rows in each table. The version before the store of closures wrote it.
pub(super) const WRITTEN: &str = include_str!("../../fixtures/store/schema_10.sql");

fn write(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

/// The rows of a table without their revisions, each as one text.
fn dump(path: &Path, table: &str) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let columns = texts(&format!(
        "SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}') WHERE name <> 'revision'"
    ));
    texts(&format!("SELECT {} AS row FROM {table} ORDER BY row", columns.join(" || ',' || ")))
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
    let before = tables.map(|table| dump(&path, table));

    let engine = open::file(&path, Settings::default()).unwrap();
    let n_rewritten = [
        rewrite::<Agent>(&engine).await,
        rewrite::<Project>(&engine).await,
        rewrite::<Task>(&engine).await,
        rewrite::<Launch>(&engine).await,
        rewrite::<Session>(&engine).await,
        rewrite::<Execution>(&engine).await,
        rewrite::<Notice>(&engine).await,
        rewrite::<PairRecord>(&engine).await,
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
    assert_eq!(tables.map(|table| dump(&path, table)), before);
    assert!(!folder.path().join("state.db.before-10").exists(), "there was nothing to migrate");
}

#[tokio::test]
async fn a_database_is_copied_before_its_first_migration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    write(&path, WRITTEN);
    write(
        &path,
        "ALTER TABLE launches DROP COLUMN is_chat_over; DELETE FROM _sqlx_migrations WHERE version = 10",
    );
    let before = dump(&path, "launches");
    open::file(&path, Settings::default()).unwrap().close().await;

    let copy = folder.path().join("state.db.before-10");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(dump(&copy, "launches"), before);
    assert_eq!(dump(&copy, "_sqlx_migrations").len(), 9);
    assert_eq!(dump(&path, "_sqlx_migrations").len(), 10);
    assert_ne!(dump(&path, "launches"), before, "they have the new column");
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
