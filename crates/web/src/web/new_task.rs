//! The form of a new task. A form that is sent twice makes one task.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::board::NEW_STATUSES;
use super::form_ids::FormOf;
use super::layout::{Frame, rendered};
use super::shown::{Face, Faces};
use super::tasks::task_ids;
use crate::auth::Operator;
use crate::extract::{InForm, InPath, InQuery, given};
use crate::{Problem, RestState};
use domain::{AgentId, Priority, Project, ProjectId, Sent, Task, TaskId, TaskStatus};
use service::NewTask;

#[derive(Template)]
#[template(path = "parts/new_task.html")]
struct NewTaskPart {
    frame: Frame,
    project: Project,
    parent: Option<Task>,
    members: Vec<Face>,
    /// The id of the form.
    form_id: String,
    status: TaskStatus,
    /// The reader chose the status by the button that opens the form.
    is_status_asked: bool,
    is_another: bool,
    /// The agent that is chosen at first.
    assignee: Option<AgentId>,
}

impl NewTaskPart {
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
    form_id: String,
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
    /// The tasks that it waits for, with spaces between their ids.
    #[serde(default)]
    dependencies: String,
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
        form_id: FormOf::Task(&project.id).new_id(&frame, &state),
        frame,
        project,
        parent,
        members: faces.of_all(&members),
        is_another: query.another,
        assignee: query.assignee,
        is_status_asked: query.status.is_some() && !query.another,
        status: query.status.filter(|to| NEW_STATUSES.contains(to)).unwrap_or(TaskStatus::Todo),
    }))
}

async fn make(
    State(state): State<RestState>,
    operator: Operator,
    InPath(project): InPath<ProjectId>,
    InForm(fields): InForm<NewTaskFields>,
) -> Result<impl IntoResponse, Problem> {
    let form = FormOf::Task(&project).check(&fields.form_id, &operator, &state)?;
    let parent = match given("parent", &fields.parent)? {
        Some(parent) => Some(state.service.tasks.full_id(parent).await?),
        None => None,
    };
    let dependencies = task_ids("dependencies", &fields.dependencies, &state).await?;
    let status = if fields.start { TaskStatus::InProgress } else { fields.status };
    let content = [
        fields.title.as_str(),
        &fields.description,
        status.as_str(),
        fields.priority.as_str(),
        &fields.assignee,
        &fields.parent,
        &fields.dependencies,
    ];
    let thing = form.thing(TaskId::PREFIX, &content);
    let new = NewTask {
        assignee: given("assignee", &fields.assignee)?,
        description: fields.description,
        status,
        priority: fields.priority,
        parent,
        dependencies,
        ..NewTask::new(project, fields.title)
    };
    let sent = state.service.tasks.add_by_form(&new, &thing).await?;
    if let Sent::First(task) = &sent {
        tracing::info!(
            task_id = %task.id, project_id = %task.project, status = %task.status, "task added"
        );
    }
    let (Sent::First(task) | Sent::Again(task)) = sent;
    Ok((StatusCode::NO_CONTENT, [("task-id", task.short_id.to_string())]))
}
