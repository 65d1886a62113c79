//! The form of a new task. A form that is sent twice makes one task.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::board::NEW_STATUSES;
use super::layout::{Frame, rendered};
use super::shown::{Face, Faces};
use crate::domain::{AgentId, Priority, Project, ProjectId, Refusal, Task, TaskId, TaskStatus};
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
    /// The id of the task that the form makes.
    id: TaskId,
    status: TaskStatus,
    is_another: bool,
    /// The agent that is chosen at first.
    assignee: Option<AgentId>,
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
    assignee: Option<AgentId>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTaskFields {
    /// The id of the task. The server made it with the form.
    id: TaskId,
    title: String,
    description: String,
    assignee: String,
    priority: Priority,
    status: TaskStatus,
    /// The task is to be in progress. The status of the form does not count.
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
        Some(parent) => {
            let parent = state.service.tasks.full_id(parent).await?;
            Some(state.service.tasks.view(&parent).await?.task)
        }
        None => None,
    };
    let (project, members) = state.service.catalog.project(&project).await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &[], None);
    Ok(rendered(&NewTaskPart {
        frame,
        project,
        parent,
        members: faces.of_all(&members),
        id: state.service.tasks.new_id(),
        is_another: query.another,
        assignee: query.assignee,
        status: query.status.filter(|to| NEW_STATUSES.contains(to)).unwrap_or(TaskStatus::Todo),
    }))
}

async fn make(
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InForm(fields): InForm<NewTaskFields>,
) -> Result<StatusCode, Problem> {
    let parent = match given("parent", &fields.parent)? {
        Some(parent) => Some(state.service.tasks.full_id(parent).await?),
        None => None,
    };
    let new = NewTask {
        id: Some(fields.id),
        project,
        title: fields.title,
        description: fields.description,
        status: if fields.start { TaskStatus::InProgress } else { fields.status },
        priority: fields.priority,
        assignee: given("assignee", &fields.assignee)?,
        parent,
        dependencies: Vec::new(),
    };
    match state.service.tasks.add(&new).await {
        Ok(view) => {
            let task = view.task;
            tracing::info!(
                task_id = %task.id, project_id = %task.project, status = %task.status, "task added"
            );
        }
        // The form was sent before.
        Err(ServiceError::Refused(Refusal::AlreadyExists(_))) if is_made(&state, &new).await? => {}
        Err(error) => return Err(error.into()),
    }
    Ok(StatusCode::NO_CONTENT)
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
