//! `report_process_stopping`: a coordinator ends a launch for a reason of its own. It reports that
//! before the end, so that the end is judged by its reason.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::envelope::Coordinator;
use domain::{LaunchId, StopReason};
use service::{Service, ServiceError};

pub(crate) struct ReportProcessStopping;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The launch_id that should_start returned.
    #[schemars(with = "String")]
    launch_id: LaunchId,
    /// The reason: shutdown, start_timeout, unknown, …
    #[schemars(with = "String")]
    reason: StopReason,
}

impl ToolSpec for ReportProcessStopping {
    const NAME: &'static str = "report_process_stopping";
    const TEXT: &'static str =
        "For coordinators: reports that the coordinator ends the agent of a launch, and why.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = Coordinator;
    type Input = Input;
    type Output = Done;

    async fn call(service: &Service, who: Coordinator, input: Input) -> Result<Done, ServiceError> {
        let launch = service.launches.launch_of(who.id.as_ref(), &input.launch_id).await?;
        service.coordinators.want_stop(&launch.id, input.reason).await?;
        Ok(Done::DONE)
    }
}
