//! `/workspaces` and `/tasks/{task}/workspace`: the clones in which tasks are worked on, and what
//! becomes of their results.

mod merge;

use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};

use crate::extract::{InBody, InPath, InQuery, InTask};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use domain::workspace::{Content, Moment, OtherTip, Published, WorkspaceState};
use domain::{
    AgentId, CoordinatorId, LaunchId, ProjectId, ShortId, TaskId, TaskStatus, Timestamp,
    WorkspaceId,
};
pub use merge::{MergeRequest, MergedBody};
pub(crate) use merge::{hooks_of, repeat_of, style_of};
use service::{
    DiffKind, PublishedResult, ResultChoice, SnapshotEntry, SnapshotView, WorkspaceView,
};

/// A workspace as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceBody {
    pub id: WorkspaceId,
    pub project_id: ProjectId,
    /// The task that it belongs to. Its parts that the same agent works on use it, too.
    pub task_id: TaskId,
    pub short_id: ShortId,
    pub title: String,
    pub task_status: TaskStatus,
    pub state: WorkspaceState,
    /// The reason why it is not ready, or why it needs a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The branch of the result.
    pub branch: String,
    /// The branch that the work began at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The folder of the agent, while its files are on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator_id: Option<CoordinatorId>,
    /// The launch that uses it, or used it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_id: Option<LaunchId>,
    /// The content, as it was found after the last launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded_at: Option<Timestamp>,
    /// The time when the kept state was given up, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forever_at: Option<Timestamp>,
    /// The commit by which the result came into the project's repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_commit: Option<String>,
    /// The commit that reverted it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_by: Option<String>,
    /// The branch that has both commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_on: Option<String>,
    /// The branch of the project's repository that has the result, or had an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_branch: Option<String>,
    /// The commit that this branch got last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_commit: Option<String>,
    pub created_at: Timestamp,
}

/// The content of a workspace.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_commit: Option<String>,
    /// Commits since the base.
    pub n_commits: u32,
    /// Files with changes that are in no commit.
    pub n_uncommitted: u32,
    /// Files that the commits change.
    pub n_files: u32,
    pub n_additions: u32,
    pub n_deletions: u32,
    pub disk_bytes: u64,
    /// The commit of the coordinator's repository that reaches everything.
    pub kept_commit: String,
    /// Whether all of it is kept, so that its files may be removed.
    pub is_complete: bool,
    /// The entries that could not be kept, each with its path and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The branches and commits with changes that the result lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherTipBody>,
    /// Whether a person is to choose the result among `others`.
    #[serde(default)]
    pub is_undecided: bool,
}

impl ContentBody {
    /// Returns whether the agent left only files in no commit.
    pub fn is_only_files(&self) -> bool {
        let Self { n_commits, n_uncommitted, is_undecided, .. } = *self;
        Content { n_commits, n_uncommitted, is_undecided, ..Content::default() }.is_only_files()
    }
}

/// A branch or a commit with changes that the result of a task lacks.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherTipBody {
    /// It is missing for a commit that no branch names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    pub commit: String,
    /// The number of its commits whose changes the result lacks.
    pub n_commits: u32,
    /// Whether a person does not need it.
    #[serde(default)]
    pub is_dropped: bool,
}

/// The decision about a branch or a commit that the agent left beside the result. Exactly one of
/// the three names it: the branch, or at least 7 digits of the commit.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultRequest {
    /// It is the result from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<String>,
    /// It is not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<String>,
    /// It is needed after all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub want: Option<String>,
}

impl OtherTipBody {
    fn all(content: &Content) -> Vec<Self> {
        let body = |other: &OtherTip| {
            let is_dropped = content.is_dropped(other);
            let OtherTip { branch, commit, n_commits } = other.clone();
            Self { branch, commit, n_commits, is_dropped }
        };
        content.others.iter().map(body).collect()
    }
}

impl From<WorkspaceView> for WorkspaceBody {
    fn from(WorkspaceView { workspace, task, path, revert }: WorkspaceView) -> Self {
        let (reverted_by, reverted_on) = revert.map(|it| (it.by, it.branch)).unzip();
        let base = workspace.base_ref;
        let base = base.map(|name| name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned());
        Self {
            id: workspace.id,
            project_id: workspace.project,
            task_id: workspace.task,
            short_id: task.short_id,
            title: task.title,
            task_status: task.status,
            state: workspace.state,
            reason: workspace.reason,
            branch: workspace.branch,
            base,
            base_commit: workspace.base_commit,
            path,
            coordinator_id: workspace.coordinator,
            launch_id: workspace.launch,
            content: workspace.content.map(|content| ContentBody {
                others: OtherTipBody::all(&content),
                head_commit: content.head_commit,
                n_commits: content.n_commits,
                n_uncommitted: content.n_uncommitted,
                n_files: content.n_files,
                n_additions: content.n_additions,
                n_deletions: content.n_deletions,
                disk_bytes: content.disk_bytes,
                kept_commit: content.kept_commit,
                is_complete: content.proof.is_some(),
                left_out: content.left_out,
                is_undecided: content.is_undecided,
            }),
            discarded_at: workspace.discarded_at,
            forever_at: workspace.forever_at,
            merged_commit: workspace.merged_commit,
            reverted_by,
            reverted_on,
            published_branch: workspace.published_branch,
            published_commit: workspace.published_commit,
            created_at: workspace.created_at,
        }
    }
}

/// A snapshot of the directory of a project.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotBody {
    pub launch_id: LaunchId,
    pub moment: Moment,
    pub at: Timestamp,
    /// The agent of the launch, while the launch is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The task that the launch worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_id: Option<ShortId>,
    /// The commit of the coordinator's repository that reaches everything.
    pub commit: String,
}

impl From<SnapshotView> for SnapshotBody {
    fn from(SnapshotView { entry, agent, task }: SnapshotView) -> Self {
        let SnapshotEntry { launch, moment, commit, at } = entry;
        let (task_id, short_id) = task.map(|task| (task.id, task.short_id)).unzip();
        Self { launch_id: launch, moment, at, agent_id: agent, task_id, short_id, commit }
    }
}

/// The place for the files of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreRequest {
    /// The snapshot before or after the launch.
    pub moment: Moment,
    /// A folder on the host of the daemon, as an absolute path. It must be new or empty.
    pub to: PathBuf,
}

/// The place for the files of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreTaskRequest {
    /// A folder on the host of the daemon, as an absolute path. It must be new or empty. Without
    /// it, the task gets a workspace again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<PathBuf>,
}

/// The confirmation that not even the kept state is wanted.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForeverRequest {
    /// The id of the task once more, or its short id.
    pub confirm: String,
}

/// Which workspaces.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceQuery {
    /// The project; without it, the workspaces of all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// Also those whose files are gone.
    #[serde(default)]
    pub all: bool,
}

/// Whether the answer waits.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeptQuery {
    /// Waits until the work of a finished task is kept, a minute at most.
    #[serde(default)]
    pub kept: bool,
}

/// Which changes a diff shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffQuery {
    /// One line per file instead of the changes.
    #[serde(default)]
    pub stat: bool,
    /// The changes that are in no commit.
    #[serde(default)]
    pub uncommitted: bool,
}

/// A branch with a result.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedBody {
    /// The branch of the project's repository.
    pub branch: String,
    pub commit: String,
    /// Whether another branch has the name of the task's branch, so that this one has another name.
    pub is_renamed: bool,
    /// The name of the task's branch.
    pub wanted: String,
}

pub(super) fn routes() -> Api {
    let of_task = "/tasks/{task}/workspace";
    Api::new()
        .get(
            "/workspaces",
            list,
            about("The workspaces that have files, or all, by project")
                .query::<WorkspaceQuery>()
                .gives::<Vec<WorkspaceBody>>(),
        )
        .get(
            of_task,
            show,
            about("The workspace of a task").query::<KeptQuery>().gives::<WorkspaceBody>(),
        )
        .get(
            "/tasks/{task}/workspace/diff",
            diff,
            about("What a task changed, also while its agent works; cut after 5 MiB")
                .query::<DiffQuery>()
                .gives_text("text/plain; charset=utf-8"),
        )
        .post(
            "/tasks/{task}/workspace/merge",
            merge::merge,
            about("Merges the result of a task into a branch of the project's repository")
                .takes::<MergeRequest>()
                .gives::<MergedBody>(),
        )
        .post(
            "/tasks/{task}/workspace/publish",
            publish,
            about("Gives the project's repository a branch with the result of a task")
                .gives::<PublishedBody>(),
        )
        .post(
            "/tasks/{task}/workspace/result",
            decide_result,
            about("Decides about a branch or a commit beside the result of a task")
                .takes::<ResultRequest>()
                .gives::<WorkspaceBody>(),
        )
        .post(
            "/tasks/{task}/workspace/discard",
            discard,
            about("Hides the result of a task; its files go, and the kept commit stays"),
        )
        .post(
            "/tasks/{task}/workspace/discard-forever",
            discard_forever,
            about(
                "Gives up the result of a task with its kept state, which is removed after 14 days",
            )
            .takes::<ForeverRequest>(),
        )
        .post(
            "/tasks/{task}/workspace/keep",
            keep,
            about("Takes back that the result of a task was discarded"),
        )
        .get(
            "/projects/{project}/snapshots",
            snapshots,
            about("The snapshots of the directory of a project without clones, the newest first")
                .gives::<Vec<SnapshotBody>>(),
        )
        .post(
            "/projects/{project}/snapshots/{launch}/restore",
            restore,
            about("Writes the files of a snapshot into a new folder on the host of the daemon")
                .takes::<RestoreRequest>(),
        )
        .post(
            "/tasks/{task}/workspace/restore",
            restore_task,
            about(
                "Makes the workspace of a task again from its kept state, or writes that elsewhere",
            )
            .takes::<RestoreTaskRequest>()
            .gives::<WorkspaceBody>(),
        )
        .post(
            "/tasks/{task}/workspace/retry",
            retry,
            about("Lets a broken workspace be tried again"),
        )
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<WorkspaceQuery>,
) -> Result<Json<Vec<WorkspaceBody>>, Problem> {
    let found = state.service.workspaces.list(query.project.as_ref(), query.all).await?;
    Ok(Json(found.into_iter().map(WorkspaceBody::from).collect()))
}

async fn show(
    State(state): State<RestState>,
    InTask(task): InTask,
    InQuery(KeptQuery { kept }): InQuery<KeptQuery>,
) -> Result<Json<WorkspaceBody>, Problem> {
    if kept {
        state.service.workspaces.until_kept(&task).await?;
    }
    Ok(Json(state.service.workspaces.with_revert(&task).await?.into()))
}

async fn diff(
    State(state): State<RestState>,
    InTask(task): InTask,
    InQuery(query): InQuery<DiffQuery>,
) -> Result<Response, Problem> {
    let kind = match query {
        DiffQuery { uncommitted: true, .. } => DiffKind::Uncommitted,
        DiffQuery { stat: true, .. } => DiffKind::Stat,
        DiffQuery { .. } => DiffKind::Committed,
    };
    state.service.workspaces.until_kept(&task).await?;
    let text = state.service.workspaces.diff(&task, kind).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

async fn publish(
    State(state): State<RestState>,
    InTask(task): InTask,
) -> Result<Json<PublishedBody>, Problem> {
    let PublishedResult { published, is_renamed, wanted } =
        state.service.workspaces.publish(&task).await?;
    let Published { branch, commit } = published;
    tracing::info!(task_id = %task, branch, commit, "result published");
    Ok(Json(PublishedBody { branch, commit, is_renamed, wanted }))
}

async fn decide_result(
    State(state): State<RestState>,
    InTask(task): InTask,
    InBody(request): InBody<ResultRequest>,
) -> Result<Json<WorkspaceBody>, Problem> {
    let choice = choice_of(request)?;
    state.service.workspaces.decide_result(&task, &choice).await?;
    tracing::info!(task_id = %task, ?choice, "decided about a result");
    Ok(Json(state.service.workspaces.of_task(&task).await?.into()))
}

/// Returns the decision that exactly one of the fields tells.
///
/// # Errors
/// None or several are set.
pub(crate) fn choice_of(request: ResultRequest) -> Result<ResultChoice, Problem> {
    let name = |name: String| name.trim().to_owned();
    match request {
        ResultRequest { take: Some(take), drop: None, want: None } => {
            Ok(ResultChoice::Take(name(take)))
        }
        ResultRequest { take: None, drop: Some(drop), want: None } => {
            Ok(ResultChoice::Drop(name(drop)))
        }
        ResultRequest { take: None, drop: None, want: Some(want) } => {
            Ok(ResultChoice::Want(name(want)))
        }
        ResultRequest { .. } => Err(Problem::new(
            StatusCode::CONFLICT,
            "one_decision",
            "a decision names exactly one branch or commit: `take`, `drop` or `want`".to_owned(),
        )),
    }
}

async fn discard(
    State(state): State<RestState>,
    InTask(task): InTask,
) -> Result<StatusCode, Problem> {
    state.service.workspaces.discard(&task).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn keep(State(state): State<RestState>, InTask(task): InTask) -> Result<StatusCode, Problem> {
    state.service.workspaces.want_result(&task).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn retry(
    State(state): State<RestState>,
    InTask(task): InTask,
) -> Result<StatusCode, Problem> {
    state.service.workspaces.retry(&task).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn snapshots(
    State(state): State<RestState>,
    InPath(project): InPath<ProjectId>,
) -> Result<Json<Vec<SnapshotBody>>, Problem> {
    let found = state.service.workspaces.snapshots(&project).await?;
    Ok(Json(found.into_iter().map(SnapshotBody::from).collect()))
}

async fn restore(
    State(state): State<RestState>,
    InPath((project, launch)): InPath<(ProjectId, LaunchId)>,
    InBody(RestoreRequest { moment, to }): InBody<RestoreRequest>,
) -> Result<StatusCode, Problem> {
    state.service.workspaces.restore_snapshot(&project, &launch, moment, &to).await?;
    tracing::info!(
        project_id = %project, launch_id = %launch, %moment, to = %to.display(), "snapshot restored"
    );
    Ok(StatusCode::NO_CONTENT)
}

async fn restore_task(
    State(state): State<RestState>,
    InTask(task): InTask,
    InBody(RestoreTaskRequest { to }): InBody<RestoreTaskRequest>,
) -> Result<Json<WorkspaceBody>, Problem> {
    let workspaces = &state.service.workspaces;
    if let Some(to) = to {
        workspaces.restore_to(&task, &to).await?;
        tracing::info!(task_id = %task, to = %to.display(), "the kept state was written");
    } else {
        workspaces.restore(&task).await?;
    }
    Ok(Json(workspaces.of_task(&task).await?.into()))
}

async fn discard_forever(
    State(state): State<RestState>,
    InTask(task): InTask,
    InBody(ForeverRequest { confirm }): InBody<ForeverRequest>,
) -> Result<StatusCode, Problem> {
    state.service.workspaces.discard_forever(&task, &confirm).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_names_exactly_one_branch() {
        let decided = |take: &str, drop: &str, want: &str| {
            let given = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
            let request = ResultRequest { take: given(take), drop: given(drop), want: given(want) };
            choice_of(request).ok()
        };
        let x = || "x".to_owned();
        assert_eq!(decided(" x", "", ""), Some(ResultChoice::Take(x())));
        assert_eq!(decided("", "x", ""), Some(ResultChoice::Drop(x())));
        assert_eq!(decided("", "", "x"), Some(ResultChoice::Want(x())));
        for [take, drop, want] in [["", "", ""], ["x", "y", ""], ["x", "", "y"], ["", "x", "y"]] {
            assert_eq!(decided(take, drop, want), None);
        }
    }
}
