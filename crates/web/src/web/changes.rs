//! The changes of a task: the state of its workspace, what its agent changed, and what people do
//! with the result.

mod actions;
mod message;
mod others;

use std::collections::BTreeMap;
use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::diff_lines;
use super::layout::{Frame, rendered};
use super::shown::Count;
use super::tasks::request_of;
use super::unified_diff::{ChangeKind, FileDiff, RowKind, UnifiedDiff};
use super::words::Words;
use crate::extract::{InForm, InTask};
use crate::routes::workspaces::{hooks_of, repeat_of, style_of};
use crate::{Problem, RestState};
use actions::{Action, Primary, ResultFacts};
use domain::workspace::{Conflict, Content, Published, WorkKind, WorkspaceState};
use domain::{ProjectId, Refusal, ShortId, TaskId, TaskStatus, Workspace};
use message::{Choice, Message, Repeats, message_of, with_branch};
use service::{DiffKind, MergeWish, Merged, PublishedResult, ServiceError, WorkspaceView};

/// The time in which git has to answer before the part is shown without its answer.
const GIT_LIMIT: Duration = Duration::from_secs(5);
/// The number of digits of a commit that people read.
const SHORT_COMMIT: usize = 10;

#[derive(Template)]
#[template(path = "parts/changes.html")]
struct ChangesPart {
    frame: Frame,
    task: TaskId,
    short_id: ShortId,
    is_open: bool,
    /// An agent is to work on the task, so that it cannot be asked for more.
    is_in_progress: bool,
    workspace: Workspace,
    content: Content,
    shown: ShowReason,
    found: GitAnswers,
    /// True if git did not answer in time.
    is_slow: bool,
    /// The number and the URL of the pull or merge request with the result.
    request: Option<(u64, String)>,
}

/// The answers of git about the result.
#[derive(Default)]
struct GitAnswers {
    committed: Listing,
    uncommitted: Listing,
    /// The number of commits that the branch of the source got meanwhile, if it is known.
    n_behind: Option<u64>,
}

/// The reason why the part is shown.
enum ShowReason {
    /// It is read, also again and again by itself. The message that stands there stays.
    Part,
    /// It answers an action of the reader. The message of an earlier one goes away.
    Answer(Option<Message>),
}

/// A button of the menu.
struct MenuItem {
    action: Action,
    text: String,
    /// The question that a reader answers first.
    question: Option<String>,
}

/// A diff, or the reason why there is none.
#[derive(Default)]
struct Listing {
    diff: UnifiedDiff,
    problem: Option<String>,
}

/// The result of a task, for its card.
#[derive(Clone)]
pub(super) struct CardResult {
    pub(super) branch: String,
    pub(super) n_files: u32,
    pub(super) n_additions: u32,
    pub(super) n_deletions: u32,
    pub(super) n_uncommitted: u32,
    pub(super) is_merged: bool,
    /// All that its agent left are files in no commit.
    pub(super) is_only_files: bool,
    /// The number of commits on branches beside it.
    pub(super) n_more: u32,
    pub(super) is_unchanged: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option that a person sets")]
struct MergeFields {
    /// The commit that the page showed as the result.
    #[serde(default)]
    expected_head: String,
    #[serde(default)]
    squash: bool,
    #[serde(default)]
    rebase: bool,
    #[serde(default)]
    with_uncommitted: bool,
    #[serde(default)]
    again: bool,
    #[serde(default)]
    only_new: bool,
    #[serde(default)]
    run_hooks: bool,
    #[serde(default)]
    no_hooks: bool,
    /// No hooks run, and this is remembered for the project.
    #[serde(default)]
    remember: bool,
    /// The reader confirmed to merge although the task is open.
    #[serde(default)]
    now: bool,
    /// The agent is to resolve a conflict.
    #[serde(default)]
    ask_agent: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForeverFields {
    /// The id of the task once more.
    #[serde(default)]
    confirm: String,
}

pub(super) fn routes() -> Router<RestState> {
    Router::new()
        .route("/ui/parts/tasks/{id}/changes", get(part))
        .route("/ui/do/tasks/{id}/merge", post(merge))
        .route("/ui/do/tasks/{id}/result", post(others::decide))
        .route("/ui/do/tasks/{id}/publish", post(publish))
        .route("/ui/do/tasks/{id}/discard", post(discard))
        .route("/ui/do/tasks/{id}/discard-forever", post(discard_forever))
        .route("/ui/do/tasks/{id}/keep", post(keep))
        .route("/ui/do/tasks/{id}/restore", post(restore))
        .route("/ui/do/tasks/{id}/retry", post(retry))
}

async fn part(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    show(frame, &state, &id, ShowReason::Part).await
}

async fn merge(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(fields): InForm<MergeFields>,
) -> Result<Response, Problem> {
    let wish = MergeWish {
        into: None,
        style: style_of(fields.squash, fields.rebase)?,
        repeat: repeat_of(fields.again, fields.only_new)?,
        with_uncommitted: fields.with_uncommitted,
        hooks: hooks_of(fields.run_hooks, fields.no_hooks || fields.remember, fields.remember)?,
        expected_head: Some(fields.expected_head.clone()).filter(|head| !head.is_empty()),
        now: fields.now,
        ask_agent: fields.ask_agent,
    };
    let merged = state.service.workspaces.merge(&id, &wish).await?;
    if let Merged::Into { branch, commit } = &merged {
        tracing::info!(task_id = %id, branch, commit, "result merged");
    }
    let is_remembered =
        fields.remember && matches!(merged, Merged::Into { .. } | Merged::Already { .. });
    let choice = Choice::after(&merged);
    let has_no_newer = fields.only_new && matches!(merged, Merged::Already { .. });
    let mut message = message_of(frame.w, merged);
    if message.is_conflict && fields.ask_agent {
        message.tone = "wait";
        message.hint = Some(frame.w.agent_asked.to_owned());
    } else if let Some(choice) = choice {
        message.repeats = Some(Repeats { choice, sent: fields });
    } else if has_no_newer {
        message.hint = Some(frame.w.no_newer_changes.to_owned());
    } else if is_remembered {
        message.hint = Some(frame.w.no_hooks_remembered().to_owned());
    }
    show(frame, &state, &id, ShowReason::Answer(Some(message))).await
}

async fn publish(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    let message = match state.service.workspaces.publish(&id).await {
        Ok(PublishedResult { published, is_renamed, wanted }) => {
            let Published { branch, commit } = published;
            tracing::info!(task_id = %id, branch, commit, "result published");
            let hint = is_renamed.then(|| frame.w.of_other_branch(&wanted));
            Message::short("good", frame.w.of_result_branch(&branch), hint)
        }
        Err(ServiceError::Refused(Refusal::WorkspaceFailed { reason, .. })) => {
            Message::failed(frame.w.not_published, reason)
        }
        Err(error) => return Err(error.into()),
    };
    show(frame, &state, &id, ShowReason::Answer(Some(message))).await
}

async fn discard(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    state.service.workspaces.discard(&id).await?;
    show(frame, &state, &id, ShowReason::Answer(None)).await
}

/// Gives up the kept state of a result, too. A reason why that cannot be is told in the part.
async fn discard_forever(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
    InForm(ForeverFields { confirm }): InForm<ForeverFields>,
) -> Result<Response, Problem> {
    let message = match state.service.workspaces.discard_forever(&id, &confirm).await {
        Ok(()) => Message::short("good", frame.w.given_up.to_owned(), None),
        Err(ServiceError::Refused(Refusal::WorkspaceFailed { reason, .. })) => {
            Message::failed(frame.w.not_given_up, reason)
        }
        Err(error) => return Err(error.into()),
    };
    show(frame, &state, &id, ShowReason::Answer(Some(message))).await
}

async fn keep(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    state.service.workspaces.want_result(&id).await?;
    show(frame, &state, &id, ShowReason::Answer(None)).await
}

async fn restore(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    state.service.workspaces.restore(&id).await?;
    show(frame, &state, &id, ShowReason::Answer(None)).await
}

async fn retry(
    frame: Frame,
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Response, Problem> {
    state.service.workspaces.retry(&id).await?;
    show(frame, &state, &id, ShowReason::Answer(None)).await
}

async fn show(
    frame: Frame,
    state: &RestState,
    id: &TaskId,
    shown: ShowReason,
) -> Result<Response, Problem> {
    let WorkspaceView { workspace, task, .. } = state.service.workspaces.of_task_now(id).await?;
    let content = workspace.content.clone().unwrap_or_default();
    let asked = GitAnswers::read(state, id, &workspace, &content);
    // Dropping the question ends git.
    let answer = tokio::time::timeout(GIT_LIMIT, asked).await;
    let is_slow = answer.is_err();
    let found = answer.ok().transpose()?.unwrap_or_default();
    let item = state.service.forge_items.of_task(id).await?;
    let is_open = task.status.is_open();
    let is_in_progress = task.status == TaskStatus::InProgress;
    let mut part = ChangesPart {
        is_in_progress,
        frame,
        task: task.id,
        short_id: task.short_id,
        is_open,
        workspace,
        content,
        shown,
        found,
        is_slow,
        request: item.as_ref().and_then(request_of),
    };
    let is_told = part.facts().conflict().is_some();
    if let ShowReason::Answer(message) = &mut part.shown {
        message.take_if(|message| message.is_conflict && is_told);
    }
    Ok(rendered(&part))
}

impl GitAnswers {
    async fn read(
        state: &RestState,
        id: &TaskId,
        workspace: &Workspace,
        content: &Content,
    ) -> Result<Self, Problem> {
        let was_made = workspace.base_commit.is_some() || workspace.launch.is_some();
        let mut found = Self::default();
        if was_made {
            found.committed = listing(state, id, DiffKind::Committed).await?;
        }
        if content.n_uncommitted > 0 {
            found.uncommitted = listing(state, id, DiffKind::Uncommitted).await?;
        }
        // A source that cannot be read is told by what needs it.
        found.n_behind = state.service.workspaces.behind(id).await.unwrap_or_default();
        Ok(found)
    }
}

/// Returns a diff. A host that cannot make one now hides nothing else of the part.
async fn listing(state: &RestState, id: &TaskId, kind: DiffKind) -> Result<Listing, Problem> {
    match state.service.workspaces.diff(id, kind).await {
        Ok(text) => {
            let mut diff = UnifiedDiff::parse(&String::from_utf8_lossy(&text));
            diff_lines::limit(&mut diff);
            Ok(Listing { diff, problem: None })
        }
        Err(ServiceError::Refused(Refusal::WorkspaceFailed { reason, .. })) => {
            Ok(Listing { problem: Some(reason), ..Listing::default() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the beginning of a commit that is shown.
pub(super) fn short_commit(commit: &str) -> &str {
    commit.get(..SHORT_COMMIT).unwrap_or(commit)
}

impl ChangesPart {
    /// Returns the class and the text of the state.
    fn state(&self) -> (&'static str, &'static str) {
        let w = self.frame.w;
        let tone = match self.workspace.state {
            WorkspaceState::Broken => "bad",
            WorkspaceState::Wanted => "wait",
            WorkspaceState::Ready => "good",
            WorkspaceState::InUse | WorkspaceState::Removed => "",
        };
        (tone, w.of_workspace_state(self.workspace.state))
    }

    const fn facts(&self) -> ResultFacts<'_> {
        ResultFacts { workspace: &self.workspace, is_in_progress: self.is_in_progress }
    }

    /// Returns the actions that do not come first.
    fn menu(&self) -> Vec<MenuItem> {
        let item = |action| MenuItem {
            action,
            text: self.text_of(action),
            question: self.question_of(action),
        };
        self.facts().menu().into_iter().map(item).collect()
    }

    fn text_of(&self, action: Action) -> String {
        let w = self.frame.w;
        match action {
            Action::Merge => self.merge_text(),
            Action::Squash => w.merge_squash.to_owned(),
            Action::Rebase => w.merge_rebase.to_owned(),
            Action::MergeAgain => w.merge_again.to_owned(),
            Action::Publish => w.publish_result.to_owned(),
            Action::Restore => w.restore_files.to_owned(),
            Action::Keep => w.keep_result.to_owned(),
            Action::Discard => w.discard_result.to_owned(),
        }
    }

    fn question_of(&self, action: Action) -> Option<String> {
        let w = self.frame.w;
        if action == Action::Discard {
            return Some(w.of_discard(&self.workspace.branch, self.n_files()));
        }
        (action.is_merge() && self.is_open).then(|| w.merge_open_sure.to_owned())
    }

    fn merge_text(&self) -> String {
        let w = self.frame.w;
        self.base().map_or_else(|| w.merge.to_owned(), |base| w.of_merge_into(base))
    }

    /// Returns the hint about a conflict.
    fn conflict_hint(&self, conflict: &Conflict) -> String {
        let w = self.frame.w;
        let commit = short_commit(&conflict.commit);
        let is_of_result = |it: &Published| Some(&it.commit) == conflict.result.as_ref();
        let published = self.workspace.published().filter(is_of_result);
        let hint = with_branch(w, w.merge_conflict_hint, published);
        format!("{hint} {}", w.of_conflict_commit(&conflict.branch, commit))
    }

    /// Returns whether a reader could also give up what is kept of the result.
    fn may_give_up(&self) -> bool {
        let state = self.workspace.state;
        let is_still = matches!(state, WorkspaceState::Ready | WorkspaceState::Removed);
        let is_wanted = self.workspace.content.is_some() && !self.is_given_up();
        is_still && is_wanted && !self.is_open && self.workspace.task == self.task
    }

    fn id_again(&self) -> String {
        self.frame.w.of_id_again(&self.short_id.to_string())
    }

    fn is_given_up(&self) -> bool {
        self.workspace.forever_at.is_some()
    }

    fn base(&self) -> Option<&str> {
        let base = self.workspace.base_ref.as_deref()?;
        Some(base.strip_prefix("refs/heads/").unwrap_or(base))
    }

    /// Returns the number of commits that the branch has and the result has not, if there are any,
    /// and the result is still to be merged.
    fn behind(&self) -> Option<String> {
        let facts = self.facts();
        if facts.is_merged() || facts.is_discarded() || facts.is_to_choose() {
            return None;
        }
        let n_behind = self.found.n_behind.filter(|n| *n > 0)?;
        Some(self.frame.w.of_behind(n_behind))
    }

    /// Returns whether git has found that nothing was changed.
    fn is_unchanged(&self) -> bool {
        let GitAnswers { committed, uncommitted, .. } = &self.found;
        let is_empty =
            committed.is_empty() && uncommitted.is_empty() && self.content.others.is_empty();
        // Files that were merged are not listed any more.
        let is_merged = self.workspace.merged_commit.is_some();
        is_empty && !is_merged && !self.is_slow && !self.facts().is_broken()
    }

    fn base_commit(&self) -> Option<&str> {
        self.workspace.base_commit.as_deref().map(short_commit)
    }

    fn merged_commit(&self) -> Option<&str> {
        self.workspace.merged_commit.as_deref().map(short_commit)
    }

    fn head(&self) -> &str {
        self.content.head_commit.as_deref().unwrap_or_default()
    }

    /// Returns the number of changed files. The diff is newer than the content while an agent
    /// works.
    fn n_files(&self) -> usize {
        let diff = &self.found.committed.diff;
        if self.facts().is_in_use() && !self.is_slow && !diff.is_cut {
            return diff.files.len();
        }
        usize::try_from(self.content.n_files).unwrap_or(usize::MAX)
    }

    fn n_additions(&self) -> u32 {
        if self.facts().is_in_use() && !self.is_slow {
            return self.found.committed.diff.files.iter().map(|file| file.n_additions).sum();
        }
        self.content.n_additions
    }

    fn n_deletions(&self) -> u32 {
        if self.facts().is_in_use() && !self.is_slow {
            return self.found.committed.diff.files.iter().map(|file| file.n_deletions).sum();
        }
        self.content.n_deletions
    }

    /// Returns the two lists of files, each with the beginning of the ids in it and its heading.
    fn listings(&self) -> [(&'static str, &'static str, &Listing); 2] {
        let heading = self.frame.w.not_committed;
        [
            ("committed", "", &self.found.committed),
            ("uncommitted", heading, &self.found.uncommitted),
        ]
    }
}

impl Listing {
    fn is_empty(&self) -> bool {
        self.diff.files.is_empty() && self.problem.is_none()
    }
}

impl FileDiff {
    fn kind_text(&self, w: &'static Words) -> Option<&'static str> {
        match self.kind {
            ChangeKind::Modified => None,
            ChangeKind::New => Some(w.file_new),
            ChangeKind::Deleted => Some(w.file_deleted),
            ChangeKind::Renamed => Some(w.file_renamed),
            ChangeKind::Copied => Some(w.file_copied),
        }
    }
}

impl RowKind {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Hunk | Self::NoNewline => "hunk",
            Self::Context => "",
            Self::Add => "add",
            Self::Delete => "del",
        }
    }
}

/// Returns the results of the tasks of a project, for the board.
pub(super) async fn results(
    state: &RestState,
    project: &ProjectId,
) -> Result<BTreeMap<TaskId, CardResult>, Problem> {
    let views = state.service.workspaces.list(Some(project), false).await?;
    Ok(views.into_iter().filter_map(|view| card_result(view.workspace)).collect())
}

/// Returns the result of a workspace; `None` if its agent has changed nothing, or if the result was
/// discarded.
fn card_result(workspace: Workspace) -> Option<(TaskId, CardResult)> {
    let is_unchanged = workspace.work_kind() == WorkKind::Nothing;
    let content = workspace.content.filter(|_| workspace.discarded_at.is_none())?;
    let n_more = content.open_others().map(|other| other.n_commits).sum();
    let result = CardResult {
        branch: workspace.branch,
        n_files: content.n_files,
        n_additions: content.n_additions,
        n_deletions: content.n_deletions,
        n_uncommitted: content.n_uncommitted,
        is_only_files: content.is_only_files() && workspace.merged_commit.is_none(),
        n_more,
        is_unchanged,
        is_merged: workspace.merged_commit.is_some(),
    };
    let is_shown =
        result.n_files > 0 || result.n_uncommitted > 0 || result.is_merged || result.is_unchanged;
    is_shown.then_some((workspace.task, result))
}

/// Returns the workspace that a task uses, its own or that of another task.
pub(super) async fn workspace_of(
    state: &RestState,
    task: &TaskId,
) -> Result<Option<Workspace>, Problem> {
    match state.service.workspaces.of_task(task).await {
        Ok(view) => Ok(Some(view.workspace)),
        Err(ServiceError::Refused(Refusal::NoWorkspace { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
