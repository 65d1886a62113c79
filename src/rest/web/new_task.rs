//! The form of a new task. A form that is sent twice makes one task. A form with a mistake comes
//! back with its values and says what is wrong.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::board::NEW_STATUSES;
use super::layout::{Frame, rendered};
use super::shown::{Face, Faces};
use crate::domain::{Priority, Project, ProjectId, Refusal, Task, TaskId, TaskStatus};
use crate::rest::extract::{InForm, InPath, InQuery, given};
use crate::rest::{Problem, RestState};
use crate::service::{NewTask, ServiceError};

#[derive(Template)]
#[template(path = "parts/new_task.html")]
struct NewTaskPart {
    frame: Frame,
    project: Project,
    parent: Option<Task>,
    members: Vec<Face>,
    fields: NewTaskFields,
    is_another: bool,
    /// The mistake in the title.
    title_problem: Option<String>,
    /// The mistake in the description.
    description_problem: Option<String>,
}

impl NewTaskPart {
    #[allow(clippy::unused_self, reason = "called by its template")]
    fn priorities(&self) -> &'static [Priority] {
        Priority::ALL
    }

    #[allow(clippy::unused_self, reason = "called by its template")]
    fn statuses(&self) -> [TaskStatus; 3] {
        NEW_STATUSES
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewQuery {
    parent: Option<TaskId>,
    status: Option<TaskStatus>,
    /// The reader makes several tasks, one after the other.
    #[serde(default)]
    another: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTaskFields {
    /// The id of the task. The server made it with the form.
    id: TaskId,
    title: String,
    description: String,
    assignee: String,
    priority: Priority,
    status: TaskStatus,
    /// The task is to be in progress, whatever the form has as its status.
    #[serde(default)]
    start: bool,
    #[serde(default)]
    parent: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/parts/projects/{project}/new-task", get(new))
        .route("/ui/do/projects/{project}/tasks", post(make))
}

async fn new(
    frame: Frame,
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InQuery(query): InQuery<NewQuery>,
) -> Result<Response, Problem> {
    let parent = match query.parent {
        Some(parent) => state.service.tasks.full_id(parent).await?.to_string(),
        None => String::new(),
    };
    let fields = NewTaskFields {
        id: state.service.tasks.new_id(),
        title: String::new(),
        description: String::new(),
        assignee: String::new(),
        priority: Priority::Medium,
        status: query.status.filter(|to| NEW_STATUSES.contains(to)).unwrap_or(TaskStatus::Todo),
        start: false,
        parent,
    };
    let form = form(frame, &state, &project, fields).await?;
    Ok(rendered(&NewTaskPart { is_another: query.another, ..form }))
}

async fn form(
    frame: Frame,
    state: &RestState,
    project: &ProjectId,
    fields: NewTaskFields,
) -> Result<NewTaskPart, Problem> {
    let (project, members) = state.service.catalog.project(project).await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &[], None);
    let parent = match given("parent", &fields.parent)? {
        Some(parent) => Some(state.service.tasks.view(&parent).await?.task),
        None => None,
    };
    Ok(NewTaskPart {
        frame,
        project,
        parent,
        members: faces.of_all(&members),
        fields,
        is_another: false,
        title_problem: None,
        description_problem: None,
    })
}

async fn make(
    frame: Frame,
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InForm(fields): InForm<NewTaskFields>,
) -> Result<Response, Problem> {
    if fields.title.trim().is_empty() {
        let problem = frame.w.needs_title.to_owned();
        let part = form(frame, &state, &project, fields).await?;
        return Ok(marked(&NewTaskPart { title_problem: Some(problem), ..part }));
    }
    let parent = match given("parent", &fields.parent)? {
        Some(parent) => Some(state.service.tasks.full_id(parent).await?),
        None => None,
    };
    let new = NewTask {
        id: Some(fields.id.clone()),
        project: project.clone(),
        title: fields.title.clone(),
        description: fields.description.clone(),
        status: if fields.start { TaskStatus::InProgress } else { fields.status },
        priority: fields.priority,
        assignee: given("assignee", &fields.assignee)?,
        parent,
        dependencies: Vec::new(),
    };
    let refusal = match state.service.tasks.add(&new).await {
        Ok(view) => {
            let task = view.task;
            tracing::info!(
                task_id = %task.id, project_id = %task.project, status = %task.status, "task added"
            );
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        Err(ServiceError::Refused(refusal)) => refusal,
        Err(error) => return Err(error.into()),
    };
    match &refusal {
        // The form was sent before.
        Refusal::AlreadyExists(_) if is_made(&state, &new).await? => {
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Refusal::TooLong { text, .. } | Refusal::NotOneLine { text, .. } => {
            let is_title = *text == "title";
            let problem = frame.w.of_problem(refusal.code(), refusal.to_string());
            let part = form(frame, &state, &project, fields).await?;
            Ok(marked(&if is_title {
                NewTaskPart { title_problem: Some(problem), ..part }
            } else {
                NewTaskPart { description_problem: Some(problem), ..part }
            }))
        }
        _ => Err(refusal.into()),
    }
}

/// Returns whether the task of a form exists with the content of the form.
async fn is_made(state: &RestState, new: &NewTask) -> Result<bool, Problem> {
    let Some(id) = &new.id else { return Ok(false) };
    let task = state.service.tasks.view(id).await?.task;
    let wanted = new.to_task(task.id.clone(), task.short_id.clone(), task.created_at)?;
    Ok(task.project == wanted.project
        && task.title == wanted.title
        && task.description == wanted.description
        && task.parent == wanted.parent)
}

/// Returns the form with its mistakes, for the place of the form that was sent.
fn marked(part: &NewTaskPart) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, rendered(part)).into_response()
}
