//! `logout`: an agent ends its session without a report.

use serde::Serialize;

use super::{Effect, NoInput, ToolSpec};
use crate::envelope::AgentSession;
use service::{Service, ServiceError};

pub(crate) struct Logout;

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    instruction: &'static str,
}

impl ToolSpec for Logout {
    const NAME: &'static str = "logout";
    const TEXT: &'static str =
        "Ends your session without a report; for a task use report_completed instead.";
    const EFFECT: Effect = Effect::Changes;
    const IS_ABOUT_NOTICES: bool = true;
    type Who = AgentSession;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        AgentSession(caller): AgentSession,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        let instruction = service.sessions.logout(&caller).await?;
        Ok(Output { success: true, instruction })
    }
}
