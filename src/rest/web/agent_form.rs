//! The forms to make and to edit an agent.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::form_ids::FormOf;
use super::layout::{Frame, NavSection, go_to, rendered};
use crate::domain::agent::{AgentStatus, AiTypes};
use crate::domain::{Agent, AgentId, Sent};
use crate::rest::auth::Operator;
use crate::rest::extract::{InForm, InPath, given, needed};
use crate::rest::{Problem, RestState};
use crate::service::AgentEdit;

#[derive(Template)]
#[template(path = "agent_form.html")]
struct AgentForm {
    frame: Frame,
    /// The agent; `None` if it is to be made.
    agent: Option<ShownAgent>,
    kinds: Vec<String>,
    /// The id of the form of a new agent.
    form_id: String,
}

struct ShownAgent(Agent);

impl std::ops::Deref for ShownAgent {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.0
    }
}

impl ShownAgent {
    fn is_active(&self) -> bool {
        self.0.status == AgentStatus::Active
    }
}

impl AgentForm {
    fn heading(&self) -> &'static str {
        if self.agent.is_some() { self.frame.w.edit_agent } else { self.frame.w.new_agent }
    }

    fn action(&self) -> String {
        match &self.agent {
            Some(agent) => format!("/ui/do/agents/{}", agent.id),
            None => "/ui/do/agents".to_owned(),
        }
    }

    fn name(&self) -> &str {
        self.agent.as_ref().map_or("", |agent| &agent.name)
    }

    fn ai_type(&self) -> &str {
        self.agent.as_ref().map_or(crate::domain::agent::DEFAULT_AI_TYPE, |agent| &agent.ai_type)
    }

    fn system_prompt(&self) -> &str {
        self.agent.as_ref().map_or("", |agent| &agent.system_prompt)
    }
}

#[derive(Template)]
#[template(path = "parts/passkey.html")]
struct PasskeyPart {
    frame: Frame,
    agent: AgentId,
    /// The new passkey; `None` if it was shown before.
    passkey: Option<String>,
    is_replaced: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFields {
    #[serde(default)]
    id: String,
    #[serde(default)]
    form_id: String,
    name: String,
    ai_type: String,
    system_prompt: String,
    status: Option<AgentStatus>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/agents/new", get(new))
        .route("/ui/agents/{agent}", get(edit))
        .route("/ui/do/agents", post(make))
        .route("/ui/do/agents/{agent}", post(change))
        .route("/ui/do/agents/{agent}/passkey", post(renew_passkey))
}

async fn new(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let kinds = kinds(&state).await?;
    Ok(rendered(&AgentForm {
        form_id: FormOf::Agent.new_id(&frame, &state),
        frame: frame.at(NavSection::Agents),
        agent: None,
        kinds,
    }))
}

async fn edit(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Response, Problem> {
    let agent = state.service.catalog.agent(&id).await?;
    let kinds = kinds(&state).await?;
    Ok(rendered(&AgentForm {
        frame: frame.at(NavSection::Agents),
        agent: Some(ShownAgent(agent)),
        kinds,
        form_id: String::new(),
    }))
}

/// Returns the kinds that the form suggests. Those of existing agents are among them if
/// coordinators elsewhere may start them.
async fn kinds(state: &RestState) -> Result<Vec<String>, Problem> {
    let catalog = &state.service.catalog;
    let mut kinds = catalog.provider_names();
    if catalog.ai_types() == AiTypes::Any {
        kinds.extend(catalog.agents().await?.into_iter().map(|agent| agent.ai_type));
    }
    Ok(kinds.into_iter().collect())
}

/// Makes an agent with a new passkey. The page shows the passkey now, because it has no other
/// moment for it.
async fn make(
    frame: Frame,
    State(state): State<RestState>,
    operator: Operator,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let chosen: Option<AgentId> = given("id", &fields.id)?;
    let passkey = state.service.catalog.new_passkey();
    let shown = passkey.reveal().to_owned();
    let content = [fields.name.clone(), fields.ai_type.clone(), fields.system_prompt.clone()];
    let edit = AgentEdit {
        name: Some(needed("name", fields.name)?),
        ai_type: Some(needed("ai_type", fields.ai_type)?),
        system_prompt: Some(fields.system_prompt),
        passkey: Some(passkey),
        status: None,
        seen: None,
    };
    let catalog = &state.service.catalog;
    let sent = if chosen.is_some() {
        Sent::First(catalog.add_agent(chosen, &edit).await?)
    } else {
        let form = FormOf::Agent.check(&fields.form_id, &operator, &state)?;
        let thing = form.thing(AgentId::PREFIX, &content);
        catalog.add_agent_by_form(&thing, &edit).await?
    };
    let (agent, passkey) = match sent {
        Sent::First(agent) => {
            tracing::info!(agent_id = %agent.id, "agent added");
            (agent.id, Some(shown))
        }
        // Its passkey was shown when the form was sent for the first time.
        Sent::Again(agent) => (agent.id, None),
    };
    Ok(rendered(&PasskeyPart { frame, agent, passkey, is_replaced: false }))
}

async fn change(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let edit = AgentEdit {
        name: Some(needed("name", fields.name)?),
        ai_type: Some(needed("ai_type", fields.ai_type)?),
        system_prompt: Some(fields.system_prompt),
        passkey: None,
        status: fields.status,
        seen: None,
    };
    state.service.catalog.set_agent(&id, &edit).await?;
    tracing::info!(agent_id = %id, "agent changed");
    Ok(go_to("/ui/agents"))
}

async fn renew_passkey(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Response, Problem> {
    let passkey = state.service.catalog.new_passkey();
    let shown = passkey.reveal().to_owned();
    let edit = AgentEdit { passkey: Some(passkey), ..AgentEdit::default() };
    state.service.catalog.set_agent(&id, &edit).await?;
    tracing::info!(agent_id = %id, "agent has a new passkey");
    Ok(rendered(&PasskeyPart { frame, agent: id, passkey: Some(shown), is_replaced: true }))
}
