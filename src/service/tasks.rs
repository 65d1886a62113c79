//! The tasks that people keep. Each call is one commit.

use std::borrow::Cow;

use crate::domain::Timestamp;
use crate::domain::event::NewEvent;
use crate::domain::id::{AgentId, ProjectId, TaskId};
use crate::domain::limits;
use crate::domain::task::Actor;
use crate::domain::{Execution, InstanceKey, Priority, Purpose, Refusal, Task, TaskStatus};
use crate::rows::{Transaction, pairs};
use crate::store::{Change, Commit, StoreError, TaskFilter};

use super::catalog::{check_assignable, edited, project};
use super::history::check_seen;
use super::task_rules::{TaskChange, change_task};
use super::told::of_pair;
use super::{Service, ServiceError};

/// A task to be made.
#[derive(Debug, Clone)]
pub struct NewTask {
    pub id: Option<TaskId>,
    pub project: ProjectId,
    pub title: String,
    pub description: String,
    pub status: TaskStatus,
    pub priority: Priority,
    pub assignee: Option<AgentId>,
    pub parent: Option<TaskId>,
    pub dependencies: Vec<TaskId>,
}

/// What is to be different about a task; `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct TaskEdit {
    pub title: Option<String>,
    pub description: Option<String>,
    pub priority: Option<Priority>,
    /// `Some(None)` takes the task away from its assignee.
    pub assignee: Option<Option<AgentId>>,
    /// `Some(None)` makes it a top task.
    pub parent: Option<Option<TaskId>>,
    /// All of them.
    pub dependencies: Option<Vec<TaskId>>,
    pub status: Option<TaskStatus>,
    /// Why it is blocked; of a task that isn't, nothing.
    pub reason: Option<String>,
    /// The revision that somebody saw who wants it so; `None` whatever it is.
    pub seen: Option<i64>,
}

/// A task with what hangs on it.
#[derive(Debug, Clone)]
pub struct TaskView {
    pub task: Task,
    /// At every depth, each before its own.
    pub subtasks: Vec<Task>,
    pub dependencies: Vec<Task>,
    /// The newest first.
    pub executions: Vec<Execution>,
}

impl Service {
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, ServiceError> {
        Ok(self.store.tasks(filter).await?)
    }

    /// # Errors
    /// `TaskNotFound`.
    pub async fn task(&self, id: &TaskId) -> Result<TaskView, ServiceError> {
        let task = self.find_task(id).await?;
        let mut dependencies = Vec::with_capacity(task.dependencies.len());
        for dependency in &task.dependencies {
            dependencies.extend(self.store.task(dependency).await?);
        }
        let subtasks = self.tasks_below(id, |_| true).await?;
        let executions = self.store.executions_of_task(id).await?.into_iter();
        let executions =
            executions.map(|execution| self.execution_with_activity(execution)).collect();
        Ok(TaskView { task, subtasks, dependencies, executions })
    }

    async fn find_task(&self, id: &TaskId) -> Result<Task, ServiceError> {
        let task = self.store.task(id).await?;
        Ok(task.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?)
    }

    /// Makes a task; one that is in progress starts its agent.
    ///
    /// # Errors
    /// `AlreadyExists`, the refusals of [`limits`] and of [`change`](crate::domain::task::change), `ProjectNotFound`, and for an assignee
    /// `AgentNotFound` and `NotAssigned`.
    pub async fn add_task(&self, new: &NewTask) -> Result<TaskView, ServiceError> {
        let id = new.id.clone().unwrap_or_else(|| self.world.new_id(TaskId::PREFIX));
        self.transact(|| async {
            if self.store.task(&id).await?.is_some() {
                return Err(Refusal::AlreadyExists(format!("task {id}")).into());
            }
            self.project(&new.project).await?;
            self.check_assignable(new.assignee.as_ref(), &new.project).await?;
            let task = self.new_task(id.clone(), new)?;
            let TaskChange { task, expect, mut changes } =
                self.change_task(None, &task, Actor::Person).await?;
            changes.extend(self.release_for(&task).await?);
            Ok((Commit { expect, changes }, ()))
        })
        .await?;
        self.task(&id).await
    }

    /// A task that isn't stored yet.
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub(super) fn new_task(&self, id: TaskId, new: &NewTask) -> Result<Task, Refusal> {
        let now = self.now();
        Ok(Task {
            id,
            project: new.project.clone(),
            parent: new.parent.clone(),
            title: limits::TITLE.take(&new.title)?.into_owned(),
            description: limits::DESCRIPTION.take(&new.description)?.into_owned(),
            status: new.status,
            priority: new.priority,
            assignee: new.assignee.clone(),
            dependencies: each_once(&new.dependencies),
            blocked_reason: None,
            created_at: now,
            status_since: now,
            revision: 0,
        })
    }

    /// Changes a task. Setting it in progress, even when it is that already, lets its pair start again.
    ///
    /// # Errors
    /// `TaskNotFound`, the refusals of [`limits`] and of [`change`](crate::domain::task::change), `NotAssigned` for an assignee outside the project.
    pub async fn set_task(&self, id: &TaskId, edit: &TaskEdit) -> Result<TaskView, ServiceError> {
        self.transact(|| async move {
            let before = self.find_task(id).await?;
            check_seen("Task", id, edit.seen, before.revision)?;
            let assignee = edit.assignee.clone().unwrap_or_else(|| before.assignee.clone());
            if assignee != before.assignee {
                self.check_assignable(assignee.as_ref(), &before.project).await?;
            }
            let status = edit.status.unwrap_or(before.status);
            let reason = limits::REASON.take_optional(edit.reason.as_deref())?.map(Cow::into_owned);
            let reason = reason.or_else(|| before.blocked_reason.clone());
            let after = Task {
                title: edited(limits::TITLE, edit.title.as_deref(), before.title.clone())?,
                description: edited(
                    limits::DESCRIPTION,
                    edit.description.as_deref(),
                    before.description.clone(),
                )?,
                priority: edit.priority.unwrap_or(before.priority),
                parent: edit.parent.clone().unwrap_or_else(|| before.parent.clone()),
                dependencies: edit
                    .dependencies
                    .as_deref()
                    .map_or_else(|| before.dependencies.clone(), each_once),
                assignee,
                status,
                blocked_reason: reason.filter(|_| status == TaskStatus::Blocked),
                ..before.clone()
            };
            let change = self.change_task(Some(&before), &after, Actor::Person).await?;
            let TaskChange { task, expect, mut changes } = change;
            if edit.status == Some(TaskStatus::InProgress) {
                changes.extend(self.release_for(&task).await?);
            }
            self.tell_agents(&mut changes, None).await?;
            Ok((Commit { expect, changes }, ()))
        })
        .await?;
        self.task(id).await
    }

    /// Whether an agent exists and belongs to the project.
    pub(super) async fn check_assignable(
        &self,
        agent: Option<&AgentId>,
        project: &ProjectId,
    ) -> Result<(), ServiceError> {
        let Some(agent) = agent else { return Ok(()) };
        self.agent(agent).await?;
        let (_, members) = self.project(project).await?;
        if members.contains(agent) {
            Ok(())
        } else {
            Err(Refusal::NotAssigned { agent: agent.clone(), project: project.clone() }.into())
        }
    }

    /// A task that a person sets in progress ends the hold and the back-off of its pair, for each purpose.
    pub(super) async fn release_for(&self, task: &Task) -> Result<Vec<Change>, ServiceError> {
        let mut changes = Vec::new();
        if let (TaskStatus::InProgress, Some(agent)) = (task.status, &task.assignee) {
            for purpose in [Purpose::Task, Purpose::Chat] {
                let key = InstanceKey::new(agent.clone(), task.project.clone(), purpose);
                let record = self.store.pair(&key).await?;
                let released = record.clone().released();
                if released != record {
                    changes.push(Change::Event(of_pair("pair.released", self.now(), &key)));
                    changes.push(Change::Pair(released));
                }
            }
        }
        Ok(changes)
    }
}

/// Ends the hold and the back-off of the pair of a task that a person set in progress, for each purpose.
pub(super) fn release_for(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    if let (TaskStatus::InProgress, Some(agent)) = (task.status, &task.assignee) {
        for purpose in [Purpose::Task, Purpose::Chat] {
            let key = InstanceKey::new(agent.clone(), task.project.clone(), purpose);
            let record = pairs::get(tx, &key)?;
            let released = record.clone().released();
            if released != record {
                tx.event(NewEvent::of_pair("pair.released", tx.now(), &key));
                pairs::put(tx, &released)?;
            }
        }
    }
    Ok(())
}

impl NewTask {
    /// Returns the task, which is not stored yet.
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub(super) fn to_task(&self, id: TaskId, now: Timestamp) -> Result<Task, Refusal> {
        Ok(Task {
            id,
            project: self.project.clone(),
            parent: self.parent.clone(),
            title: limits::TITLE.take(&self.title)?.into_owned(),
            description: limits::DESCRIPTION.take(&self.description)?.into_owned(),
            status: self.status,
            priority: self.priority,
            assignee: self.assignee.clone(),
            dependencies: each_once(&self.dependencies),
            blocked_reason: None,
            created_at: now,
            status_since: now,
            revision: 0,
        })
    }
}

/// Makes a task in the name of a person. In progress, it lets its pair start again.
///
/// # Errors
/// `ProjectNotFound`, the refusals of [`limits`] and of [`change`](crate::domain::task::change), `NotAssigned`.
pub(super) fn create_task(
    tx: &mut Transaction<'_>,
    id: TaskId,
    new: &NewTask,
) -> Result<Task, ServiceError> {
    project(tx, &new.project)?;
    check_assignable(tx, new.assignee.as_ref(), &new.project)?;
    let task = new.to_task(id, tx.now())?;
    let task = change_task(tx, None, &task, Actor::Person)?.task;
    release_for(tx, &task)?;
    Ok(task)
}

/// The ids in their order, without those that came before.
pub(super) fn each_once(ids: &[TaskId]) -> Vec<TaskId> {
    let mut once: Vec<TaskId> = Vec::with_capacity(ids.len());
    for id in ids {
        if !once.contains(id) {
            once.push(id.clone());
        }
    }
    once
}
