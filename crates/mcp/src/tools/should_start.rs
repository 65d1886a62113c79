//! `should_start`: decides whether this agent should start in this project. The answer "true"
//! reserves the start.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::compat::without_project;
use crate::envelope::Coordinator;
use domain::id::{AgentId, LaunchId, ProjectId};
use domain::start_history::StartReason;
use domain::{Attempt, Purpose, Timestamp};
use service::{Service, ServiceError};

pub(crate) struct ShouldStart;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The agent.
    #[schemars(with = "String")]
    agent_id: AgentId,
    /// The project that it would work in.
    // Older clients leave it out; the schema doesn't say so.
    #[schemars(with = "String")]
    project_id: Option<ProjectId>,
    /// The purpose of the start. Without it a task comes first, then a chat that a person waits
    /// for.
    #[serde(default)]
    #[schemars(with = "Purpose")]
    purpose: Option<Purpose>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    should_start: bool,
    reason: StartReason,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    start: Option<Start>,
}

/// The fields that only a positive answer has.
#[derive(Serialize)]
struct Start {
    /// The project, if the caller did not name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<ProjectId>,
    ai_type: String,
    purpose: Purpose,
    launch_id: LaunchId,
    start_deadline: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_ticket: Option<String>,
    /// Only of a later attempt at a task.
    #[serde(flatten)]
    attempt: Attempt,
}

impl ToolSpec for ShouldStart {
    const NAME: &'static str = "should_start";
    const TEXT: &'static str = "For coordinators: returns whether to start an agent in a project \
                                now. A true answer reserves the start until start_deadline.";
    const EFFECT: Effect = Effect::Changes;
    type Who = Coordinator;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        who: Coordinator,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let by = who.id.as_ref();
        let (found, purpose, answer) = if let Some(project) = input.project_id {
            let (purpose, answer) = service
                .launches
                .should_start_for(&input.agent_id, &project, input.purpose, by)
                .await?;
            (None, purpose, answer)
        } else {
            let (found, answer) =
                without_project::should_start(service, &input.agent_id, by).await?;
            (found, Purpose::Task, answer)
        };
        Ok(Output {
            should_start: answer.claim.is_some(),
            reason: answer.reason,
            start: answer.claim.map(|claim| Start {
                project_id: found.map(|key| key.project),
                ai_type: claim.ai_type,
                purpose,
                launch_id: claim.launch,
                start_deadline: claim.deadline,
                launch_ticket: claim.ticket.map(|ticket| ticket.reveal().to_owned()),
                attempt: claim.attempt,
            }),
        })
    }
}
