//! Archiving, deleting and undoing: what people do with tasks, agents and projects that have ended.
//!
//! A deletion takes rows out of their tables in one transaction, and keeps them as they were until
//! it cannot be undone any more. So no other code has to know of deleted things: the next
//! transaction finds that they do not exist. `maintenance` then removes the rest for good.

mod facts;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::agent::{AgentStatus, ProjectStatus};
use crate::domain::removal::{
    Affected, DeletedContent, DeletedLink, DeletedName, Deletion, RemovalAction, RemovalFacts,
    undo_over,
};
use crate::domain::task::Actor;
use crate::domain::workspace::WorkspaceState;
use crate::domain::{Agent, Assignment, Project, Refusal, Removable, Task, TaskId, Timestamp};
use crate::rows::{Transaction, agents, assignments, deletions, projects, tasks, workspaces};
use crate::store::{Read, StoreError};

use super::core::Core;
use super::tasks::ids::short_id_in;
use super::tasks::rules::{change_task, graph_around, tasks_below, write_task};
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
    /// The last time at which the deletion can be undone, after one.
    pub undo_until: Option<Timestamp>,
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

    /// Deletes a thing that has ended, with all that belongs to it. It can be undone for
    /// `retention.deleted`.
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
                let undo_until = tx.now() + inputs.settings.retention.deleted;
                delete(tx, &inputs, &of, facts, undo_until)?;
                Ok(RemovalView { undo_until: Some(undo_until), ..view })
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

    /// Undoes a deletion. A thing that exists stays as it is.
    ///
    /// # Errors
    /// `UndoOver`; `CannotComeBack` if something that it needs was deleted, too; `TaskNotFound`,
    /// `AgentNotFound` and `ProjectNotFound` for what was never deleted.
    pub async fn undelete(&self, of: &Removable) -> Result<(), ServiceError> {
        let of = of.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                if exists(tx, &of)? {
                    return Ok(());
                }
                let Some(deletion) = deletions::find(tx, &of)? else {
                    let was_deleted = deletions::name(tx, &of)?.is_some();
                    return Err(if was_deleted { undo_over(&of) } else { not_found(&of) }.into());
                };
                deletion.check_undo(tx.now())?;
                undelete(tx, &inputs, deletion)
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
                if exists(tx, &Removable::Task(id.clone()))? {
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

fn exists(tx: &mut Read<'_>, of: &Removable) -> Result<bool, StoreError> {
    Ok(match of {
        Removable::Task(id) => tasks::get(tx, id)?.is_some(),
        Removable::Agent(id) => agents::get(tx, id)?.is_some(),
        Removable::Project(id) => projects::get(tx, id)?.is_some(),
    })
}

fn not_found(of: &Removable) -> Refusal {
    match of.clone() {
        Removable::Task(task) => Refusal::TaskNotFound { task },
        Removable::Agent(agent) => Refusal::AgentNotFound { agent },
        Removable::Project(project) => Refusal::ProjectNotFound { project },
    }
}

fn delete(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    of: &Removable,
    facts: RemovalFacts,
    undo_until: Timestamp,
) -> Result<(), ServiceError> {
    let RemovalFacts { tasks, dependents, .. } = facts;
    let mut content = DeletedContent { tasks, ..DeletedContent::default() };
    let is_concerned = |assignment: &Assignment| match of {
        Removable::Task(_) => false,
        Removable::Agent(agent) => assignment.agent == *agent,
        Removable::Project(project) => assignment.project == *project,
    };
    let all = assignments::list(tx)?;
    content.assignments = all.into_iter().filter(is_concerned).collect();
    match of {
        Removable::Task(_) => {}
        Removable::Agent(id) => content.agents.extend(agents::get(tx, id)?),
        Removable::Project(id) => content.projects.extend(projects::get(tx, id)?),
    }
    content.links = unlink(tx, inputs, &content.tasks, &dependents)?;
    let names = names_of(&content);
    let deletion = Deletion { of: of.clone(), deleted_at: tx.now(), undo_until, content };
    Ok(deletions::add(tx, &deletion, &names)?)
}

/// Takes tasks that are deleted out of the dependencies of those that stay. Returns the lost
/// dependencies.
fn unlink(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    going: &[Task],
    dependents: &[Task],
) -> Result<Vec<DeletedLink>, ServiceError> {
    let mut links = Vec::new();
    for before in dependents {
        let goes = |id: &TaskId| going.iter().any(|task| task.id == *id);
        let (lost, kept): (Vec<TaskId>, Vec<TaskId>) =
            before.dependencies.iter().cloned().partition(goes);
        let after = Task { dependencies: kept, ..before.clone() };
        let news = change_task(tx, Some(before), &after, Actor::Person)?.news;
        inputs.tell_agents(tx, &news, None)?;
        let link = |dependency| DeletedLink { task: before.id.clone(), dependency };
        links.extend(lost.into_iter().map(link));
    }
    Ok(links)
}

fn names_of(content: &DeletedContent) -> Vec<DeletedName> {
    let tasks = content.tasks.iter().map(|task| DeletedName {
        of: Removable::Task(task.id.clone()),
        short_id: Some(task.short_id.to_string()),
        name: task.title.clone(),
    });
    let agents = content.agents.iter().map(|agent| DeletedName {
        of: Removable::Agent(agent.id.clone()),
        short_id: None,
        name: agent.name.clone(),
    });
    let projects = content.projects.iter().map(|project| DeletedName {
        of: Removable::Project(project.id.clone()),
        short_id: None,
        name: project.name.clone(),
    });
    tasks.chain(agents).chain(projects).collect()
}

fn undelete(
    tx: &mut Transaction<'_>,
    inputs: &Inputs,
    mut deletion: Deletion,
) -> Result<(), ServiceError> {
    let content = &mut deletion.content;
    if let (Removable::Task(_), Some(task)) = (&deletion.of, content.tasks.first()) {
        let what = format!("Task {}", task.short_id);
        let key = projects::get(tx, &task.project)?.map(|project| project.key);
        let Some(key) = key else {
            let missing = "its project does not exist".to_owned();
            return Err(Refusal::CannotComeBack { what, missing }.into());
        };
        if let Some(parent) = &task.parent
            && tasks::get(tx, parent)?.is_none()
        {
            let missing = "the task that it is part of does not exist".to_owned();
            return Err(Refusal::CannotComeBack { what, missing }.into());
        }
        // The project may have got another key meanwhile.
        for task in &mut content.tasks {
            task.short_id.key = key.clone();
        }
    }
    let coming: BTreeSet<TaskId> = content.tasks.iter().map(|task| task.id.clone()).collect();
    for task in &mut content.tasks {
        let mut dependencies = Vec::new();
        for id in std::mem::take(&mut task.dependencies) {
            let is_kept =
                coming.contains(&id) || is_there(tx, &deletion.of, &Removable::Task(id.clone()))?;
            dependencies.extend(is_kept.then_some(id));
        }
        task.dependencies = dependencies;
    }
    let mut assignments = Vec::new();
    for assignment in std::mem::take(&mut content.assignments) {
        let other = match &deletion.of {
            Removable::Agent(_) => Removable::Project(assignment.project.clone()),
            _ => Removable::Agent(assignment.agent.clone()),
        };
        assignments.extend(is_there(tx, &deletion.of, &other)?.then_some(assignment));
    }
    content.assignments = assignments;
    for DeletedLink { task, .. } in &content.links {
        is_there(tx, &deletion.of, &Removable::Task(task.clone()))?;
    }
    deletions::undo(tx, &deletion)?;
    for task in &deletion.content.tasks {
        check_restored(tx, task)?;
    }
    for DeletedLink { task, dependency } in deletion.content.links {
        let Some(before) = tasks::get(tx, &task)? else { continue };
        if before.dependencies.contains(&dependency) {
            continue;
        }
        let mut after = before.clone();
        after.dependencies.push(dependency);
        match change_task(tx, Some(&before), &after, Actor::Person) {
            Ok(changed) => inputs.tell_agents(tx, &changed.news, None)?,
            // It was begun or changed meanwhile, so that it may not depend on this task any more.
            Err(ServiceError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns whether something that comes back with `of` finds its other side.
///
/// # Errors
/// `CannotComeBack` if that was deleted and can come back itself.
fn is_there(tx: &mut Read<'_>, of: &Removable, other: &Removable) -> Result<bool, ServiceError> {
    if exists(tx, other)? {
        return Ok(true);
    }
    if !deletions::exists(tx, other)? {
        return Ok(false);
    }
    let named = |of: &Removable| format!("{} `{}`", of.kind(), of.id());
    Err(Refusal::CannotComeBack {
        what: format!("The {}", named(of)),
        missing: format!("the {} was deleted, too: undelete that first", named(other)),
    }
    .into())
}

/// Checks that a task which came back does not wait for itself: others may depend on new tasks by
/// now.
fn check_restored(tx: &mut Read<'_>, task: &Task) -> Result<(), ServiceError> {
    let graph = graph_around(tx, &[(None, task)])?;
    if graph.find_cycle(&task.id).is_none() {
        return Ok(());
    }
    let what = format!("Task {}", task.short_id);
    let missing = "it would wait for itself, by tasks that were changed since".to_owned();
    Err(Refusal::CannotComeBack { what, missing }.into())
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
