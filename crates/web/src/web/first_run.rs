//! The first run: three steps from an empty coordinator to a task that an agent works on. The page
//! of the projects shows them until there is a task, and so does the board of an empty project.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::form_ids::FormOf;
use super::layout::{Frame, go_to, rendered};
use super::shown::Face;
use crate::auth::Operator;
use crate::extract::{InForm, needed};
use crate::programs::{FoundProgram, ProgramList, ProgramLogin, UnfitProgram};
use crate::{Problem, RestState};
use domain::agent::{AgentStatus, AiTypes, ProjectStatus};
use domain::{Agent, AgentId, Project, ProjectId, Sent, TaskId, TaskStatus};
use service::{AgentEdit, NewTask, ProjectEdit, TaskFilter};

/// The state of the three steps.
pub(super) struct FirstRun {
    /// The project; `None` before the first step.
    pub(super) project: Option<Project>,
    /// The agent of the project; `None` before the second step.
    pub(super) agent: Option<Face>,
    /// There are agents that can be assigned to the project instead of a new one.
    pub(super) has_other_agents: bool,
    /// The folder that the first step proposes.
    pub(super) directory: String,
    /// The id of the form of the next step.
    pub(super) form_id: String,
}

#[derive(Template)]
#[template(path = "parts/found_programs.html")]
struct ProgramsPart {
    frame: Frame,
    programs: Vec<FoundProgram>,
    unfit: Vec<UnfitProgram>,
    /// Coordinators on other machines may start kinds that this one does not know.
    are_others_elsewhere: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFields {
    form_id: String,
    project: ProjectId,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ai_type: String,
    /// A kind that only a coordinator elsewhere knows.
    #[serde(default)]
    other_kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFields {
    form_id: String,
    project: ProjectId,
    assignee: AgentId,
    title: String,
    #[serde(default)]
    description: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/parts/first-run/programs", get(programs))
        .route("/ui/do/first-run/agent", post(make_agent))
        .route("/ui/do/first-run/task", post(make_task))
}

impl FirstRun {
    /// Returns the steps; `None` if they were taken, or if the reader may not take them.
    pub(super) async fn read(frame: &Frame, state: &RestState) -> Result<Option<Self>, Problem> {
        let mut projects = state.service.catalog.projects().await?;
        let is_used = |(project, _): &(Project, _)| project.status != ProjectStatus::Active;
        if !frame.may_change() || projects.len() > 1 || projects.iter().any(is_used) {
            return Ok(None);
        }
        let directory = state.programs.directory.as_ref();
        let none = Self {
            project: None,
            agent: None,
            has_other_agents: false,
            form_id: FormOf::Project.new_id(frame, state),
            directory: directory.map(|path| path.display().to_string()).unwrap_or_default(),
        };
        match projects.pop() {
            Some((project, members)) => Self::of_project(frame, state, &project, &members).await,
            None => Ok(Some(none)),
        }
    }

    /// Returns the steps that are left to the first task of a project; `None` if it has tasks or is
    /// not active, or if the reader may not take them.
    pub(super) async fn of_project(
        frame: &Frame,
        state: &RestState,
        project: &Project,
        members: &[AgentId],
    ) -> Result<Option<Self>, Problem> {
        if !frame.may_change() || project.status != ProjectStatus::Active {
            return Ok(None);
        }
        let filter = TaskFilter { project: Some(project.id.clone()), ..TaskFilter::default() };
        if !state.service.tasks.list(&filter).await?.is_empty() {
            return Ok(None);
        }
        let agents = state.service.catalog.agents().await?;
        let is_member =
            |agent: &&Agent| agent.status == AgentStatus::Active && members.contains(&agent.id);
        let agent = agents.iter().find(is_member);
        let form = match agent {
            Some(_) => FormOf::Task(&project.id),
            None => FormOf::Member(&project.id),
        };
        Ok(Some(Self {
            project: Some(project.clone()),
            has_other_agents: agents.iter().any(|agent| agent.status == AgentStatus::Active),
            agent: agent.map(|agent| Face::of(agent, false)),
            form_id: form.new_id(frame, state),
            directory: String::new(),
        }))
    }
}

/// Returns the agent CLIs of this machine, or none if the reader may not change agents. CLIs that
/// cannot start here are left out while a coordinator on another host may start their agents. This
/// takes seconds if a CLI is slow to print its version.
pub(super) async fn programs_for(frame: &Frame, state: &RestState) -> ProgramList {
    // Only those who may make or change an agent learn what is installed.
    if !frame.may_change() {
        return ProgramList::default();
    }
    let list = state.programs.look().await;
    match state.service.catalog.ai_types() {
        AiTypes::Any => ProgramList { unfit: Vec::new(), ..list },
        AiTypes::Of(_) => list,
    }
}

/// Returns the agent CLIs that were found.
async fn programs(frame: Frame, State(state): State<RestState>) -> Response {
    let ProgramList { found: programs, unfit } = programs_for(&frame, &state).await;
    let are_others_elsewhere = state.service.catalog.ai_types() == AiTypes::Any;
    rendered(&ProgramsPart { frame, programs, unfit, are_others_elsewhere })
}

/// Makes the agent and assigns it to the project.
async fn make_agent(
    State(state): State<RestState>,
    operator: Operator,
    InForm(fields): InForm<AgentFields>,
) -> Result<Response, Problem> {
    let form = FormOf::Member(&fields.project).check(&fields.form_id, &operator, &state)?;
    let content = [fields.name.as_str(), &fields.ai_type, &fields.other_kind];
    let thing = form.thing(AgentId::PREFIX, &content);
    let is_other = !fields.other_kind.trim().is_empty();
    let ai_type = if is_other { fields.other_kind } else { needed("ai_type", fields.ai_type)? };
    let name = match fields.name.trim() {
        "" => capitalised(&ai_type),
        name => name.to_owned(),
    };
    let edit = AgentEdit { name: Some(name), ai_type: Some(ai_type), ..AgentEdit::default() };
    if let Sent::First(agent) = state.service.catalog.add_agent_by_form(&thing, &edit).await? {
        tracing::info!(agent_id = %agent.id, "agent added");
    }
    let assign = ProjectEdit { assign: vec![thing.id], ..ProjectEdit::default() };
    state.service.catalog.set_project(&fields.project, &assign).await?;
    Ok(go_to(&format!("/ui/projects/{}", fields.project)))
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

/// Makes the first task, which starts at once, and opens its card.
async fn make_task(
    State(state): State<RestState>,
    operator: Operator,
    InForm(fields): InForm<TaskFields>,
) -> Result<Response, Problem> {
    let form = FormOf::Task(&fields.project).check(&fields.form_id, &operator, &state)?;
    let content = [fields.title.as_str(), &fields.description, fields.assignee.as_str()];
    let thing = form.thing(TaskId::PREFIX, &content);
    let new = NewTask {
        description: fields.description,
        status: TaskStatus::InProgress,
        assignee: Some(fields.assignee),
        ..NewTask::new(fields.project.clone(), fields.title)
    };
    let sent = state.service.tasks.add_by_form(&new, &thing).await?;
    if let Sent::First(task) = &sent {
        tracing::info!(task_id = %task.id, project_id = %task.project, "task added");
    }
    let short_id = sent.thing().short_id;
    Ok(go_to(&format!("/ui/projects/{}?task={short_id}", fields.project)))
}
