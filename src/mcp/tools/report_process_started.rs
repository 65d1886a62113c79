//! `report_process_started`: a claimed launch has its process.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::domain::plan::ProcessReport;
use crate::domain::{LaunchId, Timestamp};
use crate::mcp::envelope::Coordinator;
use crate::service::{Service, ServiceError};

pub(in crate::mcp) struct ReportProcessStarted;

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::mcp) struct Input {
    /// The launch, as should_start named it.
    #[schemars(with = "String")]
    launch_id: LaunchId,
    /// Process id of the agent on the coordinator's machine.
    #[schemars(range(min = 1))]
    pid: i32,
    /// When it started (RFC 3339); now without it.
    #[serde(default)]
    #[schemars(with = "String")]
    started_at: Option<Timestamp>,
}

impl ToolSpec for ReportProcessStarted {
    const NAME: &'static str = "report_process_started";
    const TEXT: &'static str = "For coordinators: the agent of a claimed launch has a process.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = Coordinator;
    type Input = Input;
    type Output = Done;

    async fn call(service: &Service, who: Coordinator, input: Input) -> Result<Done, ServiceError> {
        let launch = service.launch_of(who.id.as_ref(), &input.launch_id).await?;
        let at = input.started_at.unwrap_or_else(|| service.time());
        service.report_process(&launch.id, &[ProcessReport::Started { pid: input.pid, at }]).await?;
        Ok(Done::DONE)
    }
}
