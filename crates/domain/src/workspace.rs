//! Workspaces: the files that the agent of one task works in, apart from all other agents.
//!
//! ```text
//!  wanted ──prepared──► ready ◄──kept── in_use
//!     │                  │ ▲──claimed────┘ ▲
//!     └─failed─► broken  │ └───────────────┘
//!                        └──removed──► removed ──wanted again──► a new workspace
//! ```
//!
//! A workspace belongs to the topmost task of one agent. Its parts that the same agent works on use
//! it, too, and a part of another agent has a workspace of its own. It is kept across retries,
//! follow-ups and a change of the assignee. Its files are removed only when a commit of the
//! coordinator's own repository reaches all of them.

mod branch;
mod cone;
mod content;
mod folder;
mod git_tree;
mod hook;
mod left_merge;
mod limits;
mod merge_hooks;
mod merge_message;
mod merge_way;
mod orders;
mod overrides;
mod publication;
mod remote;
mod result;
mod reverted;
mod submodule;
mod unmerged;

use serde::{Deserialize, Serialize};

pub use branch::{BranchIds, DEFAULT_PATTERN, branch_of, check_pattern};
pub use cone::Cone;
pub use content::{Content, WorkKind};
pub use folder::{Folder, FolderRepository};
pub use git_tree::{TreeFault, fault_of};
pub use hook::{Hook, HookFacts};
pub use left_merge::{LeftMerge, still_left};
pub use limits::GitLimits;
pub use merge_hooks::{COMMIT_MSG, HookRule, HookStep, HookWish, MergeHooks, hooks_of_commit};
pub use merge_message::{MergeMessage, REVERTS, ResultCommit, Signature};
pub use merge_way::{EarlierMerges, MergeStyle, Repeat, Way, find_way};
pub use orders::{
    BASE_WORKING_TREE, CleanOrder, ForgeBase, ForgetOrder, Job, KeepOrder, Order, RemoveOrder,
    Restored,
};
pub use overrides::{WorkspaceOverrides, check_base, check_own_merge_hooks};
pub use publication::{PublishOrder, PublishResults, Published, fitting, numbered};
pub use remote::{FetchOrder, Fetched, PushOrder, PushWay, Pushed, Remote, RemoteError};
pub use result::{CheckedOut, Choice, Found, NewCommits, OtherTip, Tip, find_result};
pub use reverted::{Commit, Reverted, find_reverted};
pub use submodule::{SubmoduleSource, check_address, is_name, resolve_address};
pub use unmerged::{Conflict, MergeStep, UnmergedResult};

use super::id::{CoordinatorId, LaunchId, ProjectId, TaskId, WorkspaceId};
use super::task::{Task, TaskGraph};
use super::time::Timestamp;
use super::words::words;

words! {
    /// The place where the agents of a project work.
    pub enum WorkspaceMode as "workspace mode" {
        /// All agents work in the project's directory.
        Shared = "shared",
        /// Each task has a clone of the project's repository.
        Clone = "clone",
    }
}

words! {
    /// The state of a workspace.
    pub enum WorkspaceState as "workspace state" {
        /// It is to be made.
        Wanted = "wanted",
        /// It is complete, its content is kept, and no agent uses it.
        Ready = "ready",
        /// It is bound to a launch. After the end of the launch, its content is to be kept.
        InUse = "in_use",
        /// It can be neither used nor removed until a person decides.
        Broken = "broken",
        /// Its files are gone. The kept commit stays.
        Removed = "removed",
    }
}

words! {
    /// The form in which new workspaces have the files of Git LFS.
    pub enum LfsFiles as "form of files of LFS" {
        /// The files themselves, if that is possible.
        Auto = "auto",
        /// The pointers that commits have.
        Pointers = "pointers",
    }
}

words! {
    /// The time of a snapshot of the directory that the agents of a project share.
    pub enum Moment as "moment" {
        /// Before the launch began.
        Before = "before",
        /// After the end of all processes of the launch.
        After = "after",
    }
}

/// A workspace as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub project: ProjectId,
    /// The task that it belongs to.
    pub task: TaskId,
    /// The coordinator whose host has the files.
    pub coordinator: Option<CoordinatorId>,
    pub state: WorkspaceState,
    /// The reason why it is not ready, for people.
    pub reason: Option<String>,
    /// The branch that the work is committed on.
    pub branch: String,
    /// The branch of the source that the work began at; `None` before it was made, and if the
    /// source was at no branch.
    pub base_ref: Option<String>,
    /// The commit that the work began at; `None` before it was made, and if the source had no
    /// commit.
    pub base_commit: Option<String>,
    /// The project's directory, relative to the top of its repository.
    pub subdirectory: String,
    /// The content as it was kept last. A workspace that is wanted is made from it.
    pub content: Option<Content>,
    /// The launch that uses it, or used it last.
    pub launch: Option<LaunchId>,
    /// The time when a person decided that the result is not wanted.
    pub discarded_at: Option<Timestamp>,
    /// The time when a person decided that not even the kept state is wanted.
    pub forever_at: Option<Timestamp>,
    /// The commit by which the result came into the source.
    pub merged_commit: Option<String>,
    /// The branch of the source that got the result, and the commit that it got last.
    pub published_branch: Option<String>,
    pub published_commit: Option<String>,
    pub created_at: Timestamp,
    pub revision: i64,
}

/// The facts that are known of a workspace when it has been made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub branch: String,
    pub base_ref: Option<String>,
    pub base_commit: Option<String>,
    pub subdirectory: String,
}

/// The report of a coordinator about a workspace on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceReport {
    Prepared(Prepared),
    /// The hook before the next launch has passed.
    ReadyToRun,
    /// It was not made or kept, or a hook failed. It will be tried again.
    Failed {
        reason: String,
    },
    /// The content is kept as it was after this launch.
    Kept {
        launch: Option<LaunchId>,
        content: Box<Content>,
        /// The result that a person had chosen when that step began.
        chosen: Option<String>,
    },
    /// A branch of the source has its result.
    Published(Published),
    Removed,
    /// Its kept state was given up.
    Forgotten,
    /// It needs a person.
    Broken {
        reason: String,
    },
}

impl Workspace {
    /// Returns a workspace that is to be made.
    pub const fn wanted(
        id: WorkspaceId,
        project: ProjectId,
        task: TaskId,
        branch: String,
        at: Timestamp,
    ) -> Self {
        Self {
            id,
            project,
            task,
            coordinator: None,
            state: WorkspaceState::Wanted,
            reason: None,
            branch,
            base_ref: None,
            base_commit: None,
            subdirectory: String::new(),
            content: None,
            launch: None,
            discarded_at: None,
            forever_at: None,
            merged_commit: None,
            published_branch: None,
            published_commit: None,
            created_at: at,
            revision: 0,
        }
    }

    /// Returns a new workspace that is to be made from the content of this one, whose files are
    /// gone. It began where this one began.
    #[must_use]
    pub fn again(self, id: WorkspaceId, at: Timestamp) -> Self {
        let wanted = Self::wanted(id, self.project, self.task, self.branch, at);
        Self {
            base_ref: self.base_ref,
            base_commit: self.base_commit,
            content: self.content,
            merged_commit: self.merged_commit,
            published_branch: self.published_branch,
            published_commit: self.published_commit,
            ..wanted
        }
    }

    /// Returns the kept state that it is to be made from, if there is one.
    pub fn restores(&self) -> Option<Restored> {
        self.content.as_ref().map(|content| Restored {
            kept_commit: content.kept_commit.clone(),
            head_commit: content.head_commit.clone(),
            base_ref: self.base_ref.clone(),
            base_commit: self.base_commit.clone(),
        })
    }

    /// Returns the workspace that a launch uses from now on. The launch may add to the result, so
    /// that an earlier merge or an earlier decision says nothing about it.
    #[must_use]
    pub fn claimed(self, launch: LaunchId) -> Self {
        Self {
            state: WorkspaceState::InUse,
            launch: Some(launch),
            reason: None,
            discarded_at: None,
            forever_at: None,
            merged_commit: None,
            ..self
        }
    }

    /// Returns the workspace after a report. A report that comes late or twice changes nothing.
    #[must_use]
    pub fn on(self, report: WorkspaceReport, by: &CoordinatorId) -> Self {
        use WorkspaceState::{Broken, InUse, Ready, Removed, Wanted};
        match (self.state, report) {
            (Wanted, WorkspaceReport::Prepared(made)) => Self {
                // Content that could not be kept before may be missing, so it is kept anew.
                state: if self.content.as_ref().is_none_or(|content| content.proof.is_some()) {
                    Ready
                } else {
                    InUse
                },
                reason: None,
                coordinator: Some(by.clone()),
                branch: made.branch,
                base_ref: made.base_ref,
                base_commit: made.base_commit,
                subdirectory: made.subdirectory,
                ..self
            },
            // A workspace that is ready was written to after it had been kept, and was kept again.
            // A report that comes again after the next claim says nothing about that launch.
            (InUse | Ready, WorkspaceReport::Kept { launch, content, chosen })
                if launch == self.launch =>
            {
                let decided = self.content.as_ref().map(|it| (&it.chosen, &it.dropped));
                if self.state == Ready && decided != Some((&chosen, &content.dropped)) {
                    // A person has decided about the branches since that step began.
                    return self;
                }
                let before = self.content.as_ref();
                let before = before.map(|before| (&before.head_commit, before.is_undecided));
                let is_same = before == Some((&content.head_commit, content.is_undecided));
                let Content { conflict, is_offered, .. } = self.content.unwrap_or_default();
                // A conflict with files in no commit says nothing about later ones.
                let conflict = conflict.filter(|it| is_same && !it.with_uncommitted);
                let conflict = content.conflict.clone().or(conflict);
                let content = Content { conflict, is_offered, ..*content };
                // An earlier merge says nothing about later commits.
                let merged_commit = self.merged_commit.clone().filter(|_| is_same);
                Self { state: Ready, reason: None, content: Some(content), merged_commit, ..self }
            }
            (Ready | Removed | InUse, WorkspaceReport::Published(published)) => {
                self.published_as(published)
            }
            (Ready, WorkspaceReport::ReadyToRun) if self.waits_for_hook() => {
                Self { reason: None, ..self }
            }
            (_, WorkspaceReport::Removed) if self.state == Ready || self.is_unused_orphan() => {
                Self { state: Removed, reason: None, ..self }
            }
            (Removed, WorkspaceReport::Forgotten) => Self { content: None, ..self },
            (Wanted | Ready | InUse, WorkspaceReport::Failed { reason }) => {
                Self { reason: Some(reason), ..self }
            }
            (Wanted | Ready | InUse, WorkspaceReport::Broken { reason }) => {
                // It goes without being made, so a person has nothing to mend.
                let state = if self.is_unused_orphan() { self.state } else { Broken };
                Self { state, reason: Some(reason), ..self }
            }
            _ => self,
        }
    }

    /// Returns the workspace after its result was merged as this commit. `with_uncommitted` says
    /// that the files in no commit were merged, too.
    #[must_use]
    pub fn merged(self, commit: String, with_uncommitted: bool) -> Self {
        let mut content = self.content.map(Content::as_kept);
        if let Some(content) = content.as_mut().filter(|_| with_uncommitted) {
            content.n_uncommitted = 0;
        }
        Self { merged_commit: Some(commit), content, ..self }
    }

    /// Returns the workspace after a person asked to try again. If its folder is gone, it is made
    /// again from what was kept.
    #[must_use]
    pub fn retried(self, is_gone: bool) -> Self {
        let was_made = self.base_commit.is_some() || self.launch.is_some();
        let state = match self.state {
            WorkspaceState::Broken if is_gone || !was_made => WorkspaceState::Wanted,
            WorkspaceState::Ready if is_gone => WorkspaceState::Wanted,
            // Its content is kept before it is used again.
            WorkspaceState::Broken => WorkspaceState::InUse,
            state => state,
        };
        Self { state, reason: None, ..self }
    }

    /// Returns the workspace after a person decided that not even its kept state is wanted. Its
    /// files go first, if there are any.
    ///
    /// # Errors
    /// The reason, if it is in use or wanted, or if its files cannot be removed.
    pub fn given_up(self, task: &Task, at: Timestamp) -> Result<Self, String> {
        if task.status.is_open() {
            return Err(format!("its task is {}; finish or cancel it first", task.status));
        }
        let left_out = self.content.iter().flat_map(|content| &content.left_out).next();
        match (self.state, left_out) {
            (WorkspaceState::Wanted, _) => Err("it is being made; wait until it is ready".into()),
            (WorkspaceState::InUse, _) => {
                Err("its content is being kept; wait until it is ready".into())
            }
            (WorkspaceState::Broken, _) => {
                Err("it is broken; mend it and retry it first".to_owned())
            }
            (WorkspaceState::Ready, Some(entry)) => Err(format!(
                "its files stay, because some could not be kept, such as {entry}; move them away, \
                 and let an agent work on the task once more"
            )),
            (WorkspaceState::Ready | WorkspaceState::Removed, _) => {
                Ok(Self { discarded_at: Some(at), forever_at: Some(at), ..self })
            }
        }
    }

    /// Returns what it has for a merge.
    pub fn work_kind(&self) -> WorkKind {
        match &self.content {
            Some(content) if content.is_only_files() => WorkKind::OnlyFiles,
            // Files that were merged are not counted any more.
            Some(content) if content.is_unchanged() && self.merged_commit.is_none() => {
                WorkKind::Nothing
            }
            Some(_) | None => WorkKind::Commits,
        }
    }

    /// Returns whether it has a result that is neither merged nor given up, or a branch beside it
    /// that a person has neither taken nor dropped.
    pub fn has_unmerged_work(&self) -> bool {
        let Some(content) = self.content.as_ref().filter(|_| self.discarded_at.is_none()) else {
            return false;
        };
        let has_result = content.n_commits > 0 && self.merged_commit.is_none();
        let has_more = content.open_others().next().is_some();
        content.n_uncommitted > 0 || content.is_undecided || has_result || has_more
    }

    /// Returns the workspace after its task was deleted: its files go, and its kept state 14 days
    /// later.
    #[must_use]
    pub fn orphaned(self, at: Timestamp) -> Self {
        let discarded_at = Some(self.discarded_at.unwrap_or(at));
        let forever_at = Some(self.forever_at.unwrap_or(at));
        Self { discarded_at, forever_at, ..self }
    }

    /// Returns whether it has nothing to keep, given that its task does not exist any more: no
    /// launch has used it. Its making may still be under way.
    pub fn is_unused_orphan(&self) -> bool {
        let is_unused = self.content.is_none() && self.launch.is_none();
        let is_going = matches!(self.state, WorkspaceState::Wanted | WorkspaceState::Ready);
        is_unused && is_going && self.forever_at.is_some()
    }

    /// Returns whether its files may be removed although its task does not exist any more.
    pub fn may_be_removed_as_orphan(&self) -> bool {
        let is_kept = self.content.as_ref().is_some_and(|content| content.left_out.is_empty());
        self.state == WorkspaceState::Ready && self.forever_at.is_some() && is_kept
    }

    /// Returns whether its kept state may be given up: a person decided so, and its files are gone.
    pub fn may_be_forgotten(&self) -> Option<Timestamp> {
        let is_over = self.state == WorkspaceState::Removed && self.content.is_some();
        self.forever_at.filter(|_| is_over)
    }

    /// Returns whether its files may be removed: no launch uses it, the task is closed, everything was
    /// kept, and the result is merged, discarded or older than `keep`. `None` keeps it for ever. A
    /// workspace that was restored counts from then on.
    pub fn may_be_removed(
        &self,
        task: &Task,
        keep: Option<std::time::Duration>,
        now: Timestamp,
    ) -> bool {
        let since = task.status_since.max(self.created_at);
        let is_old = keep.is_some_and(|keep| now.since(since) >= keep);
        let is_proved = self.content.as_ref().is_some_and(|content| content.proof.is_some());
        // A merge of the commits says nothing about files that are in no commit.
        let has_more = self.content.as_ref().is_some_and(|content| content.n_uncommitted > 0);
        let is_beside = self.content.as_ref().is_some_and(|it| it.open_others().next().is_some());
        // One that a person brought back after the merge has no launch.
        let is_settled = !has_more && !is_beside && self.launch.is_some();
        let is_merged = self.merged_commit.is_some() && is_settled;
        self.state == WorkspaceState::Ready
            && !task.status.is_open()
            && is_proved
            && (is_old || self.discarded_at.is_some() || is_merged)
    }

    /// Returns whether its files may be removed once they were kept again: they were changed while
    /// they were kept, so there is no proof.
    pub fn may_be_kept_again(
        &self,
        task: &Task,
        keep: Option<std::time::Duration>,
        now: Timestamp,
    ) -> bool {
        let unproved = |content: &&Content| content.proof.is_none() && content.left_out.is_empty();
        let Some(content) = self.content.as_ref().filter(unproved) else {
            return false;
        };
        let content = Some(Content { proof: Some(String::new()), ..content.clone() });
        Self { content, ..self.clone() }.may_be_removed(task, keep, now)
    }
}

/// Returns the task whose workspace is used for `task`: the topmost of its ancestors, as long as
/// they have the same assignee.
pub fn owner<'a>(task: &'a Task, graph: &'a TaskGraph) -> &'a Task {
    let above = graph.ancestors(task).into_iter();
    above.take_while(|parent| parent.assignee == task.assignee).last().unwrap_or(task)
}

#[cfg(test)]
mod tests;
