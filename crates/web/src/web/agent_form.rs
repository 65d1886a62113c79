//! The forms to make and to edit an agent.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::first_run::programs_for;
use super::form_ids::FormOf;
use super::layout::{Frame, NavSection, go_to, rendered};
use crate::auth::Operator;
use crate::extract::{InForm, InPath, InQuery, given, needed};
use crate::programs::{FoundProgram, ProgramList, ProgramLogin, UnfitProgram};
use crate::{Problem, RestState};
use domain::agent::{AgentStatus, AiTypes, DEFAULT_AI_TYPE, ProjectStatus};
use domain::{Agent, AgentId, Project, ProjectId, Sent};
use service::{AgentEdit, ProjectEdit};

#[derive(Template)]
#[template(path = "agent_form.html")]
struct AgentForm {
    frame: Frame,
    /// The agent; `None` if it is to be made.
    agent: Option<Agent>,
    kinds: Vec<String>,
    /// The id of the form of a new agent.
    form_id: String,
    /// The projects of the agent.
    projects: Vec<Project>,
    /// The other active projects.
    others: Vec<Project>,
}

/// The programs that start agents, as a choice of the kind.
#[derive(Template)]
#[template(path = "parts/agent_kinds.html")]
struct KindsPart {
    frame: Frame,
    kinds: Vec<FoundKind>,
    unfit: Vec<UnfitProgram>,
    /// The kind is one that was not found.
    is_other: bool,
}

struct FoundKind {
    program: FoundProgram,
    is_chosen: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindsQuery {
    /// The kind of the agent; absent for a new one, which gets the first that is found.
    ai_type: Option<String>,
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
        self.agent.as_ref().map_or(DEFAULT_AI_TYPE, |agent| &agent.ai_type)
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
    /// The revision with a passkey that replaces another one, for the form beside it.
    replaced_at: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFields {
    #[serde(default)]
    id: String,
    #[serde(default)]
    form_id: String,
    /// The revision that the form of an existing agent showed.
    revision: Option<i64>,
    name: String,
    /// A kind that was found; empty or absent if `ai_type` names another one.
    #[serde(default)]
    kind: String,
    #[serde(default)]
    ai_type: String,
    system_prompt: String,
    status: Option<AgentStatus>,
    /// A new agent gets a passkey.
    #[serde(default)]
    passkey: bool,
}

impl AgentFields {
    fn kind(&self) -> &str {
        if self.kind.is_empty() { &self.ai_type } else { &self.kind }
    }

    /// Returns the fields that a new and an existing agent have in common.
    fn edit(&self) -> Result<AgentEdit, Problem> {
        Ok(AgentEdit {
            name: Some(needed("name", self.name.clone())?),
            ai_type: Some(needed("ai_type", self.kind().to_owned())?),
            system_prompt: Some(self.system_prompt.clone()),
            status: self.status,
            seen: self.revision,
            ..AgentEdit::default()
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AssignFields {
    project: ProjectId,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/agents/new", get(new))
        .route("/ui/agents/{agent}", get(edit))
        .route("/ui/parts/agents/kinds", get(found_kinds))
        .route("/ui/do/agents", post(make))
        .route("/ui/do/agents/{agent}", post(change))
        .route("/ui/do/agents/{agent}/passkey", post(renew_passkey))
        .route("/ui/do/agents/{agent}/assign", post(assign))
}

async fn new(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let kinds = kinds(&state).await?;
    Ok(rendered(&AgentForm {
        form_id: FormOf::Agent.new_id(&frame, &state),
        frame: frame.at(NavSection::Agents),
        agent: None,
        kinds,
        projects: Vec::new(),
        others: Vec::new(),
    }))
}

async fn edit(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Response, Problem> {
    let agent = state.service.catalog.agent(&id).await?;
    let kinds = kinds(&state).await?;
    let all = state.service.catalog.projects().await?.into_iter();
    let (of_agent, others): (Vec<_>, Vec<_>) = all
        .filter(|(project, _)| project.status == ProjectStatus::Active)
        .partition(|(_, members)| members.contains(&id));
    let only_projects = |all: Vec<(Project, _)>| all.into_iter().map(|(it, _)| it).collect();
    Ok(rendered(&AgentForm {
        frame: frame.at(NavSection::Agents),
        agent: Some(agent),
        kinds,
        form_id: String::new(),
        projects: only_projects(of_agent),
        others: only_projects(others),
    }))
}

/// Returns the choice of the programs that were found.
async fn found_kinds(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(KindsQuery { ai_type }): InQuery<KindsQuery>,
) -> Response {
    let ProgramList { found: programs, unfit } = programs_for(&frame, &state).await;
    let chosen = ai_type.or_else(|| programs.first().map(|program| program.ai_type.clone()));
    let kind = |program: FoundProgram| FoundKind {
        is_chosen: chosen.as_ref() == Some(&program.ai_type),
        program,
    };
    let kinds: Vec<FoundKind> = programs.into_iter().map(kind).collect();
    let is_other = !kinds.iter().any(|kind| kind.is_chosen);
    rendered(&KindsPart { frame, kinds, unfit, is_other })
}

/// Returns the kinds that the form suggests. They include the kinds of existing agents if
/// coordinators elsewhere may start them.
async fn kinds(state: &RestState) -> Result<Vec<String>, Problem> {
    let catalog = &state.service.catalog;
    let mut kinds = catalog.provider_names();
    if catalog.ai_types() == AiTypes::Any {
        kinds.extend(catalog.agents().await?.into_iter().map(|agent| agent.ai_type));
    }
    Ok(kinds.into_iter().collect())
}

/// Makes an agent and opens its page. If the agent is to have a passkey, the page shows it now
/// instead, because it has no other moment for it.
async fn make(
    frame: Frame,
    State(state): State<RestState>,
    operator: Operator,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let chosen: Option<AgentId> = given("id", &fields.id)?;
    let passkey = fields.passkey.then(|| state.service.catalog.new_passkey());
    let shown = passkey.as_ref().map(|passkey| passkey.reveal().to_owned());
    let content = [
        fields.name.clone(),
        fields.kind().to_owned(),
        fields.system_prompt.clone(),
        fields.passkey.to_string(),
    ];
    let edit =
        AgentEdit { generates_passkey: passkey.is_some(), passkey, status: None, ..fields.edit()? };
    let catalog = &state.service.catalog;
    let sent = if chosen.is_some() {
        catalog.add_agent(chosen, &edit).await?
    } else {
        let form = FormOf::Agent.check(&fields.form_id, &operator, &state)?;
        let thing = form.thing(AgentId::PREFIX, &content);
        catalog.add_agent_by_form(&thing, &edit).await?
    };
    let (agent, passkey) = match sent {
        Sent::First(agent) => {
            tracing::info!(agent_id = %agent.id, "agent added");
            (agent.id, shown)
        }
        // Its passkey was shown when the form was sent for the first time.
        Sent::Again(agent) => (agent.id, None),
    };
    if !fields.passkey {
        return Ok(go_to(&format!("/ui/agents/{agent}")));
    }
    Ok(rendered(&PasskeyPart { frame, agent, passkey, replaced_at: None }))
}

async fn change(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    state.service.catalog.set_agent(&id, &fields.edit()?).await?;
    tracing::info!(agent_id = %id, "agent changed");
    Ok(go_to("/ui/agents"))
}

/// Assigns the agent to a project, and opens its page in the project.
async fn assign(
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
    InForm(AssignFields { project }): InForm<AssignFields>,
) -> Result<Response, Problem> {
    let edit = ProjectEdit { assign: vec![id.clone()], ..ProjectEdit::default() };
    state.service.catalog.set_project(&project, &edit).await?;
    tracing::info!(project_id = %project, assign = ?edit.assign, "project changed");
    Ok(go_to(&format!("/ui/projects/{project}/agents/{id}")))
}

async fn renew_passkey(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<AgentId>,
) -> Result<Response, Problem> {
    let passkey = state.service.catalog.new_passkey();
    let shown = passkey.reveal().to_owned();
    let edit = AgentEdit { passkey: Some(passkey), ..AgentEdit::default() };
    let replaced_at = Some(state.service.catalog.set_agent(&id, &edit).await?.revision);
    tracing::info!(agent_id = %id, "agent has a new passkey");
    Ok(rendered(&PasskeyPart { frame, agent: id, passkey: Some(shown), replaced_at }))
}
