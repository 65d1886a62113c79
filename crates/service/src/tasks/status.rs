//! `update_task_status`: an agent moves a task, and learns the next step.

use domain::id::TaskId;
use domain::launch::ReportResult;
use domain::limits;
use domain::next_action::TaskStep;
use domain::task::Actor;
use domain::{Refusal, Task, TaskStatus};
use store::rows::tasks;

use super::Tasks;
use super::ids::full_id_in;
use super::rules::move_task;
use crate::sessions::caller::fence;
use crate::sessions::next_action::task_step_of;
use crate::{Caller, ServiceError, checks};

/// A task after its status was set.
#[derive(Debug, Clone)]
pub struct StatusChange {
    pub task: Task,
    pub previous: TaskStatus,
    /// The next step, only after done.
    pub instruction: Option<&'static str>,
}

impl Tasks {
    /// Sets the status of a task for `caller`. The task is in its project and assigned to it, or is
    /// a subtask of such a task.
    ///
    /// # Errors
    /// The refusals of [`change`](domain::task::change) and of [`limits`]; `TaskNotFound`
    /// also for tasks of other projects; `ChecksPending` for done, if the task has a clone of its
    /// own in which another launch works on it.
    pub async fn update_status(
        &self,
        caller: &Caller,
        id: &TaskId,
        to: TaskStatus,
        reason: Option<&str>,
    ) -> Result<StatusChange, ServiceError> {
        let reason = self.core.redacted_taken(limits::REASON.take_optional(reason)?);
        let by = caller.clone();
        let id = id.clone();
        let inputs = self.heard.inputs(&self.core);
        let change = self
            .core
            .write(move |tx| {
                let key = &by.session.key;
                let id = full_id_in(tx, &key.project, &id)?;
                let task = tasks::get(tx, &id)?.filter(|task| task.project == key.project);
                let task = task.ok_or_else(|| Refusal::TaskNotFound { task: id.clone() })?;
                let launch = fence(tx, &by)?;
                tx.act_in(&launch.id, &id);
                // The task of a launch is done when it has passed its checks.
                if to == TaskStatus::Done
                    && task.status == TaskStatus::InProgress
                    && launch.task.as_ref() == Some(&id)
                    && checks::begin(tx, &inputs.settings, &launch, &task)?
                {
                    return Ok(StatusChange { previous: task.status, task, instruction: None });
                }
                let is_begun =
                    launch.task.as_ref() == Some(&id) && task.status == TaskStatus::InProgress;
                if to == TaskStatus::Done
                    && !is_begun
                    && checks::are_needed(tx, &inputs.settings, &task)?
                {
                    let task = task.short_id.to_string();
                    return Err(Refusal::ChecksPending { task }.into());
                }
                let actor = Actor::Agent(&key.agent);
                let moved = move_task(tx, &task, to, reason.as_deref(), actor)?;
                inputs.tell_agents(tx, &moved.news, Some(&by.launch.id))?;
                Ok(StatusChange { previous: task.status, task: moved.task, instruction: None })
            })
            .await?;
        let instruction = match change.task.status {
            TaskStatus::Done => Some(self.instruction_after_done(caller).await?),
            _ => None,
        };
        Ok(StatusChange { instruction, ..change })
    }

    /// Returns the next step after done. It agrees with the next answer of `get_next_action`.
    async fn instruction_after_done(&self, caller: &Caller) -> Result<&'static str, ServiceError> {
        let launch = caller.launch.clone();
        let (step, _) = self.core.read(move |tx| Ok(task_step_of(tx, &launch)?)).await?;
        Ok(match step {
            TaskStep::ReportCompleted(ReportResult::Success)
            | TaskStep::LogOut
            | TaskStep::Exit => self.core.guidance().all_work_done(),
            _ => self.core.guidance().work_remains(),
        })
    }
}
