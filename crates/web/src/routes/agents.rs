//! `/agents`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::creation_status;
use crate::conditional::{Revision, SeenRevision};
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::agents::{AgentBody, AgentRequest};
use api::removals::{Archived, ArchivedQuery};
use domain::{Agent, AgentId, Secret, Sent};
use service::AgentEdit;

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
    SeenRevision(seen): SeenRevision,
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
