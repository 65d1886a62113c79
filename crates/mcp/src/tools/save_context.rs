//! `save_context`: an agent saves notes about its work while it works.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::TaskSession;
use service::{Progress, Service, ServiceError};

pub(crate) struct SaveContext;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// How far you have come.
    #[serde(default)]
    #[schemars(with = "String")]
    progress: Option<String>,
    /// What you found out that the next one should know.
    #[serde(default)]
    #[schemars(with = "String")]
    findings: Option<String>,
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

impl ToolSpec for SaveContext {
    const NAME: &'static str = "save_context";
    const TEXT: &'static str = "Saves the state of your task for your next run, or for the next \
                                assignee. Texts that you leave out stay as you saved them \
                                before.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = TaskSession;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let Input { progress, findings, next_steps } = input;
        let instruction = service
            .tasks
            .save_context(&caller, &Progress { progress, findings, next_steps })
            .await?;
        Ok(Output { success: true, instruction })
    }
}
