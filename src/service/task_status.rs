//! `update_task_status`: an agent moves a task, and is told what comes next (seed 001).

use crate::domain::id::TaskId;
use crate::domain::launch::ReportResult;
use crate::domain::limits;
use crate::domain::next_action::TaskStep;
use crate::domain::task::Actor;
use crate::domain::{Refusal, Task, TaskStatus};
use crate::store::Commit;

use super::task_rules::TaskChange;
use super::{Caller, Service, ServiceError};

/// A task after its status was set.
#[derive(Debug, Clone)]
pub struct StatusChange {
    pub task: Task,
    pub previous: TaskStatus,
    /// What to do next; only after done.
    pub instruction: Option<&'static str>,
}

impl Service {
    /// Sets the status of a task for `caller`: one of its project that is assigned to it, or a subtask of such a one.
    ///
    /// # Errors
    /// The refusals of [`change`](crate::domain::task::change) and of [`limits`]; `TaskNotFound` also for tasks of other projects.
    pub async fn update_task_status(
        &self,
        caller: &Caller,
        id: &TaskId,
        to: TaskStatus,
        reason: Option<&str>,
    ) -> Result<StatusChange, ServiceError> {
        let key = &caller.session.key;
        let reason = self.redacted_taken(limits::REASON.take_optional(reason)?);
        let reason = reason.as_deref();
        let change = self
            .transact(|| async move {
                let task = self.store.task(id).await?.filter(|task| task.project == key.project);
                let task = task.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?;
                let (_, mut expect) = self.fence(caller).await?;
                let moved = self.move_task(&task, to, reason, Actor::Agent(&key.agent)).await?;
                expect.extend(moved.expect);
                let change =
                    StatusChange { previous: task.status, task: moved.task, instruction: None };
                let mut changes = moved.changes;
                self.tell_agents(&mut changes, Some(&caller.launch.id)).await?;
                Ok((Commit { expect, changes }, change))
            })
            .await?;
        let instruction = match change.task.status {
            TaskStatus::Done => Some(self.instruction_after_done(caller).await?),
            _ => None,
        };
        Ok(StatusChange { instruction, ..change })
    }

    /// What the agent is told after done; it agrees with what `get_next_action` answers next.
    async fn instruction_after_done(&self, caller: &Caller) -> Result<&'static str, ServiceError> {
        let (step, _) = self.task_step_of(&caller.launch).await?;
        Ok(match step {
            TaskStep::ReportCompleted(ReportResult::Success)
            | TaskStep::LogOut
            | TaskStep::Exit => self.guidance().all_work_done(),
            _ => self.guidance().work_remains(),
        })
    }

    /// What it takes to give a task another status; nothing if it has it.
    pub(super) async fn move_task(
        &self,
        task: &Task,
        to: TaskStatus,
        reason: Option<&str>,
        actor: Actor<'_>,
    ) -> Result<TaskChange, ServiceError> {
        let reason = reason.map(str::to_owned).or_else(|| task.blocked_reason.clone());
        let blocked_reason = reason.filter(|_| to == TaskStatus::Blocked);
        self.change_task(Some(task), &Task { status: to, blocked_reason, ..task.clone() }, actor)
            .await
    }
}
