//! The workspaces of items whose results go to their forge: fetches and pushes of the keep
//! repository, and what the store knows for them.

use std::sync::Arc;

use crate::ServiceError;
use domain::forge::{Publish, TakenResult};
use domain::workspace::{
    BranchIds, DEFAULT_PATTERN, FetchOrder, Fetched, ForgeBase, PushOrder, Pushed, RemoteError,
    WorkspaceState, branch_of,
};
use domain::{Task, TaskId, Workspace, WorkspaceId};
use store::rows::{Transaction, forge_items, workspaces};
use store::{Read, StoreError};
use workspace::Checkouts;

use super::Workspaces;

impl Workspaces {
    /// Brings commits of a remote into the keep repository of a project.
    ///
    /// # Errors
    /// The remote did not give them, or this server has no coordinator of its own.
    pub async fn fetch(&self, order: &FetchOrder) -> Result<Fetched, RemoteError> {
        let submodules = self.core.settings().workspace.submodules;
        self.own()?.remotes.fetch(&FetchOrder { submodules, ..order.clone() }).await
    }

    /// Gives a branch of a remote a commit of the keep repository. Repeating it changes nothing.
    ///
    /// # Errors
    /// The remote did not take it, or this server has no coordinator of its own.
    pub async fn push(&self, order: &PushOrder) -> Result<Pushed, RemoteError> {
        self.own()?.remotes.push(order).await
    }

    /// Returns the result of a task, after its content was kept; `None` while it is not kept, or
    /// waits for the choice of a person.
    pub async fn result_of(&self, id: &TaskId) -> Result<Option<TakenResult>, ServiceError> {
        let id = id.clone();
        let newest = self.core.read(move |tx| Ok(workspaces::newest_of_task(tx, &id)?)).await?;
        // A person may mend a broken one, whose content may not be kept.
        let is_kept = |workspace: &Workspace| {
            !matches!(workspace.state, WorkspaceState::InUse | WorkspaceState::Broken)
        };
        // One that waits for the choice of a person is not decided.
        let is_decided = |workspace: &Workspace| {
            let is_undecided = workspace.content.as_ref().is_some_and(|it| it.is_undecided);
            !is_undecided || workspace.discarded_at.is_some()
        };
        let kept = newest.filter(is_kept).filter(is_decided);
        Ok(kept.map(|Workspace { branch, content, .. }| {
            let commit = content.and_then(|content| content.result().cloned());
            TakenResult { branch, commit }
        }))
    }

    fn own(&self) -> Result<&Arc<Checkouts>, RemoteError> {
        self.checkouts.get().ok_or_else(|| {
            RemoteError::Unanswered(
                "this server has no coordinator of its own; publishing needs `run`".to_owned(),
            )
        })
    }
}

/// Writes that the task of an item needs a clone of the repository at the forge.
pub(crate) fn want_for_item(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    let id = tx.new_id(WorkspaceId::PREFIX);
    let agent = task.assignee.as_ref().map_or("", |agent| agent.as_str());
    let short_id = task.short_id.to_string();
    let ids = BranchIds { task: &short_id, agent, project: task.project.as_str() };
    let branch = branch_of(DEFAULT_PATTERN, ids);
    let wanted = Workspace::wanted(id, task.project.clone(), task.id.clone(), branch, tx.now());
    workspaces::put(tx, &wanted)
}

/// Returns whether a launch uses the workspace of a task, or its content is not kept yet.
pub(crate) fn is_in_use(tx: &mut Read<'_>, task: &TaskId) -> Result<bool, StoreError> {
    let newest = workspaces::newest_of_task(tx, task)?;
    Ok(newest.is_some_and(|workspace| workspace.state == WorkspaceState::InUse))
}

/// Returns the commit at a forge that the workspace of a task begins at, if it does.
pub(super) fn base_of_task(
    tx: &mut Read<'_>,
    task: &TaskId,
) -> Result<Option<ForgeBase>, StoreError> {
    let item = forge_items::find_of_task(tx, task)?;
    let publication = item.and_then(|item| item.publication);
    Ok(publication.map(|publication| ForgeBase {
        target: publication.target,
        commit: publication.base,
        upstream: publication.upstream,
        is_of_fork: publication.publish == Publish::Nothing,
    }))
}
