//! The keys that projects have or had, and the numbers of their next tasks. A key stays when its
//! project is deleted, so that no short id is given twice.

use crate::{Read, StoreError};
use domain::{ProjectId, ProjectKey, ShortId};

use super::Transaction;
use super::record::{Record, record};

/// The record of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub key: ProjectKey,
    /// The project that has the key, or the last one that had it.
    pub project: ProjectId,
    pub next_number: u32,
}

record! {
    KeyRecord {
        key;
        project = "project_id";
        next_number;
    }
}

fn select(rest: &str) -> String {
    format!("SELECT {} FROM project_keys {rest}", KeyRecord::columns().join(", "))
}

pub fn get(tx: &mut Read<'_>, key: &ProjectKey) -> Result<Option<KeyRecord>, StoreError> {
    tx.row("project key", &select("WHERE key = ?1"), &[key.into()], KeyRecord::read)
}

/// Returns all keys, also those of deleted projects.
pub fn list(tx: &mut Read<'_>) -> Result<Vec<KeyRecord>, StoreError> {
    tx.rows("project key", &select("ORDER BY key"), &[], KeyRecord::read)
}

/// Returns the keys of a project by key, also those that it had before.
pub fn list_of_project(
    tx: &mut Read<'_>,
    project: &ProjectId,
) -> Result<Vec<KeyRecord>, StoreError> {
    let sql = select("WHERE project_id = ?1 ORDER BY key");
    tx.rows("project key", &sql, &[project.into()], KeyRecord::read)
}

/// Writes the record of a key.
pub fn put(tx: &mut Transaction<'_>, record: &KeyRecord) -> Result<(), StoreError> {
    tx.execute("DELETE FROM project_keys WHERE key = ?1", &[(&record.key).into()])?;
    let sql = "INSERT INTO project_keys (key, project_id, next_number) VALUES (?1, ?2, ?3)";
    tx.execute(sql, &record.values()).map(drop)
}

/// Takes the next short id of a project; `None` if the project does not exist.
pub fn take_short_id(
    tx: &mut Transaction<'_>,
    project: &ProjectId,
) -> Result<Option<ShortId>, StoreError> {
    let sql = select("WHERE key = (SELECT project_key FROM projects WHERE id = ?1)");
    let Some(record) = tx.row("project key", &sql, &[project.into()], KeyRecord::read)? else {
        return Ok(None);
    };
    let number = record.next_number;
    let sql = "UPDATE project_keys SET next_number = ?1 WHERE key = ?2";
    tx.execute(sql, &[number.saturating_add(1).into(), (&record.key).into()])?;
    Ok(Some(ShortId { key: record.key, number }))
}
