//! `report_execution_start`, deprecated: an agent begins with a task. `get_my_task` records that by
//! itself.

use serde::{Deserialize, Serialize};

use super::Deprecated;
use crate::envelope::TaskSession;
use crate::tools::{Effect, ToolSpec};
use domain::Timestamp;
use domain::id::{ExecutionId, TaskId};
use service::{Service, ServiceError};

static DEPRECATED: Deprecated = Deprecated::new(ReportExecutionStart::NAME, "get_my_task");

pub(super) struct ReportExecutionStart;

#[derive(Deserialize, schemars::JsonSchema)]
pub(super) struct Input {
    /// The task you begin with.
    #[schemars(with = "String")]
    task_id: TaskId,
}

#[derive(Serialize)]
pub(super) struct Output {
    success: bool,
    execution_id: ExecutionId,
    task_id: TaskId,
    status: &'static str,
    started_at: Timestamp,
}

impl ToolSpec for ReportExecutionStart {
    const NAME: &'static str = "report_execution_start";
    const TEXT: &'static str = "Deprecated: use get_my_task, which records the start by itself.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = TaskSession;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        input: Input,
    ) -> Result<Output, ServiceError> {
        DEPRECATED.is_used();
        let execution = service.start_execution(&caller, &input.task_id).await?;
        Ok(Output {
            success: true,
            execution_id: execution.id,
            task_id: execution.task,
            status: "running",
            started_at: execution.started_at,
        })
    }
}
