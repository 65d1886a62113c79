//! `report_execution_complete`, deprecated: an agent's final report in the form of an exit code.

use serde::{Deserialize, Serialize};

use super::Deprecated;
use crate::envelope::Reporter;
use crate::tools::{Effect, ToolSpec};
use domain::id::ExecutionId;
use domain::launch::ReportResult;
use service::{Report, Service, ServiceError};

static DEPRECATED: Deprecated = Deprecated::new(ReportExecutionComplete::NAME, "report_completed");

pub(super) struct ReportExecutionComplete;

#[derive(Deserialize, schemars::JsonSchema)]
pub(super) struct Input {
    /// The execution_id that report_execution_start returned.
    #[serde(default, alias = "execution_log_id")]
    #[schemars(with = "String")]
    execution_id: Option<ExecutionId>,
    /// 0: the task is done; anything else: it failed.
    exit_code: i32,
    /// What went wrong.
    #[serde(default)]
    #[schemars(with = "String")]
    error_message: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Output {
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<ExecutionId>,
    status: &'static str,
    instruction: &'static str,
}

impl ToolSpec for ReportExecutionComplete {
    const NAME: &'static str = "report_execution_complete";
    const TEXT: &'static str = "Deprecated: use report_completed. Reports how your work ended and ends your session; exit afterwards.";
    const EFFECT: Effect = Effect::ChangesOnce;
    const IS_ABOUT_NOTICES: bool = true;
    const OLDER_ARGUMENTS: &'static [&'static str] =
        &["execution_log_id", "duration_seconds", "log_file_path"];
    type Who = Reporter;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        Reporter(caller): Reporter,
        input: Input,
    ) -> Result<Output, ServiceError> {
        DEPRECATED.is_used();
        let (result, status) = match input.exit_code {
            0 => (ReportResult::Success, "completed"),
            _ => (ReportResult::Failed, "failed"),
        };
        let exit = (input.exit_code != 0).then(|| format!("exit code {}", input.exit_code));
        let summary = input.error_message.or(exit);
        let report = Report { result, summary: summary.as_deref(), next_steps: None };
        let instruction =
            service.complete_execution(&caller, input.execution_id.as_ref(), report).await?;
        tracing::info!(outcome = result.as_str(), "agent reported");
        Ok(Output { success: true, execution_id: input.execution_id, status, instruction })
    }
}
