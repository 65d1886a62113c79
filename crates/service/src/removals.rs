//! Archiving and deleting: what people do with tasks, agents and projects that have ended.
//!
//! A deletion is final. One transaction removes the rows of the thing, so other code needs no rule
//! for deleted things. The launches of a deleted project and the workspaces of deleted tasks stay
//! at first, and `maintenance` removes them later.

mod facts;

use std::sync::Arc;

use domain::agent::{AgentStatus, ProjectStatus};
use domain::removal::{Affected, RemovalAction, RemovalFacts};
use domain::task::Actor;
use domain::workspace::WorkspaceState;
use domain::{Agent, Project, Refusal, Removable, Task, TaskId};
use store::rows::{Transaction, agents, deletions, projects, tasks, workspaces};
use store::{Read, StoreError};

use super::core::Core;
use super::tasks::ids::short_id_in;
use super::tasks::rules::{change_task, tasks_below, write_task};
use super::workspaces::until_none_is_kept;
use super::{Heard, Inputs, ServiceError, Shared, catalog, tasks as all_tasks};

/// The things that a deletion would take along or has taken along.
#[derive(Debug, Clone)]
pub struct RemovalView {
    pub of: Removable,
    /// Its name in sentences, such as `Task SHOP-12`.
    pub what: String,
    pub name: String,
    pub affected: Vec<Affected>,
    /// The reason why it cannot be deleted.
    pub refusal: Option<Refusal>,
}

/// Archived and deleted tasks, agents and projects.
pub struct Removals {
    core: Arc<Core>,
    heard: Heard,
}

impl Removals {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, .. } = shared;
        Self { core, heard }
    }

    /// Returns what a deletion would take along, and whether it would be refused. `discards` says
    /// that results that are not merged may be given up.
    ///
    /// # Errors
    /// `TaskNotFound`, `AgentNotFound`, `ProjectNotFound`.
    pub async fn preview(
        &self,
        of: &Removable,
        discards: bool,
    ) -> Result<RemovalView, ServiceError> {
        self.until_kept(of, discards).await?;
        let of = of.clone();
        self.core
            .read(move |tx| {
                let facts = facts::of(tx, &of)?;
                let refusal = facts.check(RemovalAction::Delete, discards).err();
                let view = facts::view(tx, &of, &facts)?;
                Ok(RemovalView { refusal, ..view })
            })
            .await
    }

    /// Deletes a thing that has ended, with all that belongs to it. It does not come back.
    ///
    /// # Errors
    /// `TaskNotFound`, `AgentNotFound`, `ProjectNotFound`, and those of [`RemovalFacts::check`].
    pub async fn delete(
        &self,
        of: &Removable,
        discards: bool,
    ) -> Result<RemovalView, ServiceError> {
        self.until_kept(of, discards).await?;
        let of = of.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                let facts = facts::of(tx, &of)?;
                facts.check(RemovalAction::Delete, discards)?;
                let view = facts::view(tx, &of, &facts)?;
                delete(tx, &inputs, &of, &facts, &view.name)?;
                Ok(view)
            })
            .await
    }

    /// Waits until the work on all tasks that would go is kept, so that it is known whether there
    /// is any. Another refusal does not wait.
    async fn until_kept(&self, of: &Removable, discards: bool) -> Result<(), ServiceError> {
        let of = of.clone();
        let ids = self.core.read(move |tx| Ok(facts::of(tx, &of)?.being_kept(discards))).await?;
        until_none_is_kept(&self.core, move |tx| {
            for id in &ids {
                let found = workspaces::get(tx, id)?;
                if found.is_some_and(|found| found.state == WorkspaceState::InUse) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Archives a thing that has ended, so that boards and lists leave it out. One that is archived
    /// stays so.
    ///
    /// # Errors
    /// `TaskNotFound`, `AgentNotFound`, `ProjectNotFound`, `NotRemovable`.
    pub async fn archive(&self, of: &Removable) -> Result<(), ServiceError> {
        let of = of.clone();
        self.core
            .write(move |tx| {
                check_archive(tx, &of)?;
                set_archived(tx, &of, true)
            })
            .await
    }

    /// Shows an archived thing again, at any time.
    ///
    /// # Errors
    /// `TaskNotFound`, `AgentNotFound`, `ProjectNotFound`.
    pub async fn unarchive(&self, of: &Removable) -> Result<(), ServiceError> {
        let of = of.clone();
        self.core.write(move |tx| set_archived(tx, &of, false)).await
    }

    /// Returns the last names of deleted agents and projects.
    pub async fn names(&self) -> Result<Vec<(Removable, String)>, ServiceError> {
        self.core.read(|tx| Ok(deletions::list_names(tx)?)).await
    }

    /// Returns the full id of a task that a person names, also of one that was deleted; `id` itself
    /// if there never was such a task.
    pub async fn full_id(&self, id: TaskId) -> Result<TaskId, ServiceError> {
        let Some(short_id) = short_id_in(&id) else { return Ok(id) };
        self.core
            .read(move |tx| {
                if tasks::get(tx, &id)?.is_some() {
                    return Ok(id.clone());
                }
                let there = tasks::find_short(tx, &short_id)?.map(|task| task.id);
                let found = match there {
                    Some(there) => Some(there),
                    None => deletions::find_short(tx, &short_id)?,
                };
                Ok(found.unwrap_or_else(|| id.clone()))
            })
            .await
    }
}

/// Checks that a thing has ended, so that it may be archived.
///
/// # Errors
/// `TaskNotFound`, `AgentNotFound`, `ProjectNotFound`, `NotRemovable`.
pub(super) fn check_archive(tx: &mut Read<'_>, of: &Removable) -> Result<(), ServiceError> {
    Ok(facts::of(tx, of)?.check(RemovalAction::Archive, false)?)
}

/// Checks that no thing with this id was deleted.
///
/// # Errors
/// `DeletedId`.
pub(super) fn check_id(tx: &mut Read<'_>, of: &Removable) -> Result<(), ServiceError> {
    Ok(refuse_id(tx, of)?.map_or(Ok(()), Err)?)
}

/// Returns the refusal of an id that a deleted thing had.
pub(super) fn refuse_id(tx: &mut Read<'_>, of: &Removable) -> Result<Option<Refusal>, StoreError> {
    let was_deleted = deletions::name(tx, of)?.is_some();
    let refusal = || Refusal::DeletedId { kind: of.kind(), id: of.id().to_owned() };
    Ok(was_deleted.then(refusal))
}

/// Deletes the thing with these facts. `name` is its last name.
fn delete(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    of: &Removable,
    facts: &RemovalFacts,
    name: &str,
) -> Result<(), ServiceError> {
    let RemovalFacts { tasks, dependents, .. } = facts;
    unlink(tx, inputs, tasks, dependents)?;
    deletions::add(tx, of, name, tasks)?;
    // The coordinator removes the files of workspaces.
    let now = tx.now();
    for task in tasks {
        for workspace in workspaces::list_of_task(tx, &task.id)? {
            let orphan = workspace.clone().orphaned(now);
            if orphan != workspace {
                workspaces::put(tx, &orphan)?;
            }
        }
    }
    Ok(())
}

/// Takes tasks that are deleted out of the dependencies of those that stay.
fn unlink(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    going: &[Task],
    dependents: &[Task],
) -> Result<(), ServiceError> {
    for before in dependents {
        let stays = |id: &&TaskId| going.iter().all(|task| task.id != **id);
        let dependencies = before.dependencies.iter().filter(stays).cloned().collect();
        let after = Task { dependencies, ..before.clone() };
        let news = change_task(tx, Some(before), &after, Actor::Person)?.news;
        inputs.tell_agents(tx, &news, None)?;
    }
    Ok(())
}

fn set_archived(
    tx: &mut Transaction<'_>,
    of: &Removable,
    is_archived: bool,
) -> Result<(), ServiceError> {
    match of {
        Removable::Task(id) => {
            let task = all_tasks::find(tx, id)?;
            let mut all = tasks_below(tx, &task.id, |_| true)?;
            all.insert(0, task);
            let at = is_archived.then(|| tx.now());
            let changed = all.into_iter().filter(|task| task.archived_at.is_some() != is_archived);
            for task in changed {
                let kind = if is_archived { "task.archived" } else { "task.unarchived" };
                let event = tasks::named_event(kind, &task, tx.now());
                write_task(tx, Task { archived_at: at, ..task }, Some(event))?;
            }
        }
        Removable::Agent(id) => {
            let before: Agent = catalog::agent(tx, id)?;
            if before.is_archived() != is_archived {
                let after = if is_archived {
                    before.with_status(AgentStatus::Archived)
                } else {
                    before.unarchived()
                };
                agents::put(tx, &after)?;
            }
        }
        Removable::Project(id) => {
            let before: Project = catalog::project(tx, id)?;
            if before.is_archived() != is_archived {
                let after = if is_archived {
                    before.with_status(ProjectStatus::Archived)
                } else {
                    before.unarchived()
                };
                projects::put(tx, &after)?;
            }
        }
    }
    Ok(())
}
