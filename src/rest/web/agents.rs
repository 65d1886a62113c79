//! The pages of agents: their current work, the forms to make and edit one, and the reasons why one
//! does not start.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::instances::{InstanceRow, instance_rows};
use super::layout::{Frame, NavSection, go_to, rendered};
use super::shown::{Face, When};
use crate::config::Preset;
use crate::domain::agent::AgentStatus;
use crate::domain::{Agent, AgentId, ProjectId, Purpose};
use crate::rest::extract::{InForm, InPath, given};
use crate::rest::routes::status::StatusBody;
use crate::rest::routes::why::WhyBody;
use crate::rest::{Problem, RestState};
use crate::service::{AgentEdit, Force, StopTarget};

#[derive(Template)]
#[template(path = "agents.html")]
struct AgentsPage {
    frame: Frame,
    agents: Vec<AgentRow>,
}

#[derive(Template)]
#[template(path = "parts/agents.html")]
struct AgentsPart {
    frame: Frame,
    agents: Vec<AgentRow>,
}

struct AgentRow {
    agent: Face,
    ai_type: String,
    is_active: bool,
    instances: Vec<InstanceRow>,
    /// The projects that it is assigned to and does not run in.
    projects: Vec<ProjectName>,
}

struct ProjectName {
    id: ProjectId,
    name: String,
}

#[derive(Template)]
#[template(path = "agent_form.html")]
struct AgentForm {
    frame: Frame,
    /// The agent; `None` if it is to be made.
    agent: Option<ShownAgent>,
    kinds: Vec<String>,
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
    passkey: String,
    is_replaced: bool,
}

#[derive(Template)]
#[template(path = "why.html")]
struct WhyPage {
    frame: Frame,
    agent: AgentId,
    project: ProjectId,
    purposes: Vec<WhyBody>,
}

#[derive(Template)]
#[template(path = "parts/why.html")]
struct WhyPart {
    frame: Frame,
    agent: AgentId,
    project: ProjectId,
    purposes: Vec<WhyBody>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFields {
    #[serde(default)]
    id: String,
    name: String,
    ai_type: String,
    system_prompt: String,
    status: Option<AgentStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StopFields {
    agent: AgentId,
    project: ProjectId,
    purpose: Option<Purpose>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResumeFields {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    project: String,
    provider: Option<String>,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/agents", get(all))
        .route("/ui/parts/agents", get(all_part))
        .route("/ui/agents/new", get(new))
        .route("/ui/agents/{agent}", get(edit))
        .route("/ui/projects/{project}/agents/{agent}/why", get(why))
        .route("/ui/parts/projects/{project}/agents/{agent}/why", get(why_part))
        .route("/ui/do/agents", post(make))
        .route("/ui/do/agents/{agent}", post(change))
        .route("/ui/do/agents/{agent}/passkey", post(renew_passkey))
        .route("/ui/do/stop", post(stop))
        .route("/ui/do/resume", post(resume))
}

async fn all(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let agents = rows(&state).await?;
    Ok(rendered(&AgentsPage { frame: frame.at(NavSection::Agents), agents }))
}

async fn all_part(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    Ok(rendered(&AgentsPart { frame, agents: rows(&state).await? }))
}

async fn rows(state: &RestState) -> Result<Vec<AgentRow>, Problem> {
    let agents = state.service.catalog.agents().await?;
    let projects = state.service.catalog.projects().await?;
    let status = StatusBody::from(state.service.status().await?);
    let mut instances: BTreeMap<AgentId, Vec<InstanceRow>> = BTreeMap::new();
    for row in instance_rows(state, status.instances).await? {
        instances.entry(row.agent.clone()).or_default().push(row);
    }
    let row = |agent: Agent| {
        let instances = instances.remove(&agent.id).unwrap_or_default();
        let assigned = projects
            .iter()
            .filter(|(_, members)| members.contains(&agent.id))
            .map(|(project, _)| project);
        let idle =
            assigned.filter(|project| !instances.iter().any(|row| row.project == project.id));
        AgentRow {
            projects: idle
                .map(|project| ProjectName { id: project.id.clone(), name: project.name.clone() })
                .collect(),
            agent: Face::of(&agent, instances.iter().any(|row| row.pid.is_some())),
            ai_type: agent.ai_type,
            is_active: agent.status == AgentStatus::Active,
            instances,
        }
    };
    Ok(agents.into_iter().map(row).collect())
}

async fn new(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let kinds = kinds(&state).await?;
    Ok(rendered(&AgentForm { frame: frame.at(NavSection::Agents), agent: None, kinds }))
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
    }))
}

/// Returns the kinds of the existing agents and the built-in ones.
async fn kinds(state: &RestState) -> Result<Vec<String>, Problem> {
    let mut kinds: Vec<String> =
        state.service.catalog.agents().await?.into_iter().map(|agent| agent.ai_type).collect();
    kinds.extend(Preset::ALL.iter().map(|(name, _)| (*name).to_owned()));
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}

/// Makes an agent with a new passkey. The page shows the passkey now, because it has no other
/// moment for it.
async fn make(
    frame: Frame,
    State(state): State<RestState>,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let passkey = state.service.catalog.new_passkey();
    let shown = passkey.reveal().to_owned();
    let edit = AgentEdit {
        name: Some(fields.name),
        ai_type: Some(fields.ai_type),
        system_prompt: Some(fields.system_prompt),
        passkey: Some(passkey),
        status: None,
        seen: None,
    };
    let agent = state.service.catalog.add_agent(given("id", &fields.id)?, &edit).await?;
    tracing::info!(agent_id = %agent.id, "agent added");
    Ok(rendered(&PasskeyPart { frame, agent: agent.id, passkey: shown, is_replaced: false }))
}

async fn change(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let edit = AgentEdit {
        name: Some(fields.name),
        ai_type: Some(fields.ai_type),
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
    Ok(rendered(&PasskeyPart { frame, agent: id, passkey: shown, is_replaced: true }))
}

async fn stop(
    State(state): State<RestState>,
    InForm(fields): InForm<StopFields>,
) -> Result<StatusCode, Problem> {
    let StopFields { agent, project, purpose } = fields;
    tracing::info!(agent_id = %agent, project_id = %project, "a person stopped agents");
    state.service.launches.stop(&StopTarget::Pair { agent, project, purpose }, Force::No).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn resume(
    State(state): State<RestState>,
    InForm(fields): InForm<ResumeFields>,
) -> Result<Response, Problem> {
    if let Some(provider) = fields.provider {
        state.service.launches.release_provider(&provider).await?;
        tracing::info!(provider, "a person resumed a provider");
    } else {
        let (Some(agent), Some(project)) =
            (given("agent", &fields.agent)?, given("project", &fields.project)?)
        else {
            let detail = "expected an agent and a project, or a provider";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_form", detail));
        };
        tracing::info!(agent_id = %agent, project_id = %project, "a person resumed agents");
        state.service.launches.resume(&StopTarget::Pair { agent, project, purpose: None }).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn why(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Response, Problem> {
    let purposes = purposes_of(&state, &agent, &project).await?;
    Ok(rendered(&WhyPage { frame: frame.at(NavSection::Agents), agent, project, purposes }))
}

async fn why_part(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Response, Problem> {
    let purposes = purposes_of(&state, &agent, &project).await?;
    Ok(rendered(&WhyPart { frame, agent, project, purposes }))
}

async fn purposes_of(
    state: &RestState,
    agent: &AgentId,
    project: &ProjectId,
) -> Result<Vec<WhyBody>, Problem> {
    let purposes = state.service.launches.why(agent, project).await?;
    Ok(purposes.into_iter().map(WhyBody::from).collect())
}
