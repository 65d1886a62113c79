//! A task in the panel beside the board and on its own page, and the changes that a person makes to
//! it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::changes::workspace_of;
use super::form_ids::FormOf;
use super::layout::{Frame, NavSection, rendered};
use super::markdown::Markdown;
use super::shown::{
    Count, Face, Faces, Now, Short, Took, When, cost_of, leads_to, person, persons,
};
use super::words::Words;
use crate::domain::event::Event;
use crate::domain::{
    AgentId, Check, Comment, CommentId, Execution, LaunchId, Outcome, Priority, ProjectId,
    ProjectKey, Purpose, Refusal, ShortId, Task, TaskId, TaskStatus, Timestamp, Usage, Workspace,
};
use crate::rest::auth::Operator;
use crate::rest::extract::{InForm, InQuery, InTask, given, parsed};
use crate::rest::routes::forge::is_safe_link;
use crate::rest::routes::waiting::{Standing, Standings};
use crate::rest::{Problem, RestState};
use crate::service::{ServiceError, TaskEdit};

#[derive(Template)]
#[template(path = "parts/task.html")]
struct TaskPart {
    frame: Frame,
    /// True on the page of the task, in contrast to a panel.
    is_page: bool,
    tab: Tab,
    task: ShownTask,
    members: Vec<Face>,
    keys: BTreeSet<ProjectKey>,
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    frame: Frame,
    is_page: bool,
    tab: Tab,
    task: ShownTask,
    members: Vec<Face>,
    keys: BTreeSet<ProjectKey>,
}

/// A part of what a task shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tab {
    /// The description, the subtasks and the activity.
    #[default]
    Overview,
    /// The changes in the workspace, and their checks.
    Changes,
    /// The transcript of the latest launch.
    Output,
}

impl Tab {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Changes => "changes",
            Self::Output => "output",
        }
    }

    const fn text(self, w: &'static Words) -> &'static str {
        match self {
            Self::Overview => w.overview,
            Self::Changes => w.changes,
            Self::Output => w.output,
        }
    }
}

/// The workspace of a task, which may belong to another task.
struct TaskWorkspace {
    owner: TaskId,
    branch: String,
    n_additions: u32,
    n_deletions: u32,
}

impl TaskWorkspace {
    fn of(workspace: Workspace) -> Self {
        let content = workspace.content.unwrap_or_default();
        Self {
            owner: workspace.task,
            branch: workspace.branch,
            n_additions: content.n_additions,
            n_deletions: content.n_deletions,
        }
    }
}

struct ShownTask {
    id: TaskId,
    short_id: ShortId,
    project: ProjectId,
    title: String,
    description: String,
    status: TaskStatus,
    priority: Priority,
    is_archived: bool,
    assignee: Option<Face>,
    /// The line about its work.
    now: Now,
    /// The open launch that works on it.
    launch: Option<LiveLaunch>,
    project_name: String,
    /// The cost, the number and the time of its launches; `None` without a launch.
    spent: Option<String>,
    workspace: Option<TaskWorkspace>,
    /// The newest launch that worked on it.
    latest_launch: Option<LaunchId>,
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
    /// The launches, the comments, and the last changes of its status by people. The newest comes
    /// first.
    activity: Vec<Activity>,
    /// The id of the form of a comment.
    comment_form_id: String,
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

    /// Returns the tabs that have a content.
    fn tabs(&self) -> Vec<Tab> {
        let has = |tab: &Tab| match tab {
            Tab::Overview => true,
            Tab::Changes => self.workspace.is_some() || !self.checks.is_empty(),
            Tab::Output => self.latest_launch.is_some(),
        };
        [Tab::Overview, Tab::Changes, Tab::Output].into_iter().filter(has).collect()
    }

    fn may_become(&self, status: TaskStatus) -> bool {
        self.leads_to.contains(&status)
    }

    fn is_assigned_to(&self, agent: &Face) -> bool {
        self.assignee.as_ref().is_some_and(|assignee| assignee.id == agent.id)
    }
}

/// An event in the history of a task.
enum Activity {
    Work(Work),
    Change(PersonChange),
    Comment(ShownComment),
}

impl Activity {
    const fn at(&self) -> Timestamp {
        match self {
            Self::Work(work) => work.started_at.0,
            Self::Change(change) => change.at.0,
            Self::Comment(comment) => comment.at.0,
        }
    }
}

/// The number of changes by people that are shown.
const MAX_CHANGES: usize = 10;

/// The launch that works on a task now.
struct LiveLaunch {
    id: LaunchId,
    since: When,
    agent: AgentId,
    purpose: Purpose,
    tokens: Option<Short>,
    cost: Option<String>,
}

/// A change of the status of a task by a person.
struct PersonChange {
    author: String,
    status: TaskStatus,
    at: When,
}

impl PersonChange {
    async fn of(event: Event) -> Option<Self> {
        let status = event.detail?.parse().ok()?;
        Some(Self { author: person(event.author?).await, status, at: When(event.at) })
    }
}

/// A comment of a person.
struct ShownComment {
    /// The name of the person, if it is known.
    author: Option<String>,
    text: String,
    at: When,
}

impl ShownComment {
    async fn all(comments: Vec<Comment>) -> Vec<Self> {
        let authors = comments.iter().filter_map(|comment| comment.author.as_ref());
        let names = persons(authors).await;
        let of = |comment: Comment| Self {
            author: comment.author.map(|author| names.get(&author).cloned().unwrap_or(author)),
            text: comment.text,
            at: When(comment.created_at),
        };
        comments.into_iter().map(of).collect()
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
        self.outcome.as_ref().is_some_and(Outcome::is_bad)
    }

    /// Returns the work of a launch of which only the start is known.
    fn beginning(launch: &LiveLaunch, faces: &Faces) -> Self {
        Self {
            launch: launch.id.clone(),
            agent: launch.agent.clone(),
            face: faces.of(&launch.agent),
            took: None,
            started_at: launch.since,
            outcome: None,
            cost: None,
            summary: None,
            next_steps: None,
        }
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
    #[serde(default)]
    tab: Tab,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    #[serde(default)]
    tab: Tab,
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommentFields {
    form_id: String,
    text: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/tasks/{id}", get(page))
        .route("/ui/parts/tasks/{id}", get(part))
        .route("/ui/do/tasks/{id}", post(change))
        .route("/ui/do/tasks/{id}/status", post(set_status))
        .route("/ui/do/tasks/{id}/comments", post(comment))
}

async fn page(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InQuery(PageQuery { tab }): InQuery<PageQuery>,
) -> Result<Response, Problem> {
    let keys = state.service.catalog.project_keys().await?;
    let (task, members) = read(&frame, &state, &id).await?;
    let project = Some(task.project.clone());
    let frame = Frame { project, ..frame };
    Ok(rendered(&TaskPage { frame, is_page: true, tab, task, members, keys }))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InQuery(query): InQuery<PartQuery>,
) -> Result<Response, Problem> {
    let keys = state.service.catalog.project_keys().await?;
    let (task, members) = read(&frame, &state, &id).await?;
    Ok(rendered(&TaskPart { frame, is_page: query.page, tab: query.tab, task, members, keys }))
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
    let workspace = workspace_of(state, id).await?.map(TaskWorkspace::of);
    let is_cancelled = |other: &Task| other.status == TaskStatus::Cancelled;
    let waits_for_cancelled = view.starts_after().any(is_cancelled);
    let task = view.task;
    let standings = Standings::read(state, std::slice::from_ref(&task)).await?;
    let launch = match standings.of(&task) {
        Standing::Live(launch) => Some(LiveLaunch {
            id: launch.id.clone(),
            since: When(launch.started_at.unwrap_or(launch.claimed_at)),
            agent: launch.key.agent.clone(),
            purpose: launch.key.purpose,
            tokens: Some(Short(launch.activity.usage.tokens())).filter(|tokens| tokens.0 > 0),
            cost: cost_of(launch.activity.usage),
        }),
        Standing::Waits(_) | Standing::Rests => None,
    };
    let mut activity = Vec::new();
    for change in state.service.tasks.changes_by_people(id, MAX_CHANGES).await? {
        activity.extend(PersonChange::of(change).await.map(Activity::Change));
    }
    let comments = ShownComment::all(view.comments).await;
    activity.extend(comments.into_iter().map(Activity::Comment));
    let latest = launch.as_ref().map(|launch| &launch.id);
    let latest = latest.or_else(|| view.executions.first().map(|work| &work.launch)).cloned();
    let spent = spent_on(frame.w, &view.executions);
    let works = view.executions.into_iter().map(|work| Work::of(work, &faces));
    activity.extend(works.map(Activity::Work));
    // A launch that has not asked for its task yet has no execution.
    let is_told = |launch: &LaunchId| {
        activity.iter().any(|event| matches!(event, Activity::Work(work) if work.launch == *launch))
    };
    if let Some(launch) = launch.as_ref().filter(|launch| !is_told(&launch.id)) {
        activity.push(Activity::Work(Work::beginning(launch, &faces)));
    }
    activity.sort_by_key(|event| Reverse(event.at()));
    let task = ShownTask {
        workspace,
        latest_launch: latest,
        source,
        parent,
        now: Now::of(frame.w, &standings, &task),
        launch,
        project_name: project.name,
        spent,
        assignee: task.assignee.as_ref().and_then(|agent| faces.of(agent)),
        dependency_ids: task.dependencies.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" "),
        dependencies: view.dependencies,
        is_start_wanted: task.start_wanted_since.is_some(),
        waits_for_cancelled,
        n_parts_done: view.subtasks.iter().filter(|task| !task.status.is_open()).count(),
        subtasks: view.subtasks,
        activity,
        comment_form_id: FormOf::Comment(&task.id).new_id(frame, state),
        checking_since: task.checking_since.map(When),
        checks: view.checks,
        leads_to: leads_to(task.status),
        id: task.id,
        short_id: task.short_id,
        project: task.project,
        title: task.title,
        description: task.description,
        status: task.status,
        priority: task.priority,
        is_archived: task.archived_at.is_some(),
        revision: task.revision,
    };
    Ok((task, faces.of_all(&members)))
}

/// Returns the cost, the number and the time of the launches of a task; `None` without one.
fn spent_on(w: &Words, executions: &[Execution]) -> Option<String> {
    let usage = executions.iter().fold(Usage::default(), |sum, work| sum.plus(work.usage));
    let times = executions.iter().filter_map(|work| Some(work.ended_at?.since(work.started_at)));
    let time: Duration = times.sum();
    let n_launches = (!executions.is_empty()).then_some(executions.len())?;
    let took = (time > Duration::ZERO).then(|| Took(time).to_string());
    let parts = cost_of(usage).into_iter().chain([w.of_launches(n_launches)]).chain(took);
    Some(parts.collect::<Vec<_>>().join(" · "))
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
            let ids = state.service.tasks.full_ids(ids).await;
            Some(ids.map_err(|error| Problem::from(error).at("dependencies"))?)
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

async fn comment(
    State(state): State<RestState>,
    operator: Operator,
    InTask(id): InTask,
    InForm(fields): InForm<CommentFields>,
) -> Result<StatusCode, Problem> {
    let form = FormOf::Comment(&id).check(&fields.form_id, &operator, &state)?;
    // A comment never changes, so its text is compared, and not a digest of it.
    let thing = form.thing(CommentId::PREFIX, &[""]);
    let comment = match state.service.tasks.comment(&id, Some(&thing.id), &fields.text).await {
        Err(ServiceError::Refused(Refusal::AlreadyExists(_))) => {
            return Err(thing.refused("a comment").into());
        }
        comment => comment?,
    };
    tracing::info!(task_id = %id, comment_id = %comment.id, "comment added");
    Ok(StatusCode::NO_CONTENT)
}
