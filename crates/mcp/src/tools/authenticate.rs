//! `authenticate`: an agent proves its identity and gets its session.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::compat::without_project;
use crate::envelope::{AUTHENTICATE, AuthenticatingCaller};
use domain::id::{AgentId, ProjectId};
use domain::{Purpose, Refusal, Secret};
use service::{Service, ServiceError};

pub(crate) struct Authenticate;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// Your agent id: the value of AGENT_ID.
    agent_id: String,
    /// Your passkey: the value of AGENT_PASSKEY.
    passkey: String,
    /// The project you work in: the value of PROJECT_ID.
    // Older clients leave it out; the schema doesn't say so.
    #[schemars(with = "String")]
    project_id: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    session_token: String,
    /// The remaining time in seconds.
    expires_in: u64,
    agent_name: String,
    project_name: String,
    system_prompt: String,
    instruction: &'static str,
    purpose: Purpose,
    working_directory: std::path::PathBuf,
}

impl ToolSpec for Authenticate {
    const NAME: &'static str = AUTHENTICATE;
    const TEXT: &'static str = "Call this first. Proves who you are with the AGENT_ID, AGENT_PASSKEY and PROJECT_ID of your \
                                environment and returns your session_token, your role (system_prompt) and what to do next.";
    const EFFECT: Effect = Effect::Changes;
    type Who = AuthenticatingCaller;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        who: AuthenticatingCaller,
        input: Input,
    ) -> Result<Output, ServiceError> {
        // A text that can't be an id matches no agent.
        let agent: AgentId = input.agent_id.parse().map_err(|_| Refusal::InvalidCredentials)?;
        let passkey = Secret::new(input.passkey);
        let (project, opened) = if let Some(project) = input.project_id {
            let project: ProjectId = project.parse().map_err(|_| Refusal::InvalidCredentials)?;
            let opened =
                service.sessions.authenticate(&agent, &passkey, &project, who.presenter()).await?;
            (project, opened)
        } else {
            without_project::authenticate(service, &agent, &passkey, who.presenter()).await?
        };
        tracing::info!(
            agent_id = %agent, project_id = %project, purpose = %opened.purpose, launch_id = %opened.launch,
            session_id = %opened.session, "agent authenticated"
        );
        Ok(Output {
            success: true,
            session_token: opened.session_token.reveal().to_owned(),
            expires_in: opened.expires_in.as_secs(),
            agent_name: opened.agent_name,
            project_name: opened.project_name,
            system_prompt: opened.system_prompt,
            instruction: opened.instruction,
            purpose: opened.purpose,
            working_directory: opened.working_directory,
        })
    }
}
