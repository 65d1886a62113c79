//! Notices: messages of the server to an agent while it works.

use crate::{HistoryFilter, Read, StoreError, Value};
use domain::InstanceKey;
use domain::event::NewEvent;
use domain::id::NoticeId;
use domain::{LaunchId, Notice};

use super::filter::Filter;
use super::record::entity;
use super::{Transaction, Wake};

entity! {
    Notice in "notices" called "notice" {
        id;
        launch = "launch_id";
        task = "task_id";
        action;
        demand;
        created_at;
        read_at;
        settled_at;
    }
}

pub fn get(tx: &mut Read<'_>, id: &NoticeId) -> Result<Option<Notice>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the notices of a launch, settled ones too, by creation, then id.
pub fn list_of_launch(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Notice>, StoreError> {
    tx.list("WHERE launch_id = ?1 ORDER BY created_at, id", &[launch.into()])
}

/// Returns the notices that are not settled, by creation, then id.
pub fn list_open(tx: &mut Read<'_>) -> Result<Vec<Notice>, StoreError> {
    tx.list("WHERE settled_at IS NULL ORDER BY created_at, id", &[])
}

/// Returns notices of a filter, the newest first.
pub fn list(
    tx: &mut Read<'_>,
    wanted: &HistoryFilter<NoticeId>,
) -> Result<Vec<Notice>, StoreError> {
    let mut filter = Filter::default();
    if let Some(task) = &wanted.task {
        filter.is("task_id", task);
    }
    if let Some(launch) = &wanted.launch {
        filter.is("launch_id", launch);
    }
    // A notice names only its launch, which has the agent and the project.
    let owners: [(&str, Option<Value<'_>>); 2] = [
        ("agent_id", wanted.agent.as_ref().map(Into::into)),
        ("project_id", wanted.project.as_ref().map(Into::into)),
    ];
    for (column, owner) in owners {
        if let Some(owner) = owner {
            let owner = filter.arg(owner);
            filter.also(format!("launch_id IN (SELECT id FROM launches WHERE {column} = {owner})"));
        }
    }
    if wanted.only_open {
        filter.also("settled_at IS NULL");
    }
    filter.newest(tx, "created_at", wanted.after.as_ref(), wanted.limit)
}

/// Writes a notice to the agent of `key`.
pub fn put(tx: &mut Transaction<'_>, notice: &Notice, key: &InstanceKey) -> Result<(), StoreError> {
    tx.replace(notice, &notice.id)?;
    let kind = match (notice.revision, notice.settled_at, notice.read_at) {
        (0, ..) => "notice.created",
        (_, Some(_), _) => "notice.settled",
        (_, None, Some(_)) => "notice.read",
        (_, None, None) => "notice.changed",
    };
    let event = NewEvent {
        launch: Some(notice.launch.clone()),
        task: notice.task.clone(),
        detail: Some(notice.action.to_string()),
        ..NewEvent::of_pair(kind, tx.now(), key)
    };
    tx.row_event(event);
    tx.wake(Wake::Deadlines);
    Ok(())
}
