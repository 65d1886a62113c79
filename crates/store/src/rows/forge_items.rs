//! Work on items of forges: its progress, and the writes that are still pending at the forge.

use std::collections::BTreeSet;

use crate::{Cells, Read, StoreError, cell};
use domain::id::ItemId;
use domain::{ForgeItem, ItemKey, ProjectId, TaskId, Timestamp};

use super::cells::json;
use super::record::{Record, entity, record};
use super::{Transaction, Wake};

entity! {
    ForgeItem in "forge_items" called "forge item" {
        id;
        key: ItemKey;
        agent = "agent_id";
        project = "project_id";
        task = "task_id";
        title;
        url;
        state as json;
        pending = "owed" as json;
        n_attempts;
        n_refusals;
        retry_at;
        last_error;
        n_comments;
        is_missing;
        n_resumed;
        publication as json;
        created_at;
        ended_at;
        begun_at;
    }
}

record! {
    ItemKey {
        forge;
        host;
        repository;
        kind;
        number;
    }
}

const IS_OPEN: &str = "forge = ?1 AND host = ?2 AND repository = ?3 AND kind = ?4 AND number = ?5 \
    AND ended_at IS NULL";

pub fn get(tx: &mut Read<'_>, id: &ItemId) -> Result<Option<ForgeItem>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the open work on an item.
pub fn find_open(tx: &mut Read<'_>, key: &ItemKey) -> Result<Option<ForgeItem>, StoreError> {
    tx.find(&format!("WHERE {IS_OPEN}"), &key.values())
}

/// Returns the newest item that was made into this task.
pub fn find_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Option<ForgeItem>, StoreError> {
    let rest = "WHERE task_id = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    tx.find(rest, &[task.into()])
}

/// Returns the tasks of a project that were made from items.
pub fn list_tasks(tx: &mut Read<'_>, project: &ProjectId) -> Result<BTreeSet<TaskId>, StoreError> {
    let sql = "SELECT task_id FROM forge_items WHERE project_id = ?1";
    Ok(tx.rows("forge item", sql, &[project.into()], cell)?.into_iter().collect())
}

/// Returns the open items by creation, then id.
pub fn list_open(tx: &mut Read<'_>) -> Result<Vec<ForgeItem>, StoreError> {
    tx.list("WHERE ended_at IS NULL ORDER BY created_at, id", &[])
}

/// Returns the ended items, the newest end first, at most `limit`.
pub fn list_ended(tx: &mut Read<'_>, limit: usize) -> Result<Vec<ForgeItem>, StoreError> {
    let rest = "WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT ?1";
    tx.list(rest, &[limit.into()])
}

/// Returns items that ended before `before`, the oldest first, at most `limit`.
pub fn list_ended_before(
    tx: &mut Read<'_>,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<ItemId>, StoreError> {
    let sql = "SELECT id FROM forge_items WHERE ended_at < ?1 ORDER BY ended_at, id LIMIT ?2";
    let read = |cells: &mut Cells<'_>| cells.get();
    tx.rows("forge item", sql, &[before.into(), limit.into()], read)
}

/// Forgets an item that has ended. An open one stays as it is.
pub fn forget(tx: &mut Transaction<'_>, id: &ItemId) -> Result<(), StoreError> {
    let sql = "DELETE FROM forge_items WHERE id = ?1 AND ended_at IS NOT NULL";
    tx.execute(sql, &[id.into()]).map(drop)
}

/// Writes an item.
pub fn put(tx: &mut Transaction<'_>, item: &ForgeItem) -> Result<(), StoreError> {
    tx.replace(item, &item.id)?;
    tx.wake(Wake::Forges);
    Ok(())
}
