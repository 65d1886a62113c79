//! `/workspaces` and `/tasks/{task}/workspace`: the clones in which tasks are worked on, and what
//! becomes of their results.

mod merge;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::extract::{InBody, InPath, InQuery, InTask};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::workspaces::{
    ConflictBody, ContentBody, DiffQuery, ForeverRequest, KeptQuery, MergeRequest, MergedBody,
    OtherTipBody, PublishedBody, RestoreRequest, RestoreTaskRequest, ResultRequest, SnapshotBody,
    WorkspaceBody, WorkspaceQuery,
};
use domain::workspace::Published;
use domain::{LaunchId, ProjectId};
pub(crate) use merge::{hooks_of, repeat_of, style_of};
use service::{
    DiffKind, PublishedResult, ResultChoice, SnapshotEntry, SnapshotView, WorkspaceView,
};

pub(super) fn workspace_body(view: WorkspaceView) -> WorkspaceBody {
    let WorkspaceView { workspace, task, path, revert } = view;
    let (reverted_by, reverted_on) = revert.map(|it| (it.by, it.branch)).unzip();
    let conflict = workspace.conflict().map(ConflictBody::from);
    let base = workspace.base_ref;
    let base = base.map(|name| name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned());
    WorkspaceBody {
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
            found_on: content.found_on,
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
        conflict,
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

fn snapshot_body(SnapshotView { entry, agent, task }: SnapshotView) -> SnapshotBody {
    let SnapshotEntry { launch, moment, commit, at } = entry;
    let (task_id, short_id) = task.map(|task| (task.id, task.short_id)).unzip();
    SnapshotBody { launch_id: launch, moment, at, agent_id: agent, task_id, short_id, commit }
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
    Ok(Json(found.into_iter().map(workspace_body).collect()))
}

async fn show(
    State(state): State<RestState>,
    InTask(task): InTask,
    InQuery(KeptQuery { kept }): InQuery<KeptQuery>,
) -> Result<Json<WorkspaceBody>, Problem> {
    if kept {
        state.service.workspaces.until_kept(&task).await?;
    }
    Ok(Json(workspace_body(state.service.workspaces.with_revert(&task).await?)))
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
    Ok(Json(workspace_body(state.service.workspaces.of_task(&task).await?)))
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
    Ok(Json(found.into_iter().map(snapshot_body).collect()))
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
    Ok(Json(workspace_body(workspaces.of_task(&task).await?)))
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
