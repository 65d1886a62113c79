//! Workspaces: the clones in which tasks are worked on, and what people do with their results.
//!
//! The store has a row for each workspace, and the host of the coordinator has its files. Only the
//! coordinator in this process prepares workspaces, so the server asks `workspace` itself for diffs
//! and merges.

mod dependencies;
mod hooks;
mod jobs;
mod kept;
mod remotes;
mod results;
mod snapshots;
mod unmerged;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use domain::start_history::{NeededClone, TaskToStart};
use domain::task::next_task;
use domain::workspace::{
    BranchIds, WorkspaceMode, WorkspaceReport, WorkspaceState, branch_of, owner,
};
use domain::{
    CoordinatorId, InstanceKey, Launch, LaunchId, Project, ProjectId, Purpose, Refusal, StartFacts,
    Task, TaskId, Workspace, WorkspaceId,
};
use machine::locks::lock;
use runtime::telemetry::ErrorChain;
use store::rows::{Transaction, projects, startable, tasks, workspaces};
use store::{Read, StoreError};
use workspace::{CheckoutError, Checkouts, FoundRevert};

use super::core::Core;
use super::tasks::mine::{in_check, in_progress};
use super::tasks::rules::graph_above;
use super::{Heard, ServiceError, Shared, checks};

pub use dependencies::{DependencyResult, OwnResult};
pub use results::{MergeWish, PublishedResult, ResultChoice};
pub use snapshots::SnapshotView;

use room::explain;
pub(super) use room::no_room;

mod room;

pub(super) use dependencies::{dependencies_of, own_result};
pub(super) use jobs::{Room, jobs};
pub(super) use kept::until_none_is_kept;
pub(super) use remotes::{is_in_use, want_for_item};
pub(super) use unmerged::{list_unmerged, renew_conflict};

use jobs::{keep_order, publish_order};

/// The clones on this host, set once when the coordinator of this process starts.
pub(super) type OwnCheckouts = Arc<OnceLock<Arc<Checkouts>>>;

/// A clone, as a coordinator finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClonePlace {
    pub id: WorkspaceId,
    /// The project's directory, relative to the clone.
    pub subdirectory: String,
}

/// A workspace with its task, for people.
#[derive(Debug, Clone)]
pub struct WorkspaceView {
    pub workspace: Workspace,
    pub task: Task,
    /// The folder of the agent; `None` if its files are gone or on another host.
    pub path: Option<PathBuf>,
    /// The revert of its merge, if one was looked for and found.
    pub revert: Option<FoundRevert>,
}

/// The workspaces of tasks.
pub struct Workspaces {
    core: Arc<Core>,
    heard: Heard,
    checkouts: OwnCheckouts,
}

impl Workspaces {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, checkouts, .. } = shared;
        Self { core, heard, checkouts }
    }

    /// Sets the clones of this host. Only the first call has an effect.
    pub fn serve_from(&self, checkouts: Arc<Checkouts>) {
        let _ = self.checkouts.set(checkouts);
    }

    /// Returns the workspaces on this host with a step that would fail again.
    pub(crate) fn given_up(&self) -> Vec<WorkspaceId> {
        let host = self.checkouts.get();
        host.map(|host| lock(&host.given_up).keys().cloned().collect()).unwrap_or_default()
    }

    /// Writes that the next launch of `key` needs a clone. Changes nothing if there is one.
    pub async fn want(&self, key: &InstanceKey) -> Result<(), ServiceError> {
        let key = key.clone();
        let settings = self.core.settings();
        self.core
            .write(move |tx| {
                let mut facts = startable::of_key(tx, &key)?;
                look_up(tx, &mut facts, None)?;
                let Some(NeededClone { task, workspace: None, .. }) = facts.clone else {
                    return Ok(());
                };
                let Some(task) = tasks::get(tx, &task)? else {
                    return Ok(());
                };
                let graph = graph_above(tx, std::slice::from_ref(&task))?;
                let owner = owner(&task, &graph);
                let id = tx.new_id(WorkspaceId::PREFIX);
                let wanted = if let Some(earlier) = workspaces::newest_of_task(tx, &owner.id)? {
                    // Its earlier work goes on.
                    earlier.again(id, tx.now())
                } else {
                    let ids = BranchIds {
                        task: &owner.short_id.to_string(),
                        agent: key.agent.as_str(),
                        project: key.project.as_str(),
                    };
                    let own = projects::get(tx, &owner.project)?;
                    let own = own.and_then(|project| project.overrides.branch);
                    let branch = branch_of(own.as_ref().unwrap_or(&settings.workspace.branch), ids);
                    let project = owner.project.clone();
                    Workspace::wanted(id, project, owner.id.clone(), branch, tx.now())
                };
                Ok(workspaces::put(tx, &wanted)?)
            })
            .await
    }

    /// Takes the report of a coordinator. A report that comes late or twice changes nothing.
    pub async fn report(
        &self,
        id: &WorkspaceId,
        report: WorkspaceReport,
        by: &CoordinatorId,
    ) -> Result<(), ServiceError> {
        let id = id.clone();
        let by = by.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                let Some(before) = workspaces::get(tx, &id)? else {
                    return Ok(());
                };
                let after = before.clone().on(report.clone(), &by);
                if after != before {
                    workspaces::put(tx, &after)?;
                }
                if let WorkspaceReport::Kept { launch: Some(launch), content, .. } = &report
                    && (before.state, after.state) == (WorkspaceState::InUse, WorkspaceState::Ready)
                {
                    checks::note_kept(tx, &inputs, launch, content)?;
                }
                Ok(())
            })
            .await
    }

    /// Returns the workspaces of all projects or of one: those with files, or all.
    pub async fn list(
        &self,
        project: Option<&ProjectId>,
        with_removed: bool,
    ) -> Result<Vec<WorkspaceView>, ServiceError> {
        let project = project.cloned();
        let (checkouts, max_disk) = self.measured();
        let found = self.core.read(move |tx| {
            let mut found = Vec::new();
            let no_room = no_room(tx, &checkouts, max_disk)?;
            let rows = if with_removed {
                workspaces::list_all(tx, project.as_ref())?
            } else {
                workspaces::list(tx, project.as_ref())?
            };
            for mut workspace in rows {
                explain(tx, &mut workspace, no_room.as_ref())?;
                if let Some(task) = tasks::get(tx, &workspace.task)? {
                    found.push((workspace, task));
                }
            }
            Ok(found)
        });
        Ok(found.await?.into_iter().map(|(workspace, task)| self.view(workspace, task)).collect())
    }

    /// Returns the workspace that a task uses, or used last.
    ///
    /// # Errors
    /// `TaskNotFound`, `NoWorkspace`.
    pub async fn of_task(&self, id: &TaskId) -> Result<WorkspaceView, ServiceError> {
        let of = id.clone();
        let (checkouts, max_disk) = self.measured();
        let read = self.core.read(move |tx| {
            let (mut workspace, task) = find(tx, &of)?;
            let no_room = no_room(tx, &checkouts, max_disk)?;
            explain(tx, &mut workspace, no_room.as_ref())?;
            Ok::<_, ServiceError>((workspace, task))
        });
        let (workspace, task) = read.await?;
        Ok(self.view(workspace, task))
    }

    fn measured(&self) -> (OwnCheckouts, u64) {
        (Arc::clone(&self.checkouts), self.core.settings().workspace.max_disk)
    }

    fn view(&self, workspace: Workspace, task: Task) -> WorkspaceView {
        let has_files =
            !matches!(workspace.state, WorkspaceState::Wanted | WorkspaceState::Removed);
        let path = self.checkouts.get().filter(|_| has_files).map(|checkouts| {
            checkouts.places.directory(&workspace.project, &workspace.id, &workspace.subdirectory)
        });
        WorkspaceView { workspace, task, path, revert: None }
    }

    /// Returns the clones of this host, if they contain that of a task.
    fn host(&self, task: &Task) -> Result<&Arc<Checkouts>, Refusal> {
        let elsewhere = "its files are on the host of another coordinator";
        self.checkouts.get().ok_or_else(|| refused(task, elsewhere))
    }
}

fn failed(task: &Task, error: &CheckoutError) -> Refusal {
    refused(task, ErrorChain(error).to_string())
}

fn refused(task: &Task, reason: impl Into<String>) -> Refusal {
    Refusal::WorkspaceFailed { task: task.short_id.clone(), reason: reason.into() }
}

/// Returns the task and the workspace that it uses, or used last.
///
/// # Errors
/// `TaskNotFound`, `NoWorkspace`.
fn find(tx: &mut Read<'_>, id: &TaskId) -> Result<(Workspace, Task), ServiceError> {
    let task = tasks::get(tx, id)?.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?;
    let graph = graph_above(tx, std::slice::from_ref(&task))?;
    let owner = owner(&task, &graph).clone();
    match workspaces::newest_of_task(tx, &owner.id)? {
        Some(workspace) => Ok((workspace, task)),
        None => Err(Refusal::NoWorkspace { task: task.short_id }.into()),
    }
}

/// Adds to `facts` which task the next launch is given, and which clone it uses, if its project has
/// clones.
/// `no_room` says why no clone can be made.
pub(super) fn look_up(
    tx: &mut Read<'_>,
    facts: &mut StartFacts,
    no_room: Option<&str>,
) -> Result<(), StoreError> {
    let has_tasks = facts.key.purpose != Purpose::Chat && facts.waiting_since.is_some();
    if !has_tasks {
        return Ok(());
    }
    let has_clones = facts.workspace_mode == WorkspaceMode::Clone;
    // The tasks of some items of forges have clones in each project.
    let may_have_clone = has_clones || workspaces::exist_in(tx, &facts.key.project)?;
    if facts.task.is_some() && !may_have_clone {
        return Ok(());
    }
    let is_check = facts.key.purpose == Purpose::Check;
    let candidates =
        if is_check { in_check(tx, &facts.key)? } else { in_progress(tx, &facts.key)? };
    let graph = graph_above(tx, &candidates)?;
    let next = if is_check { candidates.first() } else { next_task(None, &candidates, &graph) };
    let Some(task) = next else {
        return Ok(());
    };
    let since = task.checking_since.unwrap_or(task.status_since);
    facts.task = Some(TaskToStart { since, ..TaskToStart::of(task) });
    if may_have_clone {
        let owner = owner(task, &graph);
        let newest = workspaces::newest_of_task(tx, &owner.id)?;
        if has_clones || remotes::base_of_task(tx, &owner.id)?.is_some() {
            let workspace = newest.filter(|workspace| workspace.state != WorkspaceState::Removed);
            let no_room = no_room.map(str::to_owned);
            let is_wanted = |it: &Workspace| it.state == WorkspaceState::Wanted;
            let to_choose = if workspace.as_ref().is_some_and(is_wanted) {
                dependencies_of(tx, owner)?.to_choose
            } else {
                None
            };
            let task = task.id.clone();
            facts.clone = Some(NeededClone { task, workspace, no_room, to_choose });
        }
    }
    Ok(())
}

/// Returns whether the files that the launch needs are not on the host of this coordinator.
pub(super) fn is_elsewhere(facts: &StartFacts, by: Option<&CoordinatorId>) -> bool {
    let workspace = facts.clone.as_ref().and_then(|clone| clone.workspace.as_ref());
    workspace.is_some_and(|workspace| workspace.coordinator.as_ref() != by)
}

/// Binds a launch that is being claimed to the task and its workspace.
pub(super) fn claim(
    tx: &mut Transaction<'_>,
    needed: NeededClone,
    launch: &mut Launch,
) -> Result<Option<ClonePlace>, StoreError> {
    let Some(workspace) = needed.workspace else {
        return Ok(None);
    };
    launch.task = Some(needed.task);
    launch.workspace = Some(workspace.id.clone());
    let used = workspace.claimed(launch.id.clone());
    workspaces::put(tx, &used)?;
    Ok(Some(ClonePlace { id: used.id, subdirectory: used.subdirectory }))
}

/// Returns the clone of a launch.
pub(super) fn place_of(
    tx: &mut Read<'_>,
    launch: &Launch,
) -> Result<Option<ClonePlace>, StoreError> {
    let Some(id) = &launch.workspace else {
        return Ok(None);
    };
    let workspace = workspaces::get(tx, id)?;
    Ok(workspace.map(|Workspace { id, subdirectory, .. }| ClonePlace { id, subdirectory }))
}

/// Returns the folder in which the agent of a launch works.
pub(super) fn directory_of(
    tx: &mut Read<'_>,
    launch: &Launch,
    project: Option<&Project>,
    checkouts: &OwnCheckouts,
) -> Result<PathBuf, StoreError> {
    let shared = || project.map(|project| project.working_directory.clone()).unwrap_or_default();
    let place = place_of(tx, launch)?.zip(checkouts.get());
    Ok(place.map_or_else(shared, |(place, checkouts)| {
        checkouts.places.directory(&launch.key.project, &place.id, &place.subdirectory)
    }))
}

/// Returns the directories of those launches that work on tasks without a clone.
pub(super) fn shared_directories(
    tx: &mut Read<'_>,
    open: &[Launch],
) -> Result<BTreeMap<LaunchId, PathBuf>, StoreError> {
    let mut of_projects: BTreeMap<&ProjectId, Option<PathBuf>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    let is_shared =
        |launch: &&Launch| launch.key.purpose == Purpose::Task && launch.workspace.is_none();
    for launch in open.iter().filter(is_shared) {
        let project = &launch.key.project;
        if !of_projects.contains_key(project) {
            let directory = projects::get(tx, project)?.map(|project| project.working_directory);
            of_projects.insert(project, directory);
        }
        let directory = of_projects.get(project).cloned().flatten();
        found.extend(directory.map(|directory| (launch.id.clone(), directory)));
    }
    Ok(found)
}
