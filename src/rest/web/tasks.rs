//! A task in the panel beside the board and on its own page, and the changes that a person makes to
//! it.

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::changes::workspace_owner;
use super::layout::{Frame, NavSection, rendered};
use super::markdown::Markdown;
use super::shown::{Face, Faces, Now, Took, When, cost_of, is_bad, leads_to};
use crate::domain::event::Event;
use crate::domain::{
    AgentId, Check, Execution, LaunchId, Outcome, Priority, ProjectId, Purpose, ShortId, Task,
    TaskId, TaskStatus, Usage,
};
use crate::rest::extract::{InForm, InQuery, InTask, given, parsed};
use crate::rest::routes::forge::is_safe_link;
use crate::rest::routes::waiting::{Standing, Standings};
use crate::rest::{Problem, RestState};
use crate::service::TaskEdit;

#[derive(Template)]
#[template(path = "parts/task.html")]
struct TaskPart {
    frame: Frame,
    /// True on the page of the task, in contrast to a panel.
    is_page: bool,
    task: ShownTask,
    members: Vec<Face>,
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    frame: Frame,
    is_page: bool,
    task: ShownTask,
    members: Vec<Face>,
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
    is_archived: bool,
    assignee: Option<Face>,
    /// The line about its work.
    now: Now,
    /// The open launch that works on it.
    launch: Option<LiveLaunch>,
    project_name: String,
    /// The cost and the number of its launches, if there are any.
    spent: Option<String>,
    /// The task whose workspace it uses; `None` if it has none.
    workspace_of: Option<TaskId>,
    /// The name and the URL of the forge item that the task was made from.
    source: Option<(String, Option<String>)>,
    parent: Option<Task>,
    dependencies: Vec<Task>,
    /// It starts when its dependencies are done.
    is_start_wanted: bool,
    /// It would start after a task that was cancelled.
    waits_for_cancelled: bool,
    dependency_ids: String,
    subtasks: Vec<Task>,
    n_parts_done: usize,
    executions: Vec<Work>,
    /// The last changes of its status by people, the newest first.
    changes: Vec<PersonChange>,
    checking_since: Option<When>,
    checks: Vec<Check>,
    leads_to: Vec<TaskStatus>,
    revision: i64,
}

impl ShownTask {
    #[allow(clippy::unused_self, reason = "called by its template")]
    fn priorities(&self) -> &'static [Priority] {
        Priority::ALL
    }

    #[allow(clippy::unused_self, reason = "called by its template")]
    fn statuses(&self) -> &'static [TaskStatus] {
        TaskStatus::ALL
    }

    fn may_become(&self, status: TaskStatus) -> bool {
        self.leads_to.contains(&status)
    }

    fn is_assigned_to(&self, agent: &Face) -> bool {
        self.assignee.as_ref().is_some_and(|assignee| assignee.id == agent.id)
    }
}

/// The number of changes by people that are shown.
const MAX_CHANGES: usize = 10;

/// The launch that works on a task now.
struct LiveLaunch {
    id: LaunchId,
    agent: AgentId,
    purpose: Purpose,
    tokens: u64,
    cost: Option<String>,
}

/// A change of the status of a task by a person.
struct PersonChange {
    author: String,
    status: TaskStatus,
    at: When,
}

impl PersonChange {
    fn of(event: Event) -> Option<Self> {
        let status = event.detail?.parse().ok()?;
        Some(Self { author: event.author?, status, at: When(event.at) })
    }
}

/// The work of one launch on a task.
struct Work {
    launch: LaunchId,
    agent: AgentId,
    face: Option<Face>,
    took: Option<Took>,
    started_at: When,
    outcome: Option<Outcome>,
    cost: Option<String>,
    summary: Option<String>,
    next_steps: Option<String>,
}

impl Work {
    fn is_bad(&self) -> bool {
        self.outcome.as_ref().is_some_and(is_bad)
    }

    fn of(execution: Execution, faces: &Faces) -> Self {
        Self {
            face: faces.of(&execution.key.agent),
            took: execution.ended_at.map(|ended| Took(ended.since(execution.started_at))),
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
struct PartQuery {
    /// True if the part is on the page of the task.
    #[serde(default)]
    page: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFields {
    /// The revision that the form showed.
    revision: i64,
    title: Option<String>,
    description: Option<String>,
    assignee: Option<String>,
    priority: Option<Priority>,
    dependencies: Option<String>,
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
        .route("/ui/do/tasks/{id}", post(change))
        .route("/ui/do/tasks/{id}/status", post(set_status))
}

async fn page(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    let (task, members) = read(&frame, &state, &id).await?;
    let project = Some(task.project.clone());
    Ok(rendered(&TaskPage { frame: Frame { project, ..frame }, is_page: true, task, members }))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InQuery(query): InQuery<PartQuery>,
) -> Result<Response, Problem> {
    let (task, members) = read(&frame, &state, &id).await?;
    Ok(rendered(&TaskPart { frame, is_page: query.page, task, members }))
}

/// Reads a task and the agents that may work on it.
async fn read(
    frame: &Frame,
    state: &RestState,
    id: &TaskId,
) -> Result<(ShownTask, Vec<Face>), Problem> {
    let view = state.service.tasks.view(id).await?;
    let (project, members) = state.service.catalog.project(&view.task.project).await?;
    let open = state.service.launches.open().await?;
    let faces = Faces::new(state.service.catalog.agents().await?, &open, Some(&project.id));
    let faces = faces.with_deleted(state.service.removals.names().await?);
    let parent = match &view.task.parent {
        Some(parent) => Some(state.service.tasks.view(parent).await?.task),
        None => None,
    };
    let item = state.service.forge_items.of_task(id).await?;
    let source =
        item.map(|item| (item.key.to_string(), Some(item.url).filter(|url| is_safe_link(url))));
    let workspace_of = workspace_owner(state, id).await?;
    let is_cancelled = |other: &Task| other.status == TaskStatus::Cancelled;
    let waits_for_cancelled = view.starts_after().any(is_cancelled);
    let task = view.task;
    let standings = Standings::read(state, std::slice::from_ref(&task)).await?;
    let launch = match standings.of(&task) {
        Standing::Live(launch) => Some(LiveLaunch {
            id: launch.id.clone(),
            agent: launch.key.agent.clone(),
            purpose: launch.key.purpose,
            tokens: launch.activity.usage.tokens(),
            cost: cost_of(launch.activity.usage),
        }),
        Standing::Waits(_) | Standing::Rests => None,
    };
    let changes = state.service.tasks.changes_by_people(id, MAX_CHANGES).await?;
    let usage = view.executions.iter().fold(Usage::default(), |sum, work| sum.plus(work.usage));
    let task = ShownTask {
        workspace_of,
        source,
        parent,
        now: Now::of(frame.w, &standings, &task),
        launch,
        project_name: project.name,
        spent: cost_of(usage),
        assignee: task.assignee.as_ref().and_then(|agent| faces.of(agent)),
        dependency_ids: task.dependencies.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" "),
        dependencies: view.dependencies,
        is_start_wanted: task.start_wanted_since.is_some(),
        waits_for_cancelled,
        n_parts_done: view.subtasks.iter().filter(|task| !task.status.is_open()).count(),
        subtasks: view.subtasks,
        executions: view.executions.into_iter().map(|work| Work::of(work, &faces)).collect(),
        changes: changes.into_iter().filter_map(PersonChange::of).collect(),
        checking_since: task.checking_since.map(When),
        checks: view.checks,
        leads_to: leads_to(task.status),
        id: task.id,
        short_id: task.short_id,
        project: task.project,
        title: task.title,
        description: task.description,
        status: task.status,
        status_since: When(task.status_since),
        priority: task.priority,
        is_archived: task.archived_at.is_some(),
        revision: task.revision,
    };
    Ok((task, faces.of_all(&members)))
}

async fn change(
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(fields): InForm<TaskFields>,
) -> Result<Response, Problem> {
    let dependencies = match &fields.dependencies {
        Some(ids) => {
            let ids = ids.split([' ', ',']).filter(|id| !id.is_empty());
            let ids: Vec<TaskId> =
                ids.map(|id| parsed("dependencies", id)).collect::<Result<_, _>>()?;
            Some(state.service.tasks.full_ids(ids).await?)
        }
        None => None,
    };
    let assignee = fields.assignee.as_deref().map(|agent| given("assignee", agent)).transpose()?;
    let edit = TaskEdit {
        title: fields.title,
        description: fields.description,
        priority: fields.priority,
        assignee,
        dependencies,
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
