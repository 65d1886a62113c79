//! `/agents`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::creation_status;
use super::removals::{Archived, ArchivedQuery};
use crate::conditional::{Revision, Seen};
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use domain::agent::AgentStatus;
use domain::{Agent, AgentId, Secret, Sent, Timestamp, limits};
use service::AgentEdit;

/// An agent as it is shown. Its passkey never is.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentBody {
    pub id: AgentId,
    pub name: String,
    pub ai_type: String,
    pub system_prompt: String,
    pub has_passkey: bool,
    pub status: AgentStatus,
    pub created_at: Timestamp,
    /// Only in the answer that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey: Option<String>,
    /// `false` in the answer to a repeated request with `generatePasskey`: only the first answer
    /// had the passkey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey_shown: Option<bool>,
    /// The command that makes a new passkey, beside `passkeyShown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_passkey_command: Option<String>,
}

/// The fields of a new or changed agent. A missing field stays, or has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRequest {
    /// The id of a new agent. The server generates one if it is missing. With an id, the request
    /// can be repeated: the answer is then 200, with the agent as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::AI_TYPE.described())]
    pub ai_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::SYSTEM_PROMPT.described())]
    pub system_prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::PASSKEY.described())]
    pub passkey: Option<String>,
    /// Makes a passkey and shows it in this one answer.
    #[serde(default)]
    pub generate_passkey: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AgentStatus>,
}

impl From<Agent> for AgentBody {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id,
            name: agent.name,
            ai_type: agent.ai_type,
            system_prompt: agent.system_prompt,
            has_passkey: agent.passkey.is_some(),
            status: agent.status,
            created_at: agent.created_at,
            passkey: None,
            passkey_shown: None,
            new_passkey_command: None,
        }
    }
}

pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/agents",
            list,
            about("Agents, by id").query::<ArchivedQuery>().gives::<Vec<AgentBody>>(),
        )
        .post(
            "/agents",
            add,
            about("Makes an agent").takes::<AgentRequest>().makes_once::<AgentBody>(),
        )
        .get("/agents/{id}", show, about("One agent").gives::<AgentBody>())
        .patch(
            "/agents/{id}",
            set,
            about("Changes an agent").takes::<AgentRequest>().gives::<AgentBody>(),
        )
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<ArchivedQuery>,
) -> Result<Json<Vec<AgentBody>>, Problem> {
    let is_listed = |agent: &Agent| Archived::has(query.archived, agent.is_archived());
    let agents = state.service.catalog.agents().await?.into_iter().filter(is_listed);
    Ok(Json(agents.map(AgentBody::from).collect()))
}

async fn show(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<(Extension<Revision>, Json<AgentBody>), Problem> {
    let agent = state.service.catalog.agent(&id).await?;
    Ok((Extension(Revision(agent.revision)), Json(agent.into())))
}

async fn add(
    State(state): State<RestState>,
    InBody(request): InBody<AgentRequest>,
) -> Result<(StatusCode, Json<AgentBody>), Problem> {
    let (edit, shown) = edit_of(&state, &request);
    let sent = state.service.catalog.add_agent(request.id, &edit).await?;
    let status = creation_status(&sent);
    let body = match sent {
        Sent::First(agent) => {
            tracing::info!(agent_id = %agent.id, "agent added");
            AgentBody { passkey: shown, ..agent.into() }
        }
        Sent::Again(agent) if edit.generates_passkey => {
            let command = format!("agent-coordinator agent set {} --generate-passkey", agent.id);
            let new_passkey_command = Some(command);
            AgentBody { passkey_shown: Some(false), new_passkey_command, ..agent.into() }
        }
        Sent::Again(agent) => agent.into(),
    };
    Ok((status, Json(body)))
}

async fn set(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
    Seen(seen): Seen,
    InBody(request): InBody<AgentRequest>,
) -> Result<Json<AgentBody>, Problem> {
    let (edit, shown) = edit_of(&state, &request);
    let agent = state.service.catalog.set_agent(&id, &AgentEdit { seen, ..edit }).await?;
    tracing::info!(agent_id = %agent.id, "agent changed");
    Ok(Json(AgentBody { passkey: shown, ..agent.into() }))
}

/// Returns the edit, and the passkey to show if one was generated.
fn edit_of(state: &RestState, request: &AgentRequest) -> (AgentEdit, Option<String>) {
    let generated = request.generate_passkey.then(|| state.service.catalog.new_passkey());
    let shown = generated.as_ref().map(|passkey| passkey.reveal().to_owned());
    let edit = AgentEdit {
        name: request.name.clone(),
        ai_type: request.ai_type.clone(),
        system_prompt: request.system_prompt.clone(),
        generates_passkey: generated.is_some(),
        passkey: generated.or_else(|| request.passkey.clone().map(Secret::new)),
        status: request.status,
        seen: None,
    };
    (edit, shown)
}
