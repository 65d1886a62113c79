//! The list of agents: their current work, and the reason why one does not work.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::agent_state::{AgentState, StateGroup};
use super::buttons::{Button, ButtonAction};
use super::instances::{InstanceRow, instance_rows};
use super::layout::{Frame, NavSection, page_and_part};
use super::shown::{Face, LastEnd, cost_of};
use super::today::Today;
use super::waits::{About, WhyLine};
use super::words::Words;
use crate::extract::{InForm, InQuery, given};
use crate::{Problem, RestState};
use domain::agent::{AgentStatus, ProjectStatus};
use domain::{Agent, AgentId, InstanceKey, Project, ProjectId, Purpose, ShortId, TaskId, Why};
use service::{AgentEdit, Force, ProjectEdit, StopTarget};

page_and_part! {
    AgentsPage "agents.html", AgentsPart "parts/agents.html" { list: AgentList }
}

/// The agents that a reader wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Show {
    #[default]
    All,
    Working,
    NeedsPerson,
}

impl Show {
    const ALL: [Self; 3] = [Self::All, Self::Working, Self::NeedsPerson];

    /// Returns the query of the address.
    const fn query(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Working => "?show=working",
            Self::NeedsPerson => "?show=needs_person",
        }
    }

    const fn text(self, w: &'static Words) -> &'static str {
        match self {
            Self::All => w.all,
            Self::Working => w.works,
            Self::NeedsPerson => w.needs_attention,
        }
    }

    /// Returns the text of a list without such an agent.
    const fn none(self, w: &'static Words) -> &'static str {
        match self {
            Self::All => w.no_agents,
            Self::Working => w.no_agent_works,
            Self::NeedsPerson => w.no_agent_needs_person,
        }
    }

    fn has(self, group: StateGroup) -> bool {
        match self {
            Self::All => true,
            Self::Working => group == StateGroup::Works,
            Self::NeedsPerson => group == StateGroup::NeedsPerson,
        }
    }
}

/// The list and the agent that its panel shows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentsQuery {
    #[serde(default)]
    show: Show,
    agent: Option<AgentId>,
    project: Option<ProjectId>,
}

struct AgentList {
    show: Show,
    rows: Vec<AgentRow>,
    n_agents: usize,
    n_working: usize,
    archived: Vec<Agent>,
    /// The part that the panel begins with.
    open: Option<String>,
}

/// An agent in the projects in which it is in the same state.
struct AgentRow {
    /// The id of the row in the page.
    key: String,
    agent: Face,
    ai_type: String,
    projects: Vec<(ProjectId, String)>,
    state: AgentState,
    /// The task that it works on, or that it waits to work on.
    task: Option<(ShortId, String)>,
    instances: Vec<InstanceRow>,
    why: Option<WhyLine>,
    /// The sentence for an agent that neither runs nor waits.
    rest: String,
    last: Option<LastEnd>,
    cost: Option<String>,
    button: Option<Button>,
}

impl AgentRow {
    /// Returns the names of its projects.
    fn project_names(&self) -> String {
        let names: Vec<&str> = self.projects.iter().map(|(_, name)| name.as_str()).collect();
        names.join(", ")
    }

    /// Returns the page of the agent: in its first project, or its form if it has none.
    fn href(&self) -> String {
        match self.projects.first() {
            Some((project, _)) => format!("/ui/projects/{project}/agents/{}", self.agent.id),
            None => format!("/ui/agents/{}", self.agent.id),
        }
    }

    /// Returns the part for the panel, and the address of the list with it.
    fn panel(&self, show: Show) -> Option<(String, String)> {
        let (project, _) = self.projects.first()?;
        let agent = &self.agent.id;
        let begin = if show == Show::All { "?" } else { "&" };
        let address = format!("/ui/agents{}{begin}agent={agent}&project={project}", show.query());
        Some((format!("/ui/parts/projects/{project}/agents/{agent}"), address))
    }

    /// Returns whether one row can stand for both.
    fn is_like(&self, other: &Self) -> bool {
        let text = |row: &Self| row.why.as_ref().map(|why| why.text.clone());
        self.instances.is_empty()
            && other.instances.is_empty()
            && self.state.text == other.state.text
            && self.task == other.task
            && self.button == other.button
            && text(self) == text(other)
    }
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActivateFields {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    project: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/agents", get(show))
        .route("/ui/parts/agents", get(show))
        .route("/ui/do/stop", post(stop))
        .route("/ui/do/resume", post(resume))
        .route("/ui/do/activate", post(activate))
}

async fn show(
    frame: Frame,
    State(state): State<RestState>,
    InQuery(query): InQuery<AgentsQuery>,
) -> Result<Response, Problem> {
    let list = AgentList::read(frame.w, &state, query).await?;
    Ok(AgentsPage { frame: frame.at(NavSection::Agents), list }.shown())
}

/// The facts about all agents, each kind read by one query.
struct Facts {
    w: &'static Words,
    projects: Vec<(Project, Vec<AgentId>)>,
    instances: BTreeMap<(AgentId, ProjectId), Vec<InstanceRow>>,
    whys: BTreeMap<InstanceKey, Why>,
    titles: BTreeMap<TaskId, (ShortId, String)>,
    today: Today,
}

fn key_of(agent: &AgentId, project: &ProjectId) -> InstanceKey {
    InstanceKey::new(agent.clone(), project.clone(), Purpose::Task)
}

impl Facts {
    async fn read(w: &'static Words, state: &RestState) -> Result<Self, Problem> {
        let projects = state.service.catalog.projects().await?;
        let view = state.service.status().await?;
        let today = Today::read(state, &view.ended).await?;
        let mut instances: BTreeMap<(AgentId, ProjectId), Vec<InstanceRow>> = BTreeMap::new();
        for row in instance_rows(state, &view).await? {
            instances.entry((row.agent.clone(), row.project.clone())).or_default().push(row);
        }
        let keys = projects.iter().flat_map(|(project, members)| {
            members.iter().map(move |agent| key_of(agent, &project.id))
        });
        let all = state.service.launches.why_of(keys.collect()).await?;
        let next = all.iter().filter_map(|why| why.task.clone()).collect();
        let titles = state.service.tasks.titles(next).await?;
        let whys = all.into_iter().map(|why| (why.key.clone(), why)).collect();
        Ok(Self { w, projects, instances, whys, titles, today })
    }

    /// Returns the rows of an agent, the one that people look at first at the beginning. A project
    /// without work for the agent has no row of its own beside another one.
    fn rows_of(&mut self, agent: &Agent) -> Vec<AgentRow> {
        let mut rows: Vec<AgentRow> = Vec::new();
        let mut idle = Vec::new();
        for (project, is_member) in self.projects_of(agent) {
            let here = self.instances.remove(&(agent.id.clone(), project.0.clone()));
            let here = here.unwrap_or_default();
            if here.is_empty() && !is_member {
                continue;
            }
            let row = self.row(agent, project, here);
            if row.state.group == StateGroup::Idle {
                idle.extend(row.projects);
            } else if let Some(like) = rows.iter_mut().find(|other| other.is_like(&row)) {
                like.projects.extend(row.projects);
            } else {
                rows.push(row);
            }
        }
        rows.sort_by_key(|row| row.state.group);
        match rows.first_mut() {
            Some(first) => first.projects.extend(idle),
            None => rows.push(self.idle_row(agent, idle)),
        }
        for row in &mut rows {
            let projects = || row.projects.iter().map(|(project, _)| project);
            row.last = self.today.last_end(self.w, &agent.id, projects());
            row.cost = cost_of(&self.today.usage(&agent.id, projects()));
        }
        rows
    }

    fn projects_of(&self, agent: &Agent) -> Vec<((ProjectId, String), bool)> {
        let of = |(project, members): &(Project, Vec<AgentId>)| {
            ((project.id.clone(), project.name.clone()), members.contains(&agent.id))
        };
        self.projects.iter().map(of).collect()
    }

    fn row(
        &self,
        agent: &Agent,
        project: (ProjectId, String),
        mut instances: Vec<InstanceRow>,
    ) -> AgentRow {
        let w = self.w;
        // Work on a task comes before a chat.
        instances.sort_by_key(|instance| instance.purpose);
        let key = key_of(&agent.id, &project.0);
        let why = self.whys.get(&key);
        let about = About { agent: Some(&agent.id), project: Some(&project.0), task: None };
        let waiting = why.and_then(Why::waiting_or_stopped);
        let line = waiting.map(|waiting| WhyLine::of(w, &waiting, about));
        let silent = why.filter(|why| why.is_host_silent);
        let (state, task, why, button) = if let Some(first) = instances.first() {
            let stop = Button::stop_of(w, agent, &project.0, &instances);
            let of_instance = || AgentState::of_instance(w, first);
            let state = silent.map_or_else(of_instance, |why| AgentState::of_why(w, why));
            (state, first.task_title.clone(), line.filter(|_| silent.is_some()), stop)
        } else {
            let idle = || AgentState::of(StateGroup::Idle, w.idle);
            let state = why.map_or_else(idle, |why| AgentState::of_why(w, why));
            let task = why.and_then(|why| self.titles.get(why.task.as_ref()?)).cloned();
            let button = line.as_ref().and_then(|line| line.action.clone()).map(Button::from);
            (state, task, line, button)
        };
        let ring = state.ring(instances.iter().any(|row| row.pid.is_some()));
        AgentRow {
            key: format!("agent-{}-{}", agent.id, project.0),
            agent: Face { ring, ..Face::of(agent, false) },
            ai_type: agent.ai_type.clone(),
            rest: if state.group == StateGroup::Waits { w.starts_now } else { "" }.to_owned(),
            projects: vec![project],
            state,
            task,
            instances,
            why,
            last: None,
            cost: None,
            button,
        }
    }

    /// Returns the row of an agent without work, or without a project.
    fn idle_row(&self, agent: &Agent, projects: Vec<(ProjectId, String)>) -> AgentRow {
        let w = self.w;
        let button = match projects.first() {
            Some((project, _)) => Button::give_task(w, &agent.id, project),
            None => Button {
                text: w.assign_agent.to_owned(),
                icon: None,
                look: "ghost",
                does: ButtonAction::Leads { href: "/ui/projects".to_owned() },
            },
        };
        let mut row = AgentRow {
            key: format!("agent-{}", agent.id),
            agent: Face::of(agent, false),
            ai_type: agent.ai_type.clone(),
            projects,
            state: AgentState::of(StateGroup::Idle, w.idle),
            task: None,
            instances: Vec::new(),
            why: None,
            rest: w.not_assigned.to_owned(),
            last: None,
            cost: None,
            button: Some(button),
        };
        if !row.projects.is_empty() {
            row.rest = w.of_no_task_in(&row.project_names());
        }
        row
    }
}

impl AgentList {
    /// Reads the rows in the order in which people look, and apart from them the archived agents.
    async fn read(
        w: &'static Words,
        state: &RestState,
        AgentsQuery { show, agent, project }: AgentsQuery,
    ) -> Result<Self, Problem> {
        let open = agent.zip(project);
        let open =
            open.map(|(agent, project)| format!("/ui/parts/projects/{project}/agents/{agent}"));
        let agents = state.service.catalog.agents().await?.into_iter();
        let (archived, agents): (Vec<Agent>, Vec<Agent>) = agents.partition(Agent::is_archived);
        let mut facts = Facts::read(w, state).await?;
        let mut rows: Vec<AgentRow> =
            agents.iter().flat_map(|agent| facts.rows_of(agent)).collect();
        let working = rows.iter().filter(|row| row.state.works()).map(|row| &row.agent.id);
        let n_working = working.collect::<BTreeSet<_>>().len();
        rows.retain(|row| show.has(row.state.group));
        rows.sort_by_key(|row| row.state.group);
        Ok(Self { show, rows, n_agents: agents.len(), n_working, archived, open })
    }
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

/// Activates an agent or a project that a person deactivated.
async fn activate(
    State(state): State<RestState>,
    InForm(fields): InForm<ActivateFields>,
) -> Result<StatusCode, Problem> {
    let catalog = &state.service.catalog;
    if let Some(agent) = given::<AgentId>("agent", &fields.agent)? {
        let edit = AgentEdit { status: Some(AgentStatus::Active), ..AgentEdit::default() };
        catalog.set_agent(&agent, &edit).await?;
        tracing::info!(agent_id = %agent, "agent changed");
    }
    if let Some(project) = given::<ProjectId>("project", &fields.project)? {
        let edit = ProjectEdit { status: Some(ProjectStatus::Active), ..ProjectEdit::default() };
        catalog.set_project(&project, &edit).await?;
        tracing::info!(project_id = %project, "project changed");
    }
    Ok(StatusCode::NO_CONTENT)
}
