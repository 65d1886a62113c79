//! `report_completed`: an agent's final report on its task.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::Reporter;
use domain::launch::ReportResult;
use service::{Report, Service, ServiceError};

pub(crate) struct ReportCompleted;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// success: the task is done. failed: it could not be done. blocked: something is in the way.
    result: ReportResult,
    /// What you did.
    #[serde(default)]
    #[schemars(with = "String")]
    summary: Option<String>,
    /// What remains to be done.
    #[serde(default)]
    #[schemars(with = "String")]
    next_steps: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    instruction: &'static str,
}

impl ToolSpec for ReportCompleted {
    const NAME: &'static str = "report_completed";
    const TEXT: &'static str =
        "Call this last. Reports the result of your task and ends your session; exit afterwards.";
    const EFFECT: Effect = Effect::ChangesOnce;
    const IS_ABOUT_NOTICES: bool = true;
    type Who = Reporter;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        Reporter(caller): Reporter,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let report = Report {
            result: input.result,
            summary: input.summary.as_deref(),
            next_steps: input.next_steps.as_deref(),
        };
        let instruction = service.sessions.report(&caller, report).await?;
        tracing::info!(outcome = input.result.as_str(), "agent reported");
        Ok(Output { success: true, instruction })
    }
}
