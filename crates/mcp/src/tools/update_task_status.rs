//! `update_task_status`: moves a task and returns the next step.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::TaskSession;
use domain::id::TaskId;
use domain::{ShortId, TaskStatus};
use service::{Service, ServiceError};

pub(crate) struct UpdateTaskStatus;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub(crate) struct Input {
    /// The task: yours, or a subtask of yours.
    #[schemars(with = "String")]
    task_id: TaskId,
    /// Its new status.
    status: TaskStatus,
    /// The reason, if it is blocked.
    #[serde(default)]
    #[schemars(with = "String")]
    reason: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    task: Task,
    #[serde(skip_serializing_if = "Option::is_none")]
    instruction: Option<&'static str>,
}

#[derive(Serialize)]
struct Task {
    id: TaskId,
    short_id: ShortId,
    title: String,
    previous_status: TaskStatus,
    new_status: TaskStatus,
}

impl ToolSpec for UpdateTaskStatus {
    const NAME: &'static str = "update_task_status";
    const TEXT: &'static str = "Sets the status of your task or of one of its subtasks. After \
                                done, the answer says what comes next.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = TaskSession;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let change = service
            .tasks
            .update_status(&caller, &input.task_id, input.status, input.reason.as_deref())
            .await?;
        tracing::info!(task_id = %change.task.id, status = %change.task.status, "agent set a task's status");
        Ok(Output {
            success: true,
            task: Task {
                id: change.task.id,
                short_id: change.task.short_id,
                title: change.task.title,
                previous_status: change.previous,
                new_status: change.task.status,
            },
            instruction: change.instruction,
        })
    }
}
