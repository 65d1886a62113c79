//! The tasks that people keep. Each call is one transaction.

mod comments;
pub(super) mod context;
pub(super) mod create;
pub(super) mod ids;
pub(super) mod mine;
pub(super) mod progress;
mod relatable;
pub(super) mod rules;
pub(super) mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::event::{Event, NewEvent};
use domain::id::TaskId;
use domain::repeat::Content;
use domain::task::{Actor, Mover, NewTask, Rank, TaskEdit, TaskSearch};
use domain::{
    Check, Comment, Conversation, Execution, InstanceKey, MadeByForm, ProjectId, Purpose, Refusal,
    Removable, Sent, ShortId, StartHistory, Task, TaskStatus,
};
use store::rows::{
    self, Transaction, agents, creation_digests, events, executions, project_keys, projects,
    start_histories, tasks,
};
use store::{Read, StoreError, TaskFilter};

use super::catalog::{check_assignable, project};
use super::checks;
use super::core::Core;
use super::launches::conversations;
use super::removals::check_id;
use super::repeats::check_repeats;
use super::revision::check_seen;
use super::workspaces::OwnCheckouts;
use super::{Heard, ServiceError, Shared, people};
use rules::{change_task, move_task, parts_of, tasks_below};

/// The most comments of a task that are shown with it.
const MAX_COMMENTS: usize = 50;
/// The number of tasks of a project that a search reads at once.
const SEARCHED_PAGE: usize = 500;

/// A task with its subtasks, dependencies and executions.
#[derive(Debug, Clone)]
pub struct TaskView {
    pub task: Task,
    /// The subtasks at every depth. Each task is before its own subtasks.
    pub subtasks: Vec<Task>,
    pub dependencies: Vec<Task>,
    /// The executions, the newest first.
    pub executions: Vec<Execution>,
    /// The checks that were run, the oldest first.
    pub checks: Vec<Check>,
    /// The newest comments of people, the oldest of them first.
    pub comments: Vec<Comment>,
    /// The conversations of its agents' CLIs, the newest first.
    pub conversations: Vec<Conversation>,
}

impl TaskView {
    /// Returns the unfinished dependencies after which the task begins by itself; none if a person
    /// has to begin it.
    pub fn starts_after(&self) -> impl Iterator<Item = &Task> {
        let is_wanted = self.task.start_wanted_since.is_some();
        self.dependencies.iter().filter(move |other| is_wanted && other.status != TaskStatus::Done)
    }
}

/// The numbers of tasks, for monitoring.
#[derive(Debug, Clone, Default)]
pub struct TaskFigures {
    pub by_status: Vec<(TaskStatus, u64)>,
    /// The longest wait of a task that is in progress, and whose agent has no launch.
    pub oldest_waiting: Option<Duration>,
    /// The agents in projects that have work, and failed so often that only a person resumes them.
    pub n_suspended: usize,
}

/// Tasks: those that people keep, and what agents do with theirs.
pub struct Tasks {
    core: Arc<Core>,
    heard: Heard,
    checkouts: OwnCheckouts,
}

impl Tasks {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, checkouts, .. } = shared;
        Self { core, heard, checkouts }
    }

    pub async fn list(&self, filter: &TaskFilter) -> Result<Vec<Task>, ServiceError> {
        let filter = filter.clone();
        self.core.read(move |tx| Ok(tasks::list(tx, &filter)?)).await
    }

    /// Returns at most `limit` tasks of all projects that contain all words of a text, the best
    /// first. Without a word, these are the open tasks whose status changed last.
    pub async fn search(&self, text: &str, limit: usize) -> Result<Vec<Task>, ServiceError> {
        let search = TaskSearch::new(text);
        self.core.read(move |tx| Ok(find_all(tx, &search, limit)?)).await
    }

    /// Returns the tasks of a selection that contain all words of a text, the best first.
    pub async fn list_found(
        &self,
        filter: &TaskFilter,
        text: &str,
    ) -> Result<Vec<Task>, ServiceError> {
        let filter = filter.clone();
        let search = TaskSearch::new(text);
        let read = self.core.read(move |tx| Ok(ranked(tx, &filter, &search)?));
        Ok(read.await?.into_values().collect())
    }

    /// Returns the short ids of tasks. A task that does not exist is left out.
    pub async fn short_ids(
        &self,
        ids: BTreeSet<TaskId>,
    ) -> Result<BTreeMap<TaskId, ShortId>, ServiceError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.core.read(move |tx| Ok(tasks::short_ids(tx, ids.iter().cloned())?)).await
    }

    /// Returns the short ids and the titles of tasks. A task that does not exist is left out.
    pub async fn titles(
        &self,
        ids: BTreeSet<TaskId>,
    ) -> Result<BTreeMap<TaskId, (ShortId, String)>, ServiceError> {
        self.core.read(move |tx| Ok(tasks::titles(tx, ids.iter().cloned())?)).await
    }

    /// Returns the numbers of all tasks.
    pub async fn figures(&self) -> Result<TaskFigures, ServiceError> {
        let read = self.core.read(|tx| {
            Ok((
                tasks::count_by_status(tx)?,
                tasks::oldest_waiting(tx)?,
                start_histories::list_suspended(tx)?,
            ))
        });
        let (by_status, since, suspended) = read.await?;
        let now = self.core.now();
        Ok(TaskFigures {
            by_status,
            oldest_waiting: since.map(|since| now.since(since)),
            n_suspended: suspended.len(),
        })
    }

    /// Returns the number of open tasks of each project that has any.
    pub async fn count_open(&self) -> Result<BTreeMap<ProjectId, usize>, ServiceError> {
        self.core.read(|tx| Ok(tasks::count_open(tx)?)).await
    }

    /// # Errors
    /// `TaskNotFound`.
    pub async fn get(&self, id: &TaskId) -> Result<Task, ServiceError> {
        let id = id.clone();
        self.core.read(move |tx| find(tx, &id)).await
    }

    /// # Errors
    /// `TaskNotFound`.
    pub async fn view(&self, id: &TaskId) -> Result<TaskView, ServiceError> {
        let id = id.clone();
        let view = self.core.read(move |tx| {
            let task = find(tx, &id)?;
            let mut dependencies = Vec::with_capacity(task.dependencies.len());
            for dependency in &task.dependencies {
                dependencies.extend(tasks::get(tx, dependency)?);
            }
            let subtasks = tasks_below(tx, &id, |_| true)?;
            let executions = executions::list_of_task(tx, &id)?;
            let checks = checks::list(tx, &id)?;
            let mut comments = rows::comments::list_newest(tx, &id, MAX_COMMENTS)?;
            comments.reverse();
            let conversations = rows::conversations::list_of_task(tx, &id)?;
            Ok(TaskView {
                task,
                subtasks,
                dependencies,
                executions,
                checks,
                comments,
                conversations,
            })
        });
        let mut view = view.await?;
        view.executions = view
            .executions
            .into_iter()
            .map(|execution| self.heard.activities.execution_with_newest(execution))
            .collect();
        Ok(view)
    }

    /// Lets the next launch on a task begin its conversation afresh. A launch that works on it goes
    /// on.
    pub async fn begin_afresh(&self, id: &TaskId) -> Result<(), ServiceError> {
        let id = id.clone();
        self.core
            .write(move |tx| {
                let task = find(tx, &id)?;
                Ok(conversations::ask_afresh(tx, &task)?)
            })
            .await
    }

    /// Creates a task. A task that is in progress starts its agent. With an id that the client
    /// chose, the call can be repeated.
    ///
    /// # Errors
    /// `AlreadyExists` if other content created the task with the id; the refusals of
    /// [`limits`](domain::limits) and of [`change`](domain::task::change);
    /// `ProjectNotFound`; for an assignee `AgentNotFound` and `NotAssigned`.
    pub async fn add(&self, new: &NewTask) -> Result<Sent<TaskView>, ServiceError> {
        let id = new.id.clone().unwrap_or_else(|| self.core.world.new_id(TaskId::PREFIX));
        let salt = self.core.world.new_salt();
        let task = id.clone();
        let new = new.clone();
        let sent = self.core.write(move |tx| {
            let of = Removable::Task(task.clone());
            if let Some(known) = tasks::get(tx, &task)? {
                let asked = new.to_task(task.clone(), known.short_id.clone(), tx.now())?;
                check_repeats(tx, &of, &Content::of_task(&asked), || Content::of_task(&known))?;
                return Ok(Sent::Again(()));
            }
            check_id(tx, &of)?;
            let made = create_task(tx, task.clone(), &new)?;
            if new.id.is_some() {
                creation_digests::add(tx, &of, &Content::of_task(&made).digest(salt))?;
            }
            Ok(Sent::First(()))
        });
        let sent = sent.await?;
        let view = self.view(&id).await?;
        Ok(match sent {
            Sent::First(()) => Sent::First(view),
            Sent::Again(()) => Sent::Again(view),
        })
    }

    /// Creates the task of a form, or returns the one that the form created before.
    ///
    /// # Errors
    /// `FormRefused` if the form created a task with other content; those of [`Tasks::add`].
    pub async fn add_by_form(
        &self,
        new: &NewTask,
        form: &MadeByForm<TaskId>,
    ) -> Result<Sent<Task>, ServiceError> {
        let new = new.clone();
        let form = form.clone();
        self.core
            .write(move |tx| {
                let made = tasks::list_with_prefix(tx, &form.stem, 1)?.pop();
                let names = made.iter().map(|task| (&task.id, task.short_id.to_string()));
                if form.has_made(names)? {
                    return Ok(Sent::Again(find(tx, &form.id)?));
                }
                check_id(tx, &Removable::Task(form.id.clone()))?;
                Ok(Sent::First(create_task(tx, form.id.clone(), &new)?))
            })
            .await
    }

    /// Changes a task. Setting it in progress lets its pair start again, even if the task is in
    /// progress already. Setting it to done needs no checks.
    ///
    /// # Errors
    /// `TaskNotFound`, the refusals of [`limits`](domain::limits) and of
    /// [`change`](domain::task::change), `NotAssigned` for an assignee outside the project.
    pub async fn set(&self, id: &TaskId, edit: &TaskEdit) -> Result<TaskView, ServiceError> {
        let of = id.clone();
        let edit = edit.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                let before = find(tx, &of)?;
                let after = edit.apply(&before)?;
                // An edit whose answer was lost is sent again, and finds itself done.
                if after != before || edit.status.is_some() {
                    check_seen("Task", &of, edit.seen, before.revision)?;
                }
                if let Some(assignee) = &edit.assignee
                    && *assignee != before.assignee
                {
                    check_assignable(tx, assignee.as_ref(), &before.project)?;
                }
                let mut news = Vec::new();
                if edit.cancels_subtasks && after.status == TaskStatus::Done {
                    for part in parts_of(tx, &of)?.iter().filter(|part| part.status.is_open()) {
                        let moved =
                            move_task(tx, part, TaskStatus::Cancelled, None, Actor::Person)?;
                        news.extend(moved.news);
                    }
                }
                let changed = change_task(tx, Some(&before), &after, Actor::Person)?;
                news.extend(changed.news);
                if edit.status == Some(TaskStatus::InProgress) {
                    release_for(tx, &changed.task)?;
                }
                Ok(inputs.tell_agents(tx, &news, None)?)
            })
            .await?;
        self.view(id).await
    }

    /// Returns the names of those who gave these tasks their status, each a person or an agent.
    pub async fn movers(
        &self,
        ids: BTreeSet<TaskId>,
    ) -> Result<BTreeMap<TaskId, Mover>, ServiceError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let read = self.core.read(move |tx| {
            let mut movers = BTreeMap::new();
            for id in &ids {
                movers.extend(events::mover_of_task(tx, id)?.map(|mover| (id.clone(), mover)));
            }
            Ok(movers)
        });
        let mut movers: BTreeMap<TaskId, Mover> = read.await?;
        for mover in movers.values_mut() {
            if let Mover::Person(name) = mover {
                *name = people::name_of(std::mem::take(name)).await;
            }
        }
        Ok(movers)
    }

    /// Returns the name of the person who set a task to done; `None` if the work of its agent did,
    /// and for a task that is not done or was created as done.
    pub async fn done_by(&self, task: &Task) -> Result<Option<String>, ServiceError> {
        if task.status != TaskStatus::Done || task.status_since == task.created_at {
            return Ok(None);
        }
        let mover = self.movers(BTreeSet::from([task.id.clone()])).await?.remove(&task.id);
        Ok(match mover {
            Some(Mover::Person(name)) => Some(name),
            Some(Mover::Agent(_)) | None => None,
        })
    }

    /// Returns the kept events of a task after this number, in order.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub async fn history(
        &self,
        id: &TaskId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Event>, ServiceError> {
        let id = id.clone();
        self.core
            .read(move |tx| {
                find(tx, &id)?;
                Ok(events::list_of_task(tx, &id, after, limit)?)
            })
            .await
    }

    /// Returns the newest milestones of a task, the newest first, at most `limit`.
    pub async fn milestones(&self, id: &TaskId, limit: usize) -> Result<Vec<Event>, ServiceError> {
        let id = id.clone();
        self.core.read(move |tx| Ok(events::list_milestones_of_task(tx, &id, limit)?)).await
    }

    /// Returns the tasks that wait for a task, and the name of the person who changed it last, if a
    /// person did.
    pub async fn dependents_and_last_author(
        &self,
        task: &Task,
    ) -> Result<(Vec<Task>, Option<String>), ServiceError> {
        let task = task.clone();
        let read = self.core.read(move |tx| {
            let dependents = tasks::list_dependents(tx, &task)?;
            Ok((dependents, events::last_author_of_task(tx, &task.id)?))
        });
        read.await
    }
}

/// # Errors
/// `TaskNotFound`.
pub(super) fn find(tx: &mut Read<'_>, id: &TaskId) -> Result<Task, ServiceError> {
    let task = tasks::get(tx, id)?;
    Ok(task.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?)
}

/// Takes the short id of a new task. A use case that is refused gives it back.
///
/// # Errors
/// `ProjectNotFound`.
fn new_short_id(tx: &mut Transaction<'_>, project: &ProjectId) -> Result<ShortId, ServiceError> {
    let short_id = project_keys::take_short_id(tx, project)?;
    Ok(short_id.ok_or_else(|| Refusal::ProjectNotFound { project: project.clone() })?)
}

/// Ends the hold and the back-off of the pair of a task that a person set in progress, for each
/// purpose.
pub(super) fn release_for(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    let is_to_start = task.status == TaskStatus::InProgress || task.start_wanted_since.is_some();
    if let (true, Some(agent)) = (is_to_start, &task.assignee) {
        for purpose in [Purpose::Task, Purpose::Chat, Purpose::Check] {
            let key = InstanceKey::new(agent.clone(), task.project.clone(), purpose);
            if start_histories::change(tx, &key, StartHistory::released)? {
                tx.event(NewEvent::of_pair("pair.released", tx.now(), &key));
            }
        }
    }
    Ok(())
}

/// Creates a task in the name of a person. A task in progress lets its pair start again.
///
/// # Errors
/// `ProjectNotFound`, the refusals of [`limits`](domain::limits) and of
/// [`change`](domain::task::change), `NotAssigned`.
pub(super) fn create_task(
    tx: &mut Transaction<'_>,
    id: TaskId,
    new: &NewTask,
) -> Result<Task, ServiceError> {
    project(tx, &new.project)?;
    check_assignable(tx, new.assignee.as_ref(), &new.project)?;
    let short_id = new_short_id(tx, &new.project)?;
    let task = new.to_task(id, short_id, tx.now())?;
    let task = change_task(tx, None, &task, Actor::Person)?.task;
    release_for(tx, &task)?;
    Ok(task)
}

/// Returns the tasks of a selection that a search finds, by rank.
fn ranked(
    tx: &mut Read<'_>,
    filter: &TaskFilter,
    search: &TaskSearch,
) -> Result<BTreeMap<Rank, Task>, StoreError> {
    let names = agents::list_names(tx)?;
    let ranked = tasks::list(tx, filter)?.into_iter().filter_map(|task| {
        let assignee = task.assignee.as_ref().and_then(|id| names.get(id));
        Some((search.rank(&task, assignee.map(String::as_str))?, task))
    });
    Ok(ranked.collect())
}

/// Returns the best tasks of a search, at most `limit`.
fn find_all(tx: &mut Read<'_>, search: &TaskSearch, limit: usize) -> Result<Vec<Task>, StoreError> {
    let names = agents::list_names(tx)?;
    let mut found = BTreeMap::new();
    for project in projects::list(tx)? {
        let mut after = 0;
        loop {
            let page = tasks::list_by_number(tx, &project.id, after, SEARCHED_PAGE)?;
            let is_last = page.len() < SEARCHED_PAGE;
            after = page.last().map_or(after, |task| task.short_id.number);
            for task in page {
                let assignee = task.assignee.as_ref().and_then(|id| names.get(id));
                if let Some(rank) = search.rank(&task, assignee.map(String::as_str)) {
                    found.insert(rank, task);
                }
            }
            while found.len() > limit {
                found.pop_last();
            }
            if is_last {
                break;
            }
        }
    }
    Ok(found.into_values().collect())
}
