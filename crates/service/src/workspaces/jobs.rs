//! The steps that workspaces need now. The coordinator of this process gets them with its view.

use std::sync::Arc;
use std::time::Duration;

use crate::{Settings, checks};
use domain::workspace::{
    Content, ForgetOrder, Job, KeepOrder, LfsFiles, Order, PublishOrder, PublishResults,
    RemoveOrder,
};
use domain::{AgentId, Project, StartFacts, Timestamp, Workspace};
use store::rows::{projects, tasks, workspaces};
use store::{Read, StoreError};
use workspace::Checkouts;

use super::dependencies::{Dependencies, dependencies_of, newest_above};
use super::{OwnCheckouts, remotes};

/// The disk space that clones may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Left,
    /// A clone can be made only after another one was removed.
    UsedUp,
}

/// Returns the steps that workspaces need now, and the fresh clones of the checks among
/// `startable`. If a wanted clone has no room, the oldest workspace that may be removed later is
/// removed now.
pub(crate) fn jobs(
    tx: &mut Read<'_>,
    settings: &Settings,
    checkouts: &OwnCheckouts,
    startable: &[StartFacts],
    room: Room,
    now: Timestamp,
) -> Result<Vec<Job>, StoreError> {
    let clean = clean_jobs(tx, settings, checkouts, startable)?;
    let settings = &settings.workspace;
    let mut jobs = wanted_jobs(tx, settings)?;
    let room = if clean.is_empty() && jobs.is_empty() { Room::Left } else { room };
    for workspace in workspaces::list_to_keep(tx)? {
        let task = tasks::get(tx, &workspace.task)?;
        let agent = task.and_then(|task| task.assignee);
        jobs.push(Job::Keep(keep_order(&workspace, agent.as_ref())));
    }
    jobs.extend(finished_jobs(tx, settings, checkouts, room, now)?);
    for workspace in workspaces::list_to_forget(tx)? {
        // The branch belongs to the task, and a newer workspace of it may go on there.
        let newest = workspaces::newest_of_task(tx, &workspace.task)?;
        if newest.is_some_and(|newest| newest.forever_at.is_none()) {
            continue;
        }
        jobs.extend(workspace.may_be_forgotten().map(|decided_at| {
            Job::Forget(ForgetOrder {
                id: workspace.id,
                project: workspace.project,
                branch: workspace.branch,
                decided_at,
            })
        }));
    }
    jobs.extend(clean);
    Ok(jobs)
}

/// Returns the steps that make wanted workspaces.
fn wanted_jobs(tx: &mut Read<'_>, settings: &config::Workspace) -> Result<Vec<Job>, StoreError> {
    let mut jobs = Vec::new();
    for workspace in workspaces::list_wanted(tx)? {
        let project = projects::get(tx, &workspace.project)?;
        let task = tasks::get(tx, &workspace.task)?;
        let Some((project, task)) = project.zip(task) else {
            continue;
        };
        let restores = workspace.restores();
        let is_worked_on = task.status.is_open() && task.assignee.is_some();
        // A person may want the files of a finished task back.
        if !is_worked_on && restores.is_none() {
            continue;
        }
        let begins_at = match &task.parent {
            Some(parent) => newest_above(tx, parent)?,
            None => None,
        };
        let Dependencies { results, is_being_kept, to_choose } = dependencies_of(tx, &task)?;
        if is_being_kept || to_choose.is_some() {
            continue;
        }
        let forge = remotes::base_of_task(tx, &task.id)?;
        let order = Order {
            id: workspace.id,
            project: workspace.project,
            branch: workspace.branch,
            source: project.working_directory,
            agent: task.assignee.clone().unwrap_or_else(nobody),
            base: project.overrides.base.or_else(|| settings.base.clone()),
            lfs: settings.lfs == LfsFiles::Auto && forge.is_none(),
            submodules: settings.submodules && !forge.as_ref().is_some_and(|it| it.is_of_fork),
            dependencies: results.into_iter().map(|result| result.commit).collect(),
            begins_at,
            restores,
            forge,
            run_as: None,
        };
        jobs.push(Job::Prepare { order: Box::new(order), max_disk: settings.max_disk });
    }
    Ok(jobs)
}

/// Returns the steps on workspaces whose tasks are finished: publications and removals. `room` is
/// that for the clones that are wanted. Without it, one more workspace is removed early.
fn finished_jobs(
    tx: &mut Read<'_>,
    settings: &config::Workspace,
    checkouts: &OwnCheckouts,
    room: Room,
    now: Timestamp,
) -> Result<Vec<Job>, StoreError> {
    let keep = settings.keep;
    let makes_room = room == Room::UsedUp;
    let mut jobs = Vec::new();
    let mut early = Vec::new();
    for workspace in workspaces::list_finished(tx)? {
        let Some(task) = tasks::get(tx, &workspace.task)? else {
            // The task was deleted, and its result with it.
            if workspace.is_unused_orphan() {
                let Workspace { project, id, .. } = workspace;
                jobs.push(Job::RemoveUnused { project, id });
                continue;
            }
            let is_due = workspace.may_be_removed_as_orphan();
            jobs.extend(removal_of(&workspace, None).filter(|_| is_due));
            continue;
        };
        let publishes = settings.publish == PublishResults::Branch
            && workspace.is_to_be_published(&task)
            && remotes::base_of_task(tx, &task.id)?.is_none();
        let is_due = workspace.may_be_removed(&task, keep, now);
        // One whose publication has failed is not kept from its removal.
        if publishes && !((is_due || makes_room) && workspace.publication_failed()) {
            let project = projects::get(tx, &workspace.project)?;
            let order = project.and_then(|project| publish_order(&workspace, &project));
            jobs.extend(order.map(Job::Publish));
            continue;
        }
        let Some(removal) = removal_of(&workspace, task.assignee.as_ref()) else {
            continue;
        };
        if workspace.may_be_kept_again(&task, keep, now) {
            jobs.push(removal);
            continue;
        }
        if !is_due && !workspace.may_be_removed(&task, Some(Duration::ZERO), now) {
            continue;
        }
        // An early removal that a crash interrupted has perhaps made the room that it was for.
        let is_removed = |checkouts: &Arc<Checkouts>| {
            checkouts.places.is_removed(&workspace.project, &workspace.id)
        };
        if is_due || checkouts.get().is_some_and(is_removed) {
            jobs.push(removal);
        } else if makes_room {
            // One whose removal has failed does not keep the others from being removed.
            early.push(((workspace.reason.is_some(), task.status_since), removal));
        }
    }
    jobs.extend(early.into_iter().min_by_key(|(order, _)| *order).map(|(_, removal)| removal));
    Ok(jobs)
}

/// Returns the steps that make the fresh clones of checks that are ready to run.
fn clean_jobs(
    tx: &mut Read<'_>,
    settings: &Settings,
    checkouts: &OwnCheckouts,
    startable: &[StartFacts],
) -> Result<Vec<Job>, StoreError> {
    let mut jobs = Vec::new();
    for facts in startable {
        if let (Some(order), Some(checkouts)) =
            (checks::next_clean(tx, settings, facts)?, checkouts.get())
            && !checkouts.places.is_clean_ready(&order)
        {
            let max_disk = settings.workspace.max_disk;
            jobs.push(Job::PrepareClean { order: Box::new(order), max_disk });
        }
    }
    Ok(jobs)
}

/// Returns the step that publishes the commits of a workspace; `None` if it has none.
pub(super) fn publish_order(workspace: &Workspace, project: &Project) -> Option<PublishOrder> {
    let content = workspace.content.as_ref().filter(|content| content.n_commits > 0)?;
    Some(PublishOrder {
        commit: content.result()?.clone(),
        id: workspace.id.clone(),
        project: workspace.project.clone(),
        branch: workspace.branch.clone(),
        source: project.working_directory.clone(),
        last: workspace.published(),
    })
}

/// Returns the step that removes the files of a workspace; `None` if its content was never kept.
/// The host checks the proof once more, and keeps what has no proof.
fn removal_of(workspace: &Workspace, agent: Option<&AgentId>) -> Option<Job> {
    let content = workspace.content.as_ref()?;
    let keep = keep_order(workspace, agent);
    let proof = content.proof.clone().unwrap_or_default();
    Some(Job::Remove(RemoveOrder { keep, proof, kept_commit: content.kept_commit.clone() }))
}

pub(super) fn keep_order(workspace: &Workspace, agent: Option<&AgentId>) -> KeepOrder {
    KeepOrder {
        id: workspace.id.clone(),
        project: workspace.project.clone(),
        branch: workspace.branch.clone(),
        base_ref: workspace.base_ref.clone(),
        base_commit: workspace.base_commit.clone(),
        agent: agent.cloned().unwrap_or_else(nobody),
        launch: workspace.launch.clone(),
        chosen: workspace.content.as_ref().and_then(Content::choice),
        dropped: workspace.content.as_ref().map(|it| it.dropped.clone()).unwrap_or_default(),
        conflict: workspace.content.as_ref().and_then(|it| it.conflict.clone()).map(Box::new),
    }
}

/// The name that stands for the agent of a task without one.
fn nobody() -> AgentId {
    "nobody".parse().expect("a literal in the grammar of ids")
}
