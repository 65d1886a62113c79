//! The pages of projects: the list, the forms to make and edit one, and the assigned agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::first_run::FirstRun;
use super::folder::FolderLine;
use super::form_ids::FormOf;
use super::layout::{Frame, NavSection, go_to, rendered};
use super::shown::{Face, Faces, hue_of, initial_of};
use super::tasks::TaskRow;
use super::words::Words;
use crate::auth::Operator;
use crate::extract::{InForm, InPath, given, needed};
use crate::{Problem, RestState};
use domain::agent::ProjectStatus;
use domain::workspace::{Folder, WorkspaceMode};
use domain::{AgentId, Project, ProjectId, Sent};
use service::{ArchivedTasks, ProjectEdit, TaskFilter};

#[derive(Template)]
#[template(path = "projects.html")]
struct ProjectsPage {
    frame: Frame,
    projects: Vec<ProjectTile>,
    archived: Vec<ProjectTile>,
    /// The steps that are to be taken first; `None` after them.
    first_run: Option<FirstRun>,
}

#[derive(Template)]
#[template(path = "parts/projects.html")]
struct ProjectsPart {
    frame: Frame,
    projects: Vec<ProjectTile>,
    archived: Vec<ProjectTile>,
}

struct ProjectTile {
    id: ProjectId,
    name: String,
    working_directory: String,
    initial: String,
    hue: u8,
    is_archived: bool,
    /// The state, if it is not active.
    status: Option<&'static str>,
    n_open: usize,
    n_running: usize,
    agents: Vec<Face>,
}

#[derive(Template)]
#[template(path = "project_form.html")]
struct ProjectForm {
    frame: Frame,
    /// The project; `None` if it is to be made.
    project: Option<Project>,
    members: Vec<Face>,
    others: Vec<Face>,
    archived_tasks: Vec<TaskRow>,
    modes: &'static [WorkspaceMode],
    proposed: WorkspaceMode,
    /// The id of the form of a new project.
    form_id: String,
    /// Nothing is known about a folder yet.
    folder: Option<FolderLine>,
}

impl ProjectForm {
    fn empty(frame: Frame) -> Self {
        Self {
            frame: frame.at(NavSection::Projects),
            project: None,
            members: Vec::new(),
            others: Vec::new(),
            archived_tasks: Vec::new(),
            modes: WorkspaceMode::ALL,
            proposed: WorkspaceMode::Shared,
            form_id: String::new(),
            folder: None,
        }
    }

    fn heading(&self) -> &'static str {
        if self.project.is_some() { self.frame.w.edit_project } else { self.frame.w.new_project }
    }

    fn action(&self) -> String {
        match &self.project {
            Some(project) => format!("/ui/do/projects/{}", project.id),
            None => "/ui/do/projects".to_owned(),
        }
    }

    fn back(&self) -> String {
        match &self.project {
            Some(project) => format!("/ui/projects/{}", project.id),
            None => "/ui/projects".to_owned(),
        }
    }

    fn name(&self) -> &str {
        self.project.as_ref().map_or("", |project| &project.name)
    }

    fn working_directory(&self) -> String {
        self.project
            .as_ref()
            .map(|project| project.working_directory.display().to_string())
            .unwrap_or_default()
    }

    fn base(&self) -> &str {
        let own = self.project.as_ref().and_then(|project| project.overrides.base.as_deref());
        own.unwrap_or_default()
    }

    fn branch(&self) -> &str {
        let own = self.project.as_ref().and_then(|project| project.overrides.branch.as_deref());
        own.unwrap_or_default()
    }

    /// Returns whether its tasks have clones, or may get them.
    fn may_have_clones(&self) -> bool {
        let mode = self.project.as_ref().map(|project| project.workspace);
        mode != Some(WorkspaceMode::Shared)
    }

    fn statuses(&self) -> [(&'static str, &'static str); 3] {
        let w = self.frame.w;
        [
            (ProjectStatus::Active.as_str(), w.active),
            (ProjectStatus::Inactive.as_str(), w.inactive),
            (ProjectStatus::Archived.as_str(), w.archived),
        ]
    }
}

/// The fields of the form of a project.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectFields {
    #[serde(default)]
    id: String,
    #[serde(default)]
    form_id: String,
    name: String,
    working_directory: PathBuf,
    status: Option<ProjectStatus>,
    /// The revision that the form of an existing project showed.
    revision: Option<i64>,
    /// The mode of a new project.
    workspace: Option<WorkspaceMode>,
    workspace_base: Option<String>,
    workspace_branch: Option<String>,
    merge_hooks: Option<String>,
    /// The form is the first step of the first run.
    #[serde(default)]
    first_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberFields {
    agent: AgentId,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/projects", get(all))
        .route("/ui/parts/projects", get(all_part))
        .route("/ui/projects/new", get(new))
        .route("/ui/projects/{project}/edit", get(edit))
        .route("/ui/do/projects", post(make))
        .route("/ui/do/projects/{project}", post(change))
        .route("/ui/do/projects/{project}/assign", post(assign))
        .route("/ui/do/projects/{project}/unassign", post(unassign))
}

async fn all(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let (projects, archived) = tiles(frame.w, &state).await?;
    let first_run = FirstRun::read(&frame, &state).await?;
    let frame = frame.at(NavSection::Projects);
    Ok(rendered(&ProjectsPage { frame, projects, archived, first_run }))
}

async fn all_part(frame: Frame, State(state): State<RestState>) -> Result<Response, Problem> {
    let (projects, archived) = tiles(frame.w, &state).await?;
    Ok(rendered(&ProjectsPart { frame, projects, archived }))
}

/// Returns the projects, and apart from them those that are archived.
async fn tiles(
    w: &'static Words,
    state: &RestState,
) -> Result<(Vec<ProjectTile>, Vec<ProjectTile>), Problem> {
    let open = state.service.launches.open().await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &open, None);
    let n_open: BTreeMap<ProjectId, usize> = state.service.tasks.count_open().await?;
    let tile = |(project, members): (Project, Vec<AgentId>)| ProjectTile {
        n_open: n_open.get(&project.id).copied().unwrap_or_default(),
        n_running: open.iter().filter(|launch| launch.key.project == project.id).count(),
        agents: faces.of_all(&members),
        is_archived: project.is_archived(),
        status: match project.status {
            ProjectStatus::Active => None,
            ProjectStatus::Inactive => Some(w.inactive),
            ProjectStatus::Archived => Some(w.archived),
        },
        initial: initial_of(&project.name),
        hue: hue_of(project.id.as_str()),
        id: project.id,
        name: project.name,
        working_directory: project.working_directory.display().to_string(),
    };
    let projects = state.service.catalog.projects().await?.into_iter().map(tile);
    Ok(projects.partition(|tile| !tile.is_archived))
}

async fn new(frame: Frame, State(state): State<RestState>) -> Response {
    let form_id = FormOf::Project.new_id(&frame, &state);
    rendered(&ProjectForm { form_id, ..ProjectForm::empty(frame) })
}

async fn edit(
    frame: Frame,
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
) -> Result<Response, Problem> {
    let (project, members) = state.service.catalog.project(&id).await?;
    let agents = state.service.catalog.agents().await?;
    let others: Vec<AgentId> = agents
        .iter()
        .map(|agent| agent.id.clone())
        .filter(|agent| !members.contains(agent))
        .collect();
    let faces = Faces::new(agents, &state.service.launches.open().await?, Some(&id));
    let filter =
        TaskFilter { project: Some(id), archived: ArchivedTasks::Only, ..TaskFilter::default() };
    let archived_tasks = state.service.tasks.list(&filter).await?;
    Ok(rendered(&ProjectForm {
        project: Some(project),
        members: faces.of_all(&members),
        others: faces.of_all(&others),
        archived_tasks: TaskRow::all(archived_tasks, &faces),
        ..ProjectForm::empty(frame)
    }))
}

async fn make(
    frame: Frame,
    State(state): State<RestState>,
    operator: Operator,
    InForm(mut fields): InForm<ProjectFields>,
) -> Result<Response, Problem> {
    let chosen: Option<ProjectId> = given("id", &fields.id)?;
    if fields.first_run && fields.name.trim().is_empty() {
        let name = fields.working_directory.file_name().unwrap_or_default();
        fields.name = name.to_string_lossy().into_owned();
    }
    let name = needed("name", fields.name)?;
    check_folder(&frame, &state, &fields.working_directory).await?;
    let directory = fields.working_directory.to_string_lossy().into_owned();
    let texts = [fields.workspace_base.clone(), fields.workspace_branch.clone()];
    let [base, branch] = texts.map(Option::unwrap_or_default);
    let workspace = fields.workspace.map_or("", WorkspaceMode::as_str);
    let edit = ProjectEdit {
        name: Some(name),
        working_directory: Some(fields.working_directory),
        workspace: fields.workspace,
        workspace_base: fields.workspace_base,
        workspace_branch: fields.workspace_branch,
        ..ProjectEdit::default()
    };
    let name = edit.name.as_deref().unwrap_or_default();
    let catalog = &state.service.catalog;
    let sent = if chosen.is_some() {
        catalog.add_project(chosen, &edit).await?
    } else {
        let content = [name, &directory, workspace, &base, &branch];
        let form = FormOf::Project.check(&fields.form_id, &operator, &state)?;
        let thing = form.thing(ProjectId::PREFIX, &content);
        catalog.add_project_by_form(&thing, &edit).await?
    };
    if let Sent::First(id) = &sent {
        tracing::info!(project_id = %id, "project added");
    }
    Ok(if fields.first_run {
        go_to(super::HOME)
    } else {
        go_to(&format!("/ui/projects/{}/edit", sent.thing()))
    })
}

/// Checks that agents can work in the folder of a new project.
///
/// # Errors
/// They cannot. The reason stands at the field, in the words of the reader.
async fn check_folder(frame: &Frame, state: &RestState, directory: &Path) -> Result<(), Problem> {
    match state.service.catalog.look_at_path(directory).await {
        None | Some(Folder::NotAbsolute | Folder::Failed(_)) => Ok(()),
        Some(folder) if folder.is_usable() => Ok(()),
        Some(folder) => {
            let text = frame.w.of_folder(&folder);
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unusable_folder", text);
            Err(problem.at("working_directory"))
        }
    }
}

async fn change(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InForm(fields): InForm<ProjectFields>,
) -> Result<Response, Problem> {
    let edit = ProjectEdit {
        name: Some(needed("name", fields.name)?),
        working_directory: Some(fields.working_directory),
        status: fields.status,
        seen: fields.revision,
        workspace: fields.workspace,
        workspace_base: fields.workspace_base,
        workspace_branch: fields.workspace_branch,
        merge_hooks: fields.merge_hooks,
        ..ProjectEdit::default()
    };
    state.service.catalog.set_project(&id, &edit).await?;
    tracing::info!(project_id = %id, "project changed");
    Ok(go_to(&format!("/ui/projects/{id}")))
}

async fn assign(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InForm(fields): InForm<MemberFields>,
) -> Result<Response, Problem> {
    let edit = ProjectEdit { assign: vec![fields.agent], ..ProjectEdit::default() };
    change_members(&state, &id, edit).await
}

async fn unassign(
    State(state): State<RestState>,
    InPath(id): InPath<ProjectId>,
    InForm(fields): InForm<MemberFields>,
) -> Result<Response, Problem> {
    let edit = ProjectEdit { unassign: vec![fields.agent], ..ProjectEdit::default() };
    change_members(&state, &id, edit).await
}

async fn change_members(
    state: &RestState,
    id: &ProjectId,
    edit: ProjectEdit,
) -> Result<Response, Problem> {
    state.service.catalog.set_project(id, &edit).await?;
    tracing::info!(project_id = %id, assign = ?edit.assign, unassign = ?edit.unassign, "project changed");
    Ok(go_to(&format!("/ui/projects/{id}/edit")))
}
