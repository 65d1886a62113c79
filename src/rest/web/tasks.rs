//! A task in the panel beside the board, and the changes that a person makes to it.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::changes::workspace_owner;
use super::layout::{Frame, rendered};
use super::shown::{Face, Faces, When, cost_of, leads_to};
use crate::domain::{
    AgentId, Check, Execution, LaunchId, Outcome, Priority, ProjectId, ShortId, Task, TaskId,
    TaskStatus,
};
use crate::rest::extract::{InForm, InPath, InQuery, InTask, given, parsed};
use crate::rest::routes::forge::is_safe_link;
use crate::rest::{Problem, RestState};
use crate::service::{NewTask, TaskEdit};

#[derive(Template)]
#[template(path = "parts/task.html")]
struct TaskPart {
    frame: Frame,
    task: ShownTask,
    members: Vec<Face>,
}

#[derive(Template)]
#[template(path = "parts/new_task.html")]
struct NewTaskPart {
    frame: Frame,
    project: ProjectId,
    parent: Option<(TaskId, String)>,
    members: Vec<Face>,
}

impl NewTaskPart {
    #[allow(clippy::unused_self, reason = "called by its template")]
    fn priorities(&self) -> &'static [Priority] {
        Priority::ALL
    }

    #[allow(clippy::unused_self, reason = "called by its template")]
    fn statuses(&self) -> [TaskStatus; 3] {
        [TaskStatus::Backlog, TaskStatus::Todo, TaskStatus::InProgress]
    }
}

struct ShownTask {
    id: TaskId,
    short_id: ShortId,
    project: ProjectId,
    title: String,
    description: String,
    status: TaskStatus,
    status_since: When,
    priority: Priority,
    assignee: Option<Face>,
    blocked_reason: Option<String>,
    /// The task whose workspace it uses; `None` if it has none.
    workspace_of: Option<TaskId>,
    /// The name and the URL of the forge item that the task was made from.
    source: Option<(String, Option<String>)>,
    parent: Option<(TaskId, String)>,
    dependencies: Vec<Task>,
    /// It starts when its dependencies are done.
    is_start_wanted: bool,
    /// It would start after a task that was cancelled.
    waits_for_cancelled: bool,
    dependency_ids: String,
    subtasks: Vec<Task>,
    executions: Vec<Work>,
    checking_since: Option<When>,
    checks: Vec<Check>,
    leads_to: Vec<TaskStatus>,
    may_be_blocked: bool,
    revision: i64,
}

impl ShownTask {
    #[allow(clippy::unused_self, reason = "called by its template")]
    fn priorities(&self) -> &'static [Priority] {
        Priority::ALL
    }

    fn is_assigned_to(&self, agent: &Face) -> bool {
        self.assignee.as_ref().is_some_and(|assignee| assignee.id == agent.id)
    }
}

/// The work of one launch on a task.
struct Work {
    launch: LaunchId,
    agent: AgentId,
    started_at: When,
    outcome: Option<Outcome>,
    cost: Option<String>,
    summary: Option<String>,
    next_steps: Option<String>,
}

impl From<Execution> for Work {
    fn from(execution: Execution) -> Self {
        Self {
            launch: execution.launch,
            agent: execution.key.agent,
            started_at: When(execution.started_at),
            outcome: execution.outcome,
            cost: cost_of(execution.usage),
            summary: execution.summary.or(execution.progress),
            next_steps: execution.next_steps,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParentQuery {
    parent: Option<TaskId>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTaskFields {
    title: String,
    description: String,
    assignee: String,
    priority: Priority,
    status: TaskStatus,
    #[serde(default)]
    parent: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFields {
    /// The revision that the form showed.
    revision: i64,
    title: String,
    description: String,
    assignee: String,
    priority: Priority,
    dependencies: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusFields {
    status: TaskStatus,
    #[serde(default)]
    reason: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/tasks/{id}", get(page))
        .route("/ui/parts/tasks/{id}", get(part))
        .route("/ui/parts/projects/{project}/new-task", get(new))
        .route("/ui/do/projects/{project}/tasks", post(make))
        .route("/ui/do/tasks/{id}", post(change))
        .route("/ui/do/tasks/{id}/status", post(set_status))
}

/// Redirects to the board of the task, with the task in the panel.
async fn page(State(state): State<RestState>, InTask(id): InTask) -> Result<Redirect, Problem> {
    let task = state.service.tasks.view(&id).await?.task;
    Ok(Redirect::to(&format!("/ui/projects/{}?task={id}", task.project)))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    let view = state.service.tasks.view(&id).await?;
    let (_, members) = state.service.catalog.project(&view.task.project).await?;
    let faces =
        Faces::new(state.service.catalog.agents().await?, &state.service.launches.open().await?);
    let parent = match &view.task.parent {
        Some(parent) => Some((parent.clone(), state.service.tasks.view(parent).await?.task.title)),
        None => None,
    };
    let item = state.service.forge_items.of_task(&id).await?;
    let source =
        item.map(|item| (item.key.to_string(), Some(item.url).filter(|url| is_safe_link(url))));
    let workspace_of = workspace_owner(&state, &id).await?;
    let is_cancelled = |other: &Task| other.status == TaskStatus::Cancelled;
    let waits_for_cancelled = view.starts_after().any(is_cancelled);
    let task = view.task;
    let leads_to = leads_to(task.status);
    let task = ShownTask {
        workspace_of,
        source,
        parent,
        assignee: task.assignee.as_ref().and_then(|agent| faces.of(agent)),
        dependency_ids: task.dependencies.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" "),
        dependencies: view.dependencies,
        is_start_wanted: task.start_wanted_since.is_some(),
        waits_for_cancelled,
        subtasks: view.subtasks,
        executions: view.executions.into_iter().map(Work::from).collect(),
        checking_since: task.checking_since.map(When),
        checks: view.checks,
        may_be_blocked: leads_to.contains(&TaskStatus::Blocked),
        leads_to,
        id: task.id,
        short_id: task.short_id,
        project: task.project,
        title: task.title,
        description: task.description,
        status: task.status,
        status_since: When(task.status_since),
        priority: task.priority,
        blocked_reason: task.blocked_reason,
        revision: task.revision,
    };
    Ok(rendered(&TaskPart { frame, task, members: faces.of_all(&members) }))
}

async fn new(
    frame: Frame,
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InQuery(query): InQuery<ParentQuery>,
) -> Result<Response, Problem> {
    let (_, members) = state.service.catalog.project(&project).await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &[]);
    let parent = match query.parent {
        Some(parent) => {
            let parent = state.service.tasks.full_id(parent).await?;
            let title = state.service.tasks.view(&parent).await?.task.title;
            Some((parent, title))
        }
        None => None,
    };
    Ok(rendered(&NewTaskPart { frame, project, parent, members: faces.of_all(&members) }))
}

async fn make(
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
    InForm(fields): InForm<NewTaskFields>,
) -> Result<Response, Problem> {
    let parent = match given("parent", &fields.parent)? {
        Some(parent) => Some(state.service.tasks.full_id(parent).await?),
        None => None,
    };
    let new = NewTask {
        id: None,
        project,
        title: fields.title,
        description: fields.description,
        status: fields.status,
        priority: fields.priority,
        assignee: given("assignee", &fields.assignee)?,
        parent,
        dependencies: Vec::new(),
    };
    let task = state.service.tasks.add(&new).await?.task;
    tracing::info!(task_id = %task.id, project_id = %task.project, status = %task.status, "task added");
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn change(
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(fields): InForm<TaskFields>,
) -> Result<Response, Problem> {
    let dependencies = fields.dependencies.split([' ', ',']).filter(|id| !id.is_empty());
    let dependencies: Vec<TaskId> =
        dependencies.map(|id| parsed("dependencies", id)).collect::<Result<_, _>>()?;
    let dependencies = state.service.tasks.full_ids(dependencies).await?;
    let edit = TaskEdit {
        title: Some(fields.title),
        description: Some(fields.description),
        priority: Some(fields.priority),
        assignee: Some(given("assignee", &fields.assignee)?),
        dependencies: Some(dependencies),
        seen: Some(fields.revision),
        ..TaskEdit::default()
    };
    let task = state.service.tasks.set(&id, &edit).await?.task;
    tracing::info!(task_id = %id, project_id = %task.project, status = %task.status, "task changed");
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn set_status(
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(fields): InForm<StatusFields>,
) -> Result<Response, Problem> {
    let reason = Some(fields.reason).filter(|reason| !reason.trim().is_empty());
    let edit = TaskEdit { status: Some(fields.status), reason, ..TaskEdit::default() };
    let task = state.service.tasks.set(&id, &edit).await?.task;
    tracing::info!(task_id = %id, project_id = %task.project, status = %task.status, "task changed");
    Ok(StatusCode::NO_CONTENT.into_response())
}
