//! `update_task_status`: an agent moves a task, and is told what comes next (seed 001).

use crate::domain::event::NewEvent;
use crate::domain::id::TaskId;
use crate::domain::limits;
use crate::domain::task::{Actor, Surroundings, change_status};
use crate::domain::{Refusal, Task, TaskStatus, Timestamp};
use crate::store::{Change, Commit, Expect, StoreError, TaskFilter};

use super::{Caller, Service, ServiceError};

/// A task after its status was set.
#[derive(Debug, Clone)]
pub struct StatusChange {
    pub task: Task,
    pub previous: TaskStatus,
    /// What to do next; only after done.
    pub instruction: Option<&'static str>,
}

/// A task with another status, and the commit that makes it so.
pub(super) struct Moved {
    pub(super) task: Task,
    pub(super) expect: Vec<Expect>,
    pub(super) changes: Vec<Change>,
}

impl Service {
    /// Sets the status of a task for `caller`: one of its project that is assigned to it, or a subtask of such a one.
    ///
    /// # Errors
    /// The refusals of [`change_status`] and of [`limits`]; `TaskNotFound` also for tasks of other projects.
    pub async fn update_task_status(
        &self,
        caller: &Caller,
        id: &TaskId,
        to: TaskStatus,
        reason: Option<&str>,
    ) -> Result<StatusChange, ServiceError> {
        let key = &caller.session.key;
        let reason = limits::REASON.take_optional(reason)?;
        let reason = reason.as_deref();
        let change = self
            .transact(|| async move {
                let task = self.store.task(id).await?.filter(|task| task.project == key.project);
                let task = task.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?;
                let (_, mut expect) = self.fence(caller).await?;
                let moved = self.move_task(&task, to, reason, Actor::Agent(&key.agent)).await?;
                expect.extend(moved.expect);
                let change = StatusChange { previous: task.status, task: moved.task, instruction: None };
                let mut changes = moved.changes;
                self.tell_agents(&mut changes, Some(&caller.launch.id)).await?;
                Ok((Commit { expect, changes }, change))
            })
            .await?;
        let instruction = match change.task.status {
            TaskStatus::Done => Some(self.after_done(caller).await?),
            _ => None,
        };
        Ok(StatusChange { instruction, ..change })
    }

    async fn after_done(&self, caller: &Caller) -> Result<&'static str, StoreError> {
        let key = &caller.session.key;
        let filter = TaskFilter {
            project: Some(key.project.clone()),
            assignee: Some(key.agent.clone()),
            ..TaskFilter::default()
        };
        let remains = self.store.tasks(&filter).await?.iter().any(|task| task.status.is_open());
        Ok(if remains { self.guidance.work_remains() } else { self.guidance.all_work_done() })
    }

    /// What it takes to give a task another status; nothing if it has it.
    pub(super) async fn move_task(
        &self,
        task: &Task,
        to: TaskStatus,
        reason: Option<&str>,
        actor: Actor<'_>,
    ) -> Result<Moved, ServiceError> {
        let (subtasks, dependencies, parent) = self.surroundings(task).await?;
        let around = Surroundings { parent: parent.as_ref(), subtasks: &subtasks, dependencies: &dependencies };
        let now = self.now();
        let changed = change_status(task, to, reason, actor, around, now)?;
        let after = changed.first().unwrap_or(task).clone();
        // What the rules looked at must still be so when the change is made.
        let seen = match to {
            TaskStatus::Done => subtasks,
            TaskStatus::InProgress => dependencies,
            TaskStatus::Backlog | TaskStatus::Todo | TaskStatus::Blocked | TaskStatus::Cancelled => Vec::new(),
        };
        let expect = if changed.is_empty() { Vec::new() } else { seen };
        Ok(Moved {
            task: after,
            expect: expect.into_iter().map(|task| Expect::TaskAt(task.id, task.revision)).collect(),
            changes: changed
                .into_iter()
                .flat_map(|task| [Change::Event(task_event(&task, now)), Change::Task(task)])
                .collect(),
        })
    }

    /// Subtasks, dependencies and parent of a task.
    async fn surroundings(&self, task: &Task) -> Result<(Vec<Task>, Vec<Task>, Option<Task>), StoreError> {
        let filter = TaskFilter { parent: Some(task.id.clone()), ..TaskFilter::default() };
        let subtasks = self.store.tasks(&filter).await?;
        let mut dependencies = Vec::with_capacity(task.dependencies.len());
        for id in &task.dependencies {
            dependencies.extend(self.store.task(id).await?);
        }
        let parent = match &task.parent {
            Some(id) => self.store.task(id).await?,
            None => None,
        };
        Ok((subtasks, dependencies, parent))
    }
}

/// The event that tells of the status of a task.
pub(super) fn task_event(task: &Task, now: Timestamp) -> NewEvent {
    NewEvent {
        at: now,
        kind: "task.status",
        agent: task.assignee.clone(),
        project: Some(task.project.clone()),
        launch: None,
        task: Some(task.id.clone()),
        detail: Some(task.status.to_string()),
    }
}
