//! A task in the panel beside the board and on its own page, and the changes that a person makes to
//! it.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use super::activity::{Activity, activity_of, link_of, name_of};
use super::changes::workspace_of;
use super::choices::Property;
use super::form_ids::FormOf;
use super::layout::{Frame, NavSection, page_and_part};
use super::markdown::Markdown;
use super::shown::{Count, Face, Faces, Now, Short, ShownDuration, Since, When, cost_of, leads_to};
use super::words::Words;
use crate::auth::Operator;
use crate::extract::{InForm, InQuery, InTask, given, parsed};
use crate::{Problem, RestState};
use api::forge::is_safe_link;
use domain::check::CheckResult;
use domain::conversation::FreshReason;
use domain::{
    AgentId, Check, CommentId, Conversation, Execution, ForgeItem, LaunchId, Priority, ProjectId,
    ProjectKey, Purpose, Refusal, ShortId, Task, TaskId, TaskStatus, Usage, Workspace,
};
use service::{ServiceError, Standings, TaskEdit};

// `is_page` is true on the page of the task, in contrast to a panel.
page_and_part! {
    TaskPage "task.html", TaskPart "parts/task.html" {
        is_page: bool,
        tab: Tab,
        task: ShownTask,
        keys: BTreeSet<ProjectKey>,
    }
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
    /// It has a result that was neither merged nor discarded.
    is_unmerged: bool,
}

impl TaskWorkspace {
    fn of(workspace: Workspace) -> Self {
        let is_settled = workspace.merged_commit.is_some() || workspace.discarded_at.is_some();
        let content = workspace.content.unwrap_or_default();
        Self {
            is_unmerged: !is_settled
                && (content.n_commits > 0 || content.n_uncommitted > 0 || content.is_undecided),
            owner: workspace.task,
            branch: workspace.branch,
            n_additions: content.n_additions,
            n_deletions: content.n_deletions,
        }
    }
}

/// The newest conversation of an agent's CLI about a task.
struct TaskConversation {
    /// The sentence about the next launch.
    text: String,
    /// The next launch may continue it.
    may_go_on: bool,
}

impl TaskConversation {
    /// Returns the newest one of a task; `None` if it was never begun, and for a task that has no
    /// next launch.
    fn of(w: &Words, task: &Task, newest: Option<&Conversation>) -> Option<Self> {
        match newest.filter(|_| task.status.is_open())?.fresh_because() {
            None => Some(Self { text: w.goes_on.to_owned(), may_go_on: true }),
            Some(FreshReason::None) => None,
            Some(why) => Some(Self { text: w.of_fresh_start(why), may_go_on: false }),
        }
    }
}

/// A task in a list, with its assignee.
pub(super) struct TaskRow {
    pub(super) task: Task,
    pub(super) agent: Option<Face>,
}

impl TaskRow {
    pub(super) fn all(tasks: Vec<Task>, faces: &Faces) -> Vec<Self> {
        let of = |task: Task| {
            let agent = task.assignee.as_ref().and_then(|agent| faces.of(agent));
            Self { task, agent }
        };
        tasks.into_iter().map(of).collect()
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
    /// The conversation of its agent's CLI.
    conversation: Option<TaskConversation>,
    /// The newest launch that worked on it.
    latest_launch: Option<LaunchId>,
    /// The name and the URL of the forge item that the task was made from.
    source: Option<(String, Option<String>)>,
    /// The number and the URL of the pull or merge request with its result.
    request: Option<(u64, String)>,
    parent: Option<Task>,
    dependencies: Vec<TaskRow>,
    /// The tasks that wait for it.
    needed_by: Vec<TaskRow>,
    /// The name of the person who saved it last; `None` if an agent or the daemon did.
    saved_by: Option<String>,
    /// The name of the person who set it to done by hand.
    done_by: Option<String>,
    /// It starts when its dependencies are done.
    is_start_wanted: bool,
    /// It would start after a task that was cancelled.
    waits_for_cancelled: bool,
    subtasks: Vec<TaskRow>,
    n_parts_done: usize,
    /// The newest comes first.
    activity: Vec<Activity>,
    /// The id of the form of a comment.
    comment_form_id: String,
    checking_since: Option<Since>,
    checks: Vec<Check>,
    leads_to: Vec<TaskStatus>,
    revision: i64,
}

impl ShownTask {
    /// Returns the tabs that have a content.
    fn tabs(&self) -> Vec<Tab> {
        let has = |tab: &Tab| match tab {
            Tab::Overview => true,
            Tab::Changes => self.workspace.is_some() || !self.checks.is_empty(),
            Tab::Output => self.latest_launch.is_some(),
        };
        [Tab::Overview, Tab::Changes, Tab::Output].into_iter().filter(has).collect()
    }

    /// Returns the result of the newest round of checks: the worst of its checks.
    fn last_check(&self) -> Option<CheckResult> {
        let round = self.checks.last()?.round;
        let results = || self.checks.iter().filter(|check| check.round == round);
        let has = |result| results().any(|check| check.result == result);
        let worst = [CheckResult::Failed, CheckResult::NotRun, CheckResult::Running];
        Some(worst.into_iter().find(|result| has(*result)).unwrap_or(CheckResult::Passed))
    }

    /// Returns the question before the agent of a launch is stopped.
    fn stop_question(&self, launch: &LiveLaunch, w: &Words) -> String {
        let face = self.assignee.as_ref().filter(|agent| agent.id == launch.agent);
        w.of_stop_question(face.map_or(launch.agent.as_str(), |agent| agent.name.as_str()))
    }

    fn may_become(&self, status: TaskStatus) -> bool {
        self.leads_to.contains(&status)
    }

    /// Returns whether the task is done and its result waits for a person.
    fn has_result_to_merge(&self) -> bool {
        let is_unmerged = |workspace: &TaskWorkspace| workspace.is_unmerged;
        self.status == TaskStatus::Done && self.workspace.as_ref().is_some_and(is_unmerged)
    }

    /// Returns whether `status` is the blocked one and a person may give a reason for it, now or
    /// with the move to it.
    fn may_get_reason(&self, status: TaskStatus) -> bool {
        status == TaskStatus::Blocked && (self.status == status || self.may_become(status))
    }

    /// Returns the value of a property in words.
    fn value_of(&self, property: Property, w: &'static Words) -> String {
        match property {
            Property::Assignee => match &self.assignee {
                Some(agent) => agent.name.clone(),
                None => w.nobody.to_owned(),
            },
            Property::Parent => match &self.parent {
                Some(parent) => parent.title.clone(),
                None => w.nothing().to_owned(),
            },
            Property::Dependencies if self.dependencies.is_empty() => w.nothing().to_owned(),
            Property::Dependencies => {
                let titles = self.dependencies.iter().map(|other| other.task.title.as_str());
                titles.collect::<Vec<_>>().join(", ")
            }
            Property::Priority => w.of_priority(self.priority).to_owned(),
        }
    }
}

/// The launch that works on a task now.
pub(super) struct LiveLaunch {
    pub(super) id: LaunchId,
    pub(super) since: When,
    pub(super) agent: AgentId,
    purpose: Purpose,
    tokens: Option<Short>,
    cost: Option<String>,
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
    parent: Option<String>,
    dependencies: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusFields {
    status: TaskStatus,
    #[serde(default)]
    reason: String,
    /// The reader agreed to cancel the open subtasks of a task that becomes done.
    #[serde(default)]
    cancel_subtasks: bool,
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
        .route("/ui/do/tasks/{id}/fresh", post(begin_afresh))
}

async fn page(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InQuery(PageQuery { tab }): InQuery<PageQuery>,
) -> Result<Response, Problem> {
    let keys = state.service.catalog.project_keys().await?;
    let task = read(&frame, &state, &id).await?;
    let project = Some(task.project.clone());
    let frame = Frame { project, ..frame };
    Ok(TaskPage { frame, is_page: true, tab, task, keys }.shown())
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InQuery(query): InQuery<PartQuery>,
) -> Result<Response, Problem> {
    let keys = state.service.catalog.project_keys().await?;
    let task = read(&frame, &state, &id).await?;
    Ok(TaskPage { frame, is_page: query.page, tab: query.tab, task, keys }.shown())
}

async fn read(frame: &Frame, state: &RestState, id: &TaskId) -> Result<ShownTask, Problem> {
    let view = state.service.tasks.view(id).await?;
    let (project, _) = state.service.catalog.project(&view.task.project).await?;
    let faces = Faces::read(state, &project.id).await?;
    let faces = faces.with_deleted(state.service.removals.names().await?);
    let parent = match &view.task.parent {
        Some(parent) => Some(state.service.tasks.view(parent).await?.task),
        None => None,
    };
    let item = state.service.forge_items.of_task(id).await?;
    let source = item.as_ref().map(link_of);
    let request = item.as_ref().and_then(request_of);
    let workspace = workspace_of(state, id).await?.map(TaskWorkspace::of);
    let is_cancelled = |other: &Task| other.status == TaskStatus::Cancelled;
    let waits_for_cancelled = view.starts_after().any(is_cancelled);
    let standings = Standings::read(&state.service, std::slice::from_ref(&view.task)).await?;
    let now = Now::of(frame.w, &standings, &view.task);
    let launch = standings.live(&view.task).map(|launch| LiveLaunch {
        id: launch.id.clone(),
        since: When(launch.started_at.unwrap_or(launch.claimed_at)),
        agent: launch.key.agent.clone(),
        purpose: launch.key.purpose,
        tokens: Some(Short(launch.activity.usage.tokens())).filter(|tokens| tokens.0 > 0),
        cost: cost_of(&launch.activity.usage),
    });
    let activity =
        activity_of(frame.w, state, &view, item.as_ref(), launch.as_ref(), &faces).await?;
    let latest = launch.as_ref().map(|launch| &launch.id);
    let latest = latest.or_else(|| view.executions.first().map(|work| &work.launch)).cloned();
    let spent = spent_on(frame.w, &view.executions);
    let (needed_by, saved_by) = state.service.tasks.dependents_and_last_author(&view.task).await?;
    let saved_by = name_of(saved_by).await;
    let done_by = state.service.tasks.done_by(&view.task).await?;
    let conversation = TaskConversation::of(frame.w, &view.task, view.conversations.first());
    let task = view.task;
    Ok(ShownTask {
        workspace,
        conversation,
        latest_launch: latest,
        source,
        request,
        parent,
        now,
        launch,
        project_name: project.name,
        spent,
        assignee: task.assignee.as_ref().and_then(|agent| faces.of(agent)),
        dependencies: TaskRow::all(view.dependencies, &faces),
        needed_by: TaskRow::all(needed_by, &faces),
        saved_by,
        done_by,
        is_start_wanted: task.start_wanted_since.is_some(),
        waits_for_cancelled,
        n_parts_done: view.subtasks.iter().filter(|task| !task.status.is_open()).count(),
        subtasks: TaskRow::all(view.subtasks, &faces),
        activity,
        comment_form_id: FormOf::Comment(&task.id).new_id(frame, state),
        checking_since: task.checking_since.map(Since),
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
    })
}

/// Returns the number and the address of the pull or merge request with the result of an item.
pub(super) fn request_of(item: &ForgeItem) -> Option<(u64, String)> {
    let publication = item.publication.as_ref()?;
    let request = publication.request.as_ref().or(publication.foreign_request.as_ref())?;
    is_safe_link(&request.url).then(|| (request.number, request.url.clone()))
}

/// Returns the cost, the number and the time of the launches of a task; `None` without one.
fn spent_on(w: &Words, executions: &[Execution]) -> Option<String> {
    let usage = executions.iter().fold(Usage::default(), |sum, work| sum.plus(work.usage));
    let times = executions.iter().filter_map(|work| Some(work.ended_at?.since(work.started_at)));
    let time: Duration = times.sum();
    let n_launches = (!executions.is_empty()).then_some(executions.len())?;
    let took = (time > Duration::ZERO).then(|| ShownDuration(time).to_string());
    let parts = cost_of(&usage).into_iter().chain([w.of_launches(n_launches)]).chain(took);
    Some(parts.collect::<Vec<_>>().join(" · "))
}

/// Returns the tasks of a field, whose ids have spaces or commas between them.
///
/// # Errors
/// A problem at `field` for what is no id, and for a task that does not exist.
pub(super) async fn task_ids(
    field: &str,
    text: &str,
    state: &RestState,
) -> Result<Vec<TaskId>, Problem> {
    let ids = text.split([' ', ',']).filter(|id| !id.is_empty());
    let ids: Vec<TaskId> = ids.map(|id| parsed(field, id)).collect::<Result<_, _>>()?;
    let ids = state.service.tasks.full_ids(ids).await;
    ids.map_err(|error| Problem::from(error).at(field))
}

async fn change(
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(fields): InForm<TaskFields>,
) -> Result<Response, Problem> {
    let dependencies = match &fields.dependencies {
        Some(ids) => Some(task_ids("dependencies", ids, &state).await?),
        None => None,
    };
    let assignee = fields.assignee.as_deref().map(|agent| given("assignee", agent)).transpose()?;
    let parent = fields.parent.as_deref().map(|task| given("parent", task)).transpose()?;
    let edit = TaskEdit {
        title: fields.title,
        description: fields.description,
        priority: fields.priority,
        assignee,
        parent,
        dependencies,
        seen: Some(fields.revision),
        ..TaskEdit::default()
    };
    let task = state.service.tasks.set(&id, &edit).await?.task;
    tracing::info!(task_id = %id, project_id = %task.project, status = %task.status, "task changed");
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn begin_afresh(
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<StatusCode, Problem> {
    state.service.tasks.begin_afresh(&id).await?;
    tracing::info!(task_id = %id, "the next launch begins its conversation afresh");
    Ok(StatusCode::NO_CONTENT)
}

async fn set_status(
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(fields): InForm<StatusFields>,
) -> Result<Response, Problem> {
    let reason = Some(fields.reason).filter(|reason| !reason.trim().is_empty());
    let cancels_subtasks = fields.cancel_subtasks;
    let status = Some(fields.status);
    let edit = TaskEdit { status, reason, cancels_subtasks, ..TaskEdit::default() };
    let task = state.service.tasks.set(&id, &edit).await?.task;
    tracing::info!(task_id = %id, project_id = %task.project, status = %task.status, "task changed");
    // A task that waits for others is not in progress yet.
    Ok((StatusCode::NO_CONTENT, [("task-status", task.status.as_str())]).into_response())
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
        Err(ServiceError::Refused(Refusal::AlreadyExists { .. })) => {
            return Err(thing.refused("a comment").into());
        }
        comment => comment?,
    };
    tracing::info!(task_id = %id, comment_id = %comment.id, "comment added");
    Ok(StatusCode::NO_CONTENT)
}
