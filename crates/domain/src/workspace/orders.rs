//! The steps that a coordinator takes on its host.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Choice, Conflict, Content, PublishOrder, WorkspaceReport};
use crate::command::RunAs;
use crate::id::{AgentId, LaunchId, ProjectId, WorkspaceId};
use crate::time::Timestamp;

/// The word for a base that has the uncommitted files of the project's directory, too.
pub const BASE_WORKING_TREE: &str = "working_tree";

/// The facts that a workspace is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: WorkspaceId,
    pub project: ProjectId,
    pub branch: String,
    /// The directory of the project.
    pub source: std::path::PathBuf,
    /// The agent that the commits name.
    pub agent: AgentId,
    /// The branch, tag or commit that new work begins at, or [`BASE_WORKING_TREE`]; `None` for HEAD
    /// of the source.
    pub base: Option<String>,
    /// New work has the files of submodules, too.
    pub submodules: bool,
    /// New work has the files that Git LFS keeps outside of commits.
    pub lfs: bool,
    /// The results that the task depends on. New work begins at a merge of them.
    pub dependencies: Vec<String>,
    /// The workspace of the parent task, at whose newest commit this one begins.
    pub begins_at: Option<WorkspaceId>,
    /// The kept state of an earlier workspace of the task, which comes back.
    pub restores: Option<Restored>,
    /// The commit of a repository at a forge that it begins at, in place of the project's
    /// directory.
    pub forge: Option<ForgeBase>,
    /// The user that owns it, if that is not the daemon's own. The coordinator of the host knows.
    pub run_as: Option<RunAs>,
}

/// A commit of a repository at a forge. The keep repository has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeBase {
    /// The branch that the result is meant for, such as `main`.
    pub target: String,
    pub commit: String,
    /// The address of the repository, without a name or a password.
    pub upstream: String,
    /// The commit is that of a fork, in which other people write.
    pub is_of_fork: bool,
}

/// The kept state that a workspace is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The commit that reaches everything.
    pub kept_commit: String,
    /// The last commit of the work.
    pub head_commit: Option<String>,
    /// The branch of the source that the work began at.
    pub base_ref: Option<String>,
    /// The commit that the work began at; `None` if it counts anew from `head_commit`.
    pub base_commit: Option<String>,
}

/// The facts that a workspace is kept by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepOrder {
    pub id: WorkspaceId,
    pub project: ProjectId,
    pub branch: String,
    /// The branch of the source that the work began at, as a full ref.
    pub base_ref: Option<String>,
    pub base_commit: Option<String>,
    /// The agent that the commits name.
    pub agent: AgentId,
    /// The launch that used the workspace last.
    pub launch: Option<LaunchId>,
    /// The result that a person chose.
    pub chosen: Option<Choice>,
    /// The commits that a person does not need.
    pub dropped: BTreeSet<String>,
    /// The conflict that the content before had.
    pub conflict: Option<Box<Conflict>>,
}

impl KeepOrder {
    /// Returns the report that the content was kept.
    pub fn kept(&self, content: Content) -> WorkspaceReport {
        WorkspaceReport::Kept {
            launch: self.launch.clone(),
            content: Box::new(content),
            chosen: self.chosen.as_ref().map(|choice| choice.commit.clone()),
        }
    }
}

/// The facts that a fresh clone for a check is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanOrder {
    /// The workspace whose result is checked.
    pub id: WorkspaceId,
    pub project: ProjectId,
    /// The result; `None` if there is no commit.
    pub commit: Option<String>,
    /// The commit that the work began at.
    pub base_commit: Option<String>,
    /// The agent that further commits would name.
    pub agent: AgentId,
    /// Patterns of the paths that are as in `base_commit`.
    pub protected: Vec<String>,
}

/// The facts that a workspace is removed by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveOrder {
    pub keep: KeepOrder,
    /// The mark of the files that were proved to be kept. An empty one is of no files, so that they
    /// are kept once more.
    pub proof: String,
    /// The commit that has them.
    pub kept_commit: String,
}

/// The kept state that is not wanted any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetOrder {
    pub id: WorkspaceId,
    pub project: ProjectId,
    pub branch: String,
    pub decided_at: Timestamp,
}

/// One step that a coordinator takes on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Makes a workspace, if all of them use less than `max_disk` bytes.
    Prepare {
        order: Box<Order>,
        max_disk: u64,
    },
    /// Runs the hook before the next launch in a workspace.
    BeforeRun {
        project: ProjectId,
        id: WorkspaceId,
    },
    /// Makes a fresh clone for a check, if there is room as for a workspace.
    PrepareClean {
        order: Box<CleanOrder>,
        max_disk: u64,
    },
    Keep(KeepOrder),
    Publish(PublishOrder),
    Remove(RemoveOrder),
    /// Removes the files of a workspace that no launch has used.
    RemoveUnused {
        project: ProjectId,
        id: WorkspaceId,
    },
    Forget(ForgetOrder),
}

impl Job {
    pub fn project(&self) -> &ProjectId {
        match self {
            Self::Prepare { order, .. } => &order.project,
            Self::BeforeRun { project, .. } => project,
            Self::PrepareClean { order, .. } => &order.project,
            Self::Keep(order) => &order.project,
            Self::Publish(order) => &order.project,
            Self::Remove(order) => &order.keep.project,
            Self::RemoveUnused { project, .. } => project,
            Self::Forget(order) => &order.project,
        }
    }

    pub fn workspace(&self) -> &WorkspaceId {
        match self {
            Self::Prepare { order, .. } => &order.id,
            Self::BeforeRun { id, .. } => id,
            Self::PrepareClean { order, .. } => &order.id,
            Self::Keep(order) => &order.id,
            Self::Publish(order) => &order.id,
            Self::Remove(order) => &order.keep.id,
            Self::RemoveUnused { id, .. } => id,
            Self::Forget(order) => &order.id,
        }
    }
}
