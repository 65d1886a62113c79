//! The results of other tasks that the work on a task begins with, or goes on from.

use crate::tasks::rules::graph_above;
use domain::workspace::{WorkspaceState, owner};
use domain::{ShortId, Task, TaskId, TaskStatus, WorkspaceId};
use store::rows::{tasks, workspaces};
use store::{Read, StoreError};

/// The result of a task that another one depends on.
#[derive(Debug, Clone)]
pub struct DependencyResult {
    pub task: TaskId,
    /// The last commit of the work.
    pub commit: String,
}

/// The results of the tasks that another one depends on.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    pub(crate) results: Vec<DependencyResult>,
    /// One of them is finished, and its content is not kept yet.
    pub(super) is_being_kept: bool,
    /// A task with several results of which a person is to choose one.
    pub(super) to_choose: Option<ShortId>,
}

/// Returns the results of the tasks that a task depends on, apart from those in its own clone.
pub(crate) fn dependencies_of(tx: &mut Read<'_>, task: &Task) -> Result<Dependencies, StoreError> {
    let graph = graph_above(tx, std::slice::from_ref(task))?;
    let own = owner(task, &graph).id.clone();
    let mut found = Dependencies::default();
    for id in &task.dependencies {
        let dependency = tasks::get(tx, id)?;
        let Some(dependency) = dependency.filter(|other| other.status == TaskStatus::Done) else {
            continue;
        };
        let graph = graph_above(tx, std::slice::from_ref(&dependency))?;
        let owner = owner(&dependency, &graph);
        let newest = workspaces::newest_of_task(tx, &owner.id)?;
        let Some(workspace) = newest.filter(|_| owner.id != own) else {
            continue;
        };
        // A part is in the clone of the task above, whose agent may be waiting for this task.
        found.is_being_kept |= workspace.state == WorkspaceState::InUse && !owner.status.is_open();
        let content = workspace.content.filter(|_| workspace.discarded_at.is_none());
        if content.as_ref().is_some_and(|content| content.is_undecided) {
            found.to_choose.get_or_insert(dependency.short_id);
        }
        let commit = content.and_then(|content| content.result().cloned());
        let result = commit.map(|commit| DependencyResult { task: id.clone(), commit });
        found.results.extend(result);
    }
    Ok(found)
}

/// Returns the result of a task that has a workspace of its own.
pub(crate) fn own_result(
    tx: &mut Read<'_>,
    task: &TaskId,
) -> Result<Option<OwnResult>, StoreError> {
    let newest = workspaces::newest_of_task(tx, task)?;
    Ok(newest.map(|workspace| OwnResult {
        is_kept: workspace.state != WorkspaceState::InUse,
        branch: workspace.branch,
        commit: workspace.content.and_then(|content| content.result().cloned()),
    }))
}

/// The result of a subtask that another agent worked on.
#[derive(Debug, Clone)]
pub struct OwnResult {
    pub branch: String,
    /// The last commit of the work that is kept.
    pub commit: Option<String>,
    /// Whether the content after its last launch is kept.
    pub is_kept: bool,
}

/// Returns the workspace of the nearest task above that has one with files.
pub(super) fn newest_above(
    tx: &mut Read<'_>,
    parent: &TaskId,
) -> Result<Option<WorkspaceId>, StoreError> {
    let Some(parent) = tasks::get(tx, parent)? else {
        return Ok(None);
    };
    let graph = graph_above(tx, std::slice::from_ref(&parent))?;
    let newest = workspaces::newest_of_task(tx, &owner(&parent, &graph).id)?;
    Ok(newest.filter(|found| found.state != WorkspaceState::Removed).map(|found| found.id))
}
