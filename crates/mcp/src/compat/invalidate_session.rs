//! `invalidate_session`, deprecated: the report of an older coordinator that the process of its
//! agent has ended. `report_process_exit` replaces it. Without this report, the agent's launch
//! would stay open until its session has been idle for long.

use serde::Deserialize;

use super::Deprecated;
use crate::envelope::Coordinator;
use crate::tools::{Done, Effect, ToolSpec};
use domain::launch::{ExitStatus, ProcessEnd};
use domain::plan::ProcessReport;
use domain::{AgentId, ProjectId, Refusal};
use service::{Service, ServiceError};

static DEPRECATED: Deprecated = Deprecated::new(InvalidateSession::NAME, "report_process_exit");

pub(super) struct InvalidateSession;

#[derive(Deserialize, schemars::JsonSchema)]
pub(super) struct Input {
    /// The agent whose process has ended.
    #[schemars(with = "String")]
    agent_id: AgentId,
    /// The project that it worked in.
    #[schemars(with = "String")]
    project_id: ProjectId,
}

impl ToolSpec for InvalidateSession {
    const NAME: &'static str = "invalidate_session";
    const TEXT: &'static str = "Deprecated: use report_process_exit. For coordinators: reports \
                                that the process of an agent has ended.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = Coordinator;
    type Input = Input;
    type Output = Done;

    async fn call(service: &Service, who: Coordinator, input: Input) -> Result<Done, ServiceError> {
        DEPRECATED.is_used();
        let Input { agent_id, project_id } = input;
        let found =
            service.launches.find_to_report(&agent_id, &project_id, None, who.id.as_ref()).await;
        let launch = match found {
            Ok(launch) => launch,
            // The agent was refused or has reported, so that there is no session to end.
            Err(ServiceError::Refused(Refusal::NoOpenLaunch { .. })) => return Ok(Done::DONE),
            Err(error) => return Err(error),
        };
        // The call does not contain the exit status of the process.
        let end = ProcessEnd::Exited(ExitStatus { exit_code: None, signal: None });
        let report = ProcessReport::Ended { end, at: service.time() };
        service.launches.report_process(&launch, &[report]).await?;
        Ok(Done::DONE)
    }
}
