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
use super::shown::{Face, Faces, When};
use super::waits::{About, WhyLine};
use super::words::Words;
use crate::domain::agent::{AgentStatus, AiTypes};
use crate::domain::start_history::StartReason;
use crate::domain::{Agent, AgentId, InstanceKey, Project, ProjectId, Purpose, Refusal};
use crate::rest::extract::{InForm, InPath, given, needed};
use crate::rest::routes::status::StatusBody;
use crate::rest::routes::why::{RuleBody, WhyBody};
use crate::rest::{Problem, RestState};
use crate::service::{AgentEdit, Force, ServiceError, StopTarget};

#[derive(Template)]
#[template(path = "agents.html")]
struct AgentsPage {
    frame: Frame,
    agents: Vec<AgentRow>,
    archived: Vec<Agent>,
}

#[derive(Template)]
#[template(path = "parts/agents.html")]
struct AgentsPart {
    frame: Frame,
    agents: Vec<AgentRow>,
    archived: Vec<Agent>,
}

/// An agent in one project, or an agent without a project.
struct AgentRow {
    /// The id of the row in the page.
    key: String,
    agent: Face,
    ai_type: String,
    project: Option<(ProjectId, String)>,
    /// `good` if it works, `bad` if it needs a person, `wait` if it waits; empty else.
    tone: &'static str,
    state: &'static str,
    instance: Option<InstanceRow>,
    why: Option<WhyLine>,
    /// The sentence for an agent that neither runs nor waits.
    rest: String,
}

impl AgentRow {
    /// Returns the place of the row: those that need a person first, then those that wait or work.
    fn rank(&self) -> u8 {
        match self.tone {
            "bad" => 0,
            "wait" => 1,
            "good" => 2,
            _ => 3,
        }
    }
}

#[derive(Template)]
#[template(path = "agent_form.html")]
struct AgentForm {
    frame: Frame,
    /// The agent; `None` if it is to be made.
    agent: Option<ShownAgent>,
    kinds: Vec<String>,
    /// The id of a new agent, if the reader chooses none.
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

    fn is_archived(&self) -> bool {
        self.0.is_archived()
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

#[derive(Template)]
#[template(path = "why.html")]
struct WhyPage {
    frame: Frame,
    agent: Face,
    project: Project,
    purposes: Vec<ShownWhy>,
}

#[derive(Template)]
#[template(path = "parts/why.html")]
struct WhyPart {
    frame: Frame,
    purposes: Vec<ShownWhy>,
}

/// The rules for the starts of an agent in a project for one purpose.
struct ShownWhy {
    purpose: Purpose,
    reason: StartReason,
    /// The line that says why it does not run, with the action that ends that.
    line: Option<WhyLine>,
    rules: Vec<RuleBody>,
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
    let (agents, archived) = rows(frame.w, &state).await?;
    Ok(rendered(&AgentsPage { frame: frame.at(NavSection::Agents), agents, archived }))
}

async fn all_part(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let (agents, archived) = rows(frame.w, &state).await?;
    Ok(rendered(&AgentsPart { frame, agents, archived }))
}

/// Returns a row for each agent in each of its projects, in the order in which people look, and
/// apart from them the archived agents.
async fn rows(
    w: &'static Words,
    state: &RestState,
) -> Result<(Vec<AgentRow>, Vec<Agent>), Problem> {
    let agents = state.service.catalog.agents().await?.into_iter();
    let (archived, agents): (Vec<Agent>, Vec<Agent>) =
        agents.partition(|agent| agent.is_archived());
    let projects = state.service.catalog.projects().await?;
    let status = StatusBody::from(state.service.status().await?);
    let mut instances: BTreeMap<(AgentId, ProjectId), Vec<InstanceRow>> = BTreeMap::new();
    for row in instance_rows(state, status.instances).await? {
        instances.entry((row.agent.clone(), row.project.clone())).or_default().push(row);
    }
    let key = |agent: &AgentId, project: &ProjectId| {
        InstanceKey::new(agent.clone(), project.clone(), Purpose::Task)
    };
    let keys = projects
        .iter()
        .flat_map(|(project, members)| members.iter().map(move |agent| key(agent, &project.id)));
    let whys = state.service.launches.why_of(keys.collect()).await?.into_iter();
    let mut whys: BTreeMap<InstanceKey, WhyBody> =
        whys.map(|why| (why.key.clone(), WhyBody::from(why))).collect();
    let mut rows = Vec::new();
    for agent in agents {
        let before = rows.len();
        for (project, members) in &projects {
            let here = instances.remove(&(agent.id.clone(), project.id.clone()));
            let here = here.unwrap_or_default();
            if here.is_empty() && !members.contains(&agent.id) {
                continue;
            }
            let face = Face::of(&agent, here.iter().any(|row| row.pid.is_some()));
            let why = whys.remove(&key(&agent.id, &project.id));
            let about = About { agent: Some(&agent.id), project: Some(&project.id), task: None };
            let name = (project.id.clone(), project.name.clone());
            let row = |instance: Option<InstanceRow>, why: Option<WhyLine>| {
                let tone = match (&instance, &why) {
                    (Some(instance), _) if instance.is_unkillable || instance.is_suspended => "bad",
                    (Some(_), _) => "good",
                    (None, Some(why)) => why.tone,
                    (None, None) => "",
                };
                AgentRow {
                    key: match &instance {
                        Some(instance) => format!("instance-{}", instance.launch),
                        None => format!("idle-{}-{}", agent.id, project.id),
                    },
                    agent: face.clone(),
                    ai_type: agent.ai_type.clone(),
                    project: Some(name.clone()),
                    tone,
                    state: match tone {
                        "bad" => w.needs_attention,
                        "wait" => w.waits,
                        "good" => w.works,
                        _ => w.idle,
                    },
                    instance,
                    why,
                    rest: w.of_start_reason(StartReason::NoWork),
                }
            };
            if here.is_empty() {
                let waiting = why.as_ref().and_then(WhyBody::waiting);
                rows.push(row(None, waiting.map(|waiting| WhyLine::of(w, &waiting, about))));
            } else {
                rows.extend(here.into_iter().map(|instance| row(Some(instance), None)));
            }
        }
        if rows.len() == before {
            rows.push(AgentRow {
                key: format!("agent-{}", agent.id),
                agent: Face::of(&agent, false),
                ai_type: agent.ai_type,
                project: None,
                tone: "",
                state: w.idle,
                instance: None,
                why: None,
                rest: w.not_assigned.to_owned(),
            });
        }
    }
    rows.sort_by_key(AgentRow::rank);
    Ok((rows, archived))
}

async fn new(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let kinds = kinds(&state).await?;
    Ok(rendered(&AgentForm {
        frame: frame.at(NavSection::Agents),
        agent: None,
        kinds,
        form_id: state.service.catalog.new_agent_id().to_string(),
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
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let passkey = state.service.catalog.new_passkey();
    let shown = passkey.reveal().to_owned();
    let edit = AgentEdit {
        name: Some(needed("name", fields.name)?),
        ai_type: Some(needed("ai_type", fields.ai_type)?),
        system_prompt: Some(fields.system_prompt),
        passkey: Some(passkey),
        status: None,
        seen: None,
    };
    let chosen: Option<AgentId> = given("id", &fields.id)?;
    let form_id: Option<AgentId> = given("form_id", &fields.form_id)?;
    let id = chosen.clone().or(form_id);
    let agent = match (state.service.catalog.add_agent(id.clone(), &edit).await, id) {
        (Ok(agent), _) => agent,
        // The form was sent before. Its passkey was shown then.
        (Err(ServiceError::Refused(Refusal::AlreadyExists(_))), Some(agent))
            if chosen.is_none() && is_made(&state, &agent, &edit).await? =>
        {
            return Ok(rendered(&PasskeyPart { frame, agent, passkey: None, is_replaced: false }));
        }
        (Err(error), _) => return Err(error.into()),
    };
    tracing::info!(agent_id = %agent.id, "agent added");
    Ok(rendered(&PasskeyPart { frame, agent: agent.id, passkey: Some(shown), is_replaced: false }))
}

/// Returns whether the agent of a form exists with the content of the form.
async fn is_made(state: &RestState, id: &AgentId, edit: &AgentEdit) -> Result<bool, Problem> {
    let agent = state.service.catalog.agent(id).await?;
    Ok(edit.name.as_ref() == Some(&agent.name)
        && edit.ai_type.as_ref() == Some(&agent.ai_type)
        && edit.system_prompt.as_ref() == Some(&agent.system_prompt))
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
    let purposes = purposes_of(&frame, &state, &agent, &project).await?;
    let open = state.service.launches.open().await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &open, Some(&project));
    let face = faces.of(&agent).ok_or(Refusal::AgentNotFound { agent })?;
    let (project, _) = state.service.catalog.project(&project).await?;
    let frame = Frame { project: None, ..frame }.at(NavSection::Agents);
    Ok(rendered(&WhyPage { frame, agent: face, project, purposes }))
}

async fn why_part(
    frame: Frame,
    State(state): State<RestState>,
    InPath((project, agent)): InPath<(ProjectId, AgentId)>,
) -> Result<Response, Problem> {
    let purposes = purposes_of(&frame, &state, &agent, &project).await?;
    Ok(rendered(&WhyPart { frame, purposes }))
}

async fn purposes_of(
    frame: &Frame,
    state: &RestState,
    agent: &AgentId,
    project: &ProjectId,
) -> Result<Vec<ShownWhy>, Problem> {
    let about = About { agent: Some(agent), project: Some(project), task: None };
    let shown = |why: WhyBody| ShownWhy {
        line: why.waiting().map(|waiting| WhyLine::of(frame.w, &waiting, about)),
        purpose: why.purpose,
        reason: why.reason,
        rules: why.rules,
    };
    let purposes = state.service.launches.why(agent, project).await?;
    Ok(purposes.into_iter().map(WhyBody::from).map(shown).collect())
}
