//! The list of the results of finished tasks, conflicts and upgrades that wait for a person on this
//! host.

use std::collections::BTreeMap;

use crate::core::Core;
use crate::{ServiceError, catalog, checks};
use domain::attention::{Attention, Cause, of_left};
use domain::workspace::{Conflict, Content, MergeStep, MergeStyle, UnmergedResult};
use domain::{ProjectId, TaskId, TaskStatus, Workspace};
use runtime::telemetry::ErrorChain;
use store::rows::{Transaction, forge_items, projects, tasks, workspaces};
use store::{Read, StoreError};
use workspace::Merged;

use super::results::LONGEST_LOOK;
use super::{MergeWish, OwnCheckouts, WorkspaceView, Workspaces, keep_order};

impl Workspaces {
    /// Returns the tasks whose results wait for a person, of all projects or of one, each with the
    /// next step.
    pub async fn merge_steps(
        &self,
        project: Option<&ProjectId>,
    ) -> Result<BTreeMap<TaskId, MergeStep>, ServiceError> {
        let project = project.cloned();
        let results = self.core.read(move |tx| Ok(list_unmerged(tx, project.as_ref())?)).await?;
        Ok(results.into_iter().map(|result| (result.task.id, result.step)).collect())
    }

    /// Returns the entries of the merges on this host that could not be undone.
    pub(crate) async fn left_merges(&self) -> Result<Vec<Attention>, ServiceError> {
        let Some(host) = self.checkouts.get() else { return Ok(Vec::new()) };
        let left = host.trees.left_merges().await;
        self.entries_of(left, |tx, merge| {
            let workspace = workspaces::get(tx, &merge.workspace)?;
            let task = workspace.map(|of| tasks::get(tx, &of.task)).transpose()?.flatten();
            Ok(Some(of_left(merge.clone(), task)))
        })
        .await
    }

    /// Returns the entries of the projects on this host whose upgrades wait for room, one for each.
    pub(crate) async fn waiting_upgrades(&self) -> Result<Vec<Attention>, ServiceError> {
        let Some(host) = self.checkouts.get() else { return Ok(Vec::new()) };
        let waiting = host.keep.list_waiting_upgrades().await;
        self.entries_of(waiting, |tx, upgrade| {
            // No task waits in a project that was deleted or archived meanwhile.
            let project = projects::get(tx, &upgrade.project)?;
            let project = project.filter(|project| !project.is_archived());
            let cause = Cause::Upgrade(upgrade.clone());
            Ok(project.map(|_| Attention { cause, since: None }))
        })
        .await
    }

    /// Returns the entries of what was found on this host. Does not read if nothing was found.
    async fn entries_of<T: Send + 'static>(
        &self,
        found: Vec<T>,
        entry: fn(&mut Read<'_>, &T) -> Result<Option<Attention>, StoreError>,
    ) -> Result<Vec<Attention>, ServiceError> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        self.core
            .read(move |tx| {
                let entries = found.iter().map(|each| entry(tx, each));
                let entries =
                    entries.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
                Ok(entries)
            })
            .await
    }

    /// Returns the workspace of a task like [`Self::of_task`]. The conflict of a finished task is over
    /// if the branch has moved since. That is not found if git does not answer soon.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`.
    pub async fn of_task_now(&self, id: &TaskId) -> Result<WorkspaceView, ServiceError> {
        let (workspace, task, project) = self.find_with_project(id).await?;
        let conflict = workspace.conflict().filter(|_| task.status == TaskStatus::Done);
        if let Some((conflict, host)) = conflict.zip(self.checkouts.get()) {
            let look = host.results.head_of(&project.working_directory, &conflict.branch);
            let found = tokio::time::timeout(LONGEST_LOOK, look).await;
            if let Ok(Ok(Some(head))) = found
                && head != conflict.commit
            {
                let branch = conflict.branch.clone();
                self.core.write(move |tx| Ok(note_move(tx, &project.id, &branch, &head)?)).await?;
            }
        }
        self.of_task(id).await
    }

    /// Stores the conflict of a merge, or that a later merge found none.
    pub(super) async fn note_conflict(
        &self,
        of: &Workspace,
        merged: &Merged,
        wish: &MergeWish,
    ) -> Result<(), ServiceError> {
        let conflict = match merged {
            Merged::Conflict { branch, commit, files, is_again: false, .. } => Some(Conflict {
                result: of.content.as_ref().and_then(|content| content.head_commit.clone()),
                branch: branch.clone(),
                commit: commit.clone(),
                files: files.clone(),
                at: self.core.now(),
                squash: wish.style == MergeStyle::Squash,
                rebase: wish.style == MergeStyle::Rebase,
                with_uncommitted: wish.with_uncommitted,
                is_asked: wish.ask_agent,
            }),
            // The page cannot offer that the agent resolves it.
            Merged::Conflict { is_again: true, .. } => None,
            // The row that says that it is merged says the same.
            Merged::Into { .. }
            | Merged::Already { .. }
            | Merged::Unchanged { .. }
            | Merged::Stale { .. } => return Ok(()),
            Merged::InTheWay { .. }
            | Merged::HooksAsk { .. }
            | Merged::HookRefused { .. }
            | Merged::Dirty { .. }
            | Merged::Reverted { .. }
            | Merged::Nothing => None,
        };
        let before = of.content.as_ref().and_then(|content| content.conflict.as_ref());
        if conflict.is_none() && before.is_none() {
            return Ok(());
        }
        store_conflict(&self.core, of, conflict, None).await
    }
}

/// Compares a result whose agent is asked to resolve a conflict with the branch as it is now. The
/// branch may have moved since. If git cannot say that, the conflict stays as it was found.
pub(crate) async fn renew_conflict(
    core: &Core,
    checkouts: &OwnCheckouts,
    of: &Workspace,
) -> Result<(), ServiceError> {
    let asked = of.content.as_ref().and_then(Content::asked_conflict);
    let Some((before, host)) = asked.zip(checkouts.get()) else { return Ok(()) };
    let project = of.project.clone();
    let directory = core.read(move |tx| catalog::project(tx, &project)).await?.working_directory;
    let order = keep_order(of, None);
    match Box::pin(host.clones.compare_anew(&order, &directory)).await {
        Ok(now) if now.as_ref() == Some(before) => Ok(()),
        Ok(now) => {
            let text = now.as_ref().map(|Conflict { branch, commit, files, .. }| {
                core.guidance().merge_conflict(branch, commit, files)
            });
            store_conflict(core, of, now, text).await
        }
        Err(error) => {
            tracing::warn!(
                workspace_id = %of.id, error = %ErrorChain(&error),
                "could not compare a result with its branch"
            );
            Ok(())
        }
    }
}

/// Stores the conflict of a workspace as it was read, and `evidence` as the text of the conflict
/// for its agent.
async fn store_conflict(
    core: &Core,
    of: &Workspace,
    conflict: Option<Conflict>,
    evidence: Option<String>,
) -> Result<(), ServiceError> {
    let id = of.id.clone();
    let seen = of.content.clone();
    core.write(move |tx| {
        let Some(found) = workspaces::get(tx, &id)? else { return Ok(()) };
        // It says nothing about content that was kept meanwhile.
        let is_seen = found.is_kept_as(seen.as_ref());
        if let Some(content) = found.content.clone().filter(|_| is_seen) {
            if let Some(text) = &evidence {
                checks::renew_conflict(tx, &found.task, text)?;
            }
            let content = Some(content.with_conflict(conflict.clone()));
            workspaces::put(tx, &Workspace { content, ..found })?;
        }
        Ok(())
    })
    .await
}

/// Notes for the conflicts of the finished tasks of a project with a branch that it is at another
/// commit now.
pub(super) fn note_move(
    tx: &mut Transaction<'_>,
    project: &ProjectId,
    branch: &str,
    commit: &str,
) -> Result<(), StoreError> {
    for found in workspaces::list_unmerged(tx, Some(project))? {
        if let Some(after) = found.after_move(branch, commit) {
            workspaces::put(tx, &after)?;
        }
    }
    Ok(())
}

/// Returns the results of finished tasks that wait for a person.
pub(crate) fn list_unmerged(
    tx: &mut Read<'_>,
    project: Option<&ProjectId>,
) -> Result<Vec<UnmergedResult>, StoreError> {
    let mut results = Vec::new();
    for workspace in workspaces::list_unmerged(tx, project)? {
        let Some(task) = tasks::get(tx, &workspace.task)? else { continue };
        if workspace.merge_step(&task, false).is_none() {
            continue;
        }
        let item = forge_items::find_of_task(tx, &task.id)?;
        let publication = item.and_then(|item| item.publication);
        let is_at_forge = publication.is_some_and(|it| it.reaches_forge());
        if let Some(step) = workspace.merge_step(&task, is_at_forge) {
            results.push(UnmergedResult { workspace, task, step });
        }
    }
    Ok(results)
}
