//! Workspaces: the clones in which tasks are worked on.

use crate::{Read, StoreError};
use domain::event::NewEvent;
use domain::workspace::{Workspace, WorkspaceState};
use domain::{ProjectId, TaskId, WorkspaceId};

use super::cells::json;
use super::record::entity;
use super::{Transaction, Wake};

entity! {
    Workspace in "workspaces" called "workspace" {
        id;
        project = "project_id";
        task = "task_id", audited plain;
        coordinator = "coordinator_id";
        state, audited plain;
        reason;
        branch, audited plain;
        base_ref;
        base_commit;
        subdirectory;
        content as json;
        launch = "launch_id";
        discarded_at, audited plain;
        forever_at, audited plain;
        merged_commit, audited plain;
        created_at;
        published_branch, audited plain;
        published_commit, audited plain;
    }
}

pub fn get(tx: &mut Read<'_>, id: &WorkspaceId) -> Result<Option<Workspace>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the newest workspace of a task, also one whose files are gone.
pub fn newest_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Option<Workspace>, StoreError> {
    let rest = "WHERE task_id = ?1 ORDER BY created_at DESC, id DESC LIMIT 1";
    tx.find(rest, &[task.into()])
}

/// Returns the workspaces with files, by project, then id.
pub fn list(tx: &mut Read<'_>, project: Option<&ProjectId>) -> Result<Vec<Workspace>, StoreError> {
    match project {
        Some(project) => {
            let rest = "WHERE project_id = ?1 AND state <> 'removed' ORDER BY id";
            tx.list(rest, &[project.into()])
        }
        None => tx.list("WHERE state <> 'removed' ORDER BY project_id, id", &[]),
    }
}

/// Returns the workspaces, also those without files, by project, then id.
pub fn list_all(
    tx: &mut Read<'_>,
    project: Option<&ProjectId>,
) -> Result<Vec<Workspace>, StoreError> {
    match project {
        Some(project) => tx.list("WHERE project_id = ?1 ORDER BY id", &[project.into()]),
        None => tx.list("ORDER BY project_id, id", &[]),
    }
}

/// Returns whether a project has or had a workspace.
pub fn exist_in(tx: &mut Read<'_>, project: &ProjectId) -> Result<bool, StoreError> {
    let found: Option<Workspace> = tx.find("WHERE project_id = ?1 LIMIT 1", &[project.into()])?;
    Ok(found.is_some())
}

/// Returns the workspaces that are to be made.
pub fn list_wanted(tx: &mut Read<'_>) -> Result<Vec<Workspace>, StoreError> {
    tx.list("WHERE state = 'wanted' ORDER BY created_at, id", &[])
}

/// Returns the workspaces whose launch has ended, and whose content is to be kept.
pub fn list_to_keep(tx: &mut Read<'_>) -> Result<Vec<Workspace>, StoreError> {
    let rest = "WHERE state = 'in_use' AND NOT EXISTS (SELECT 1 FROM launches \
        WHERE launches.id = workspaces.launch_id AND launches.state <> 'ended') \
        ORDER BY created_at, id";
    tx.list(rest, &[])
}

/// Returns the workspaces that wait for a person, the oldest first.
pub fn list_broken(tx: &mut Read<'_>) -> Result<Vec<Workspace>, StoreError> {
    tx.list("WHERE state = 'broken' ORDER BY created_at, id", &[])
}

/// Returns the workspaces with commits that could not be kept, the oldest first, apart from those
/// whose work a person has discarded.
pub fn list_not_kept(tx: &mut Read<'_>) -> Result<Vec<Workspace>, StoreError> {
    let rest = "WHERE state = 'ready' AND discarded_at IS NULL AND content IS NOT NULL \
        ORDER BY created_at, id";
    let mut found: Vec<Workspace> = tx.list(rest, &[])?;
    let is_not_kept = |it: &Workspace| {
        it.content.as_ref().is_some_and(|content| content.unkept_commits().next().is_some())
    };
    found.retain(is_not_kept);
    Ok(found)
}

/// Returns the newest workspaces of finished tasks, of all projects or of one: those whose results
/// are neither merged nor discarded, and merged ones while their files are there.
pub fn list_unmerged(
    tx: &mut Read<'_>,
    project: Option<&ProjectId>,
) -> Result<Vec<Workspace>, StoreError> {
    // After a merge, the branches beside the result may be left to decide about.
    const UNMERGED: &str = "discarded_at IS NULL \
        AND content IS NOT NULL \
        AND (merged_commit IS NULL AND state IN ('wanted', 'removed') OR state = 'ready') \
        AND EXISTS (SELECT 1 FROM tasks WHERE tasks.id = workspaces.task_id \
            AND tasks.status = 'done' AND tasks.archived_at IS NULL) \
        AND NOT EXISTS (SELECT 1 FROM workspaces AS later \
            WHERE later.task_id = workspaces.task_id \
            AND (later.created_at > workspaces.created_at \
                OR later.created_at = workspaces.created_at AND later.id > workspaces.id)) \
        ORDER BY project_id, id";
    match project {
        Some(project) => {
            tx.list(&format!("WHERE project_id = ?1 AND {UNMERGED}"), &[project.into()])
        }
        None => tx.list(&format!("WHERE {UNMERGED}"), &[]),
    }
}

/// Returns all workspaces of a task, the oldest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Workspace>, StoreError> {
    tx.list("WHERE task_id = ?1 ORDER BY created_at, id", &[task.into()])
}

/// Returns the workspaces without files whose kept state people do not want any more.
pub fn list_to_forget(tx: &mut Read<'_>) -> Result<Vec<Workspace>, StoreError> {
    let rest = "WHERE state = 'removed' AND forever_at IS NOT NULL AND content IS NOT NULL \
        ORDER BY created_at, id";
    tx.list(rest, &[])
}

/// Returns the workspaces that no launch uses, and whose tasks are closed or were deleted. A
/// workspace of a deleted task may still be wanted.
pub fn list_finished(tx: &mut Read<'_>) -> Result<Vec<Workspace>, StoreError> {
    let rest = "WHERE state = 'ready' AND (EXISTS (SELECT 1 FROM tasks \
            WHERE tasks.id = workspaces.task_id AND tasks.status IN ('done', 'cancelled')) \
        OR forever_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM tasks \
            WHERE tasks.id = workspaces.task_id)) \
        OR state = 'wanted' AND content IS NULL AND forever_at IS NOT NULL \
            AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = workspaces.task_id) \
        ORDER BY created_at, id";
    tx.list(rest, &[])
}

/// Writes a workspace.
///
/// # Errors
/// A failed statement.
pub fn put(tx: &mut Transaction<'_>, workspace: &Workspace) -> Result<(), StoreError> {
    tx.replace_audited(workspace, &workspace.id, |tx| get(tx, &workspace.id))?;
    let kind = match workspace.state {
        WorkspaceState::Wanted => "workspace.wanted",
        WorkspaceState::Ready => "workspace.ready",
        WorkspaceState::InUse => "workspace.in_use",
        WorkspaceState::Broken => "workspace.broken",
        WorkspaceState::Removed => "workspace.removed",
    };
    let event = NewEvent {
        project: Some(workspace.project.clone()),
        task: Some(workspace.task.clone()),
        launch: workspace.launch.clone(),
        detail: workspace.reason.clone(),
        ..NewEvent::new(kind, tx.now())
    };
    tx.row_event(event);
    tx.wake(Wake::Coordinators);
    Ok(())
}
