//! Says why a clone is not made now.

use domain::printable::bytes;
use domain::start_history::StartReason;
use domain::workspace::WorkspaceState;
use domain::{Language, Workspace};
use store::rows::{tasks, workspaces};
use store::{Read, StoreError};

use super::{OwnCheckouts, dependencies_of};

/// Returns why no clone can be made, if the clones of this host use the disk space that they may.
pub(crate) fn no_room(
    tx: &mut Read<'_>,
    checkouts: &OwnCheckouts,
    max_disk: u64,
) -> Result<Option<String>, StoreError> {
    let usage = checkouts.get().and_then(|checkouts| checkouts.disk.usage());
    let Some(usage) = usage.filter(|usage| usage.n_bytes >= max_disk) else {
        return Ok(None);
    };
    let mut largest = Vec::new();
    for (id, n_bytes) in &usage.largest {
        let workspace = workspaces::get(tx, id)?;
        let task = match &workspace {
            Some(workspace) => tasks::get(tx, &workspace.task)?,
            None => None,
        };
        let name = task.map_or_else(|| id.to_string(), |task| task.short_id.to_string());
        largest.push(format!("{name} {}", bytes(*n_bytes)));
    }
    let largest = if largest.is_empty() { "none".to_owned() } else { largest.join(", ") };
    Ok(Some(format!(
        "clones use {} of `workspace.max_disk` {}, of which {} are kept work of all tasks; \
         the largest: {largest}",
        bytes(usage.n_bytes),
        bytes(max_disk),
        bytes(usage.n_kept_bytes)
    )))
}

/// Says of a workspace that is to be made why that is not possible now: there is no room for it, or
/// a task that its task depends on has several results.
pub(super) fn explain(
    tx: &mut Read<'_>,
    workspace: &mut Workspace,
    no_room: Option<&String>,
) -> Result<(), StoreError> {
    if workspace.state != WorkspaceState::Wanted {
        return Ok(());
    }
    if no_room.is_some() {
        workspace.reason = no_room.cloned();
    } else if let Some(task) = tasks::get(tx, &workspace.task)?
        && let Some(dependency) = dependencies_of(tx, &task)?.to_choose
    {
        let value = |_: &str| Some(dependency.to_string());
        let reason = StartReason::ResultToChoose.named_sentence(Language::English, value);
        workspace.reason = reason.or(workspace.reason.take());
    }
    Ok(())
}
