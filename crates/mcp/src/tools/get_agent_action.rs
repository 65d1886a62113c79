//! `get_agent_action`: tells a coordinator in one word what to do about an agent in a project. It
//! decides like `should_start`.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::Coordinator;
use domain::id::{AgentId, LaunchId, ProjectId};
use domain::{Purpose, Timestamp};
use service::{AgentAction, Service, ServiceError};

pub(crate) struct GetAgentAction;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The agent.
    #[schemars(with = "String")]
    agent_id: AgentId,
    /// The project that it works in, or would work in.
    #[schemars(with = "String")]
    project_id: ProjectId,
}

#[derive(Serialize)]
pub(crate) struct Output {
    /// One of start, stop, hold.
    action: &'static str,
    /// With stop, the reason of the wanted end. Otherwise, the reason in the words of
    /// `should_start`.
    reason: &'static str,
    purpose: Purpose,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_id: Option<LaunchId>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    start: Option<Start>,
}

/// The fields that only a start has.
#[derive(Serialize)]
struct Start {
    /// The agent's ai_type, which tells the CLI to start.
    provider: String,
    start_deadline: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_ticket: Option<String>,
}

impl ToolSpec for GetAgentAction {
    const NAME: &'static str = "get_agent_action";
    const TEXT: &'static str = "For coordinators: returns what to do about an agent in a project \
                                now: start (reserved until start_deadline, as by should_start), \
                                stop (end the process of launch_id), or hold.";
    const EFFECT: Effect = Effect::Changes;
    type Who = Coordinator;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        who: Coordinator,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let (purpose, action) = service
            .launches
            .agent_action(&input.agent_id, &input.project_id, who.id.as_ref())
            .await?;
        Ok(match action {
            AgentAction::Start(claim) => Output {
                action: "start",
                reason: "ready",
                purpose,
                launch_id: Some(claim.launch),
                start: Some(Start {
                    provider: claim.ai_type,
                    start_deadline: claim.deadline,
                    launch_ticket: claim.ticket.map(|ticket| ticket.reveal().to_owned()),
                }),
            },
            AgentAction::Stop { launch, reason } => Output {
                action: "stop",
                reason: reason.as_str(),
                purpose,
                launch_id: Some(launch),
                start: None,
            },
            AgentAction::Hold(reason) => Output {
                action: "hold",
                reason: reason.as_str(),
                purpose,
                launch_id: None,
                start: None,
            },
        })
    }
}
