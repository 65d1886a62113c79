//! `/workspaces` and `/tasks/{task}/workspace`: the clones in which tasks are worked on, and what
//! becomes of their results.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use domain::workspace::{Conflict, Content, Moment, OtherTip, WorkspaceState};
use domain::{
    AgentId, CoordinatorId, LaunchId, ProjectId, ShortId, TaskId, TaskStatus, Timestamp,
    WorkspaceId,
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
    /// The conflict because of which the result was not merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<ConflictBody>,
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

/// A merge that was refused, because the result and the branch change the same lines.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictBody {
    /// The branch of the project's repository, and the commit that it was at.
    pub branch: String,
    pub commit: String,
    pub files: Vec<String>,
    /// True if the agent of the task was asked to resolve it.
    pub is_asked: bool,
}

impl From<&Conflict> for ConflictBody {
    fn from(Conflict { branch, commit, files, is_asked, .. }: &Conflict) -> Self {
        Self {
            branch: branch.clone(),
            commit: commit.clone(),
            files: files.clone(),
            is_asked: *is_asked,
        }
    }
}

/// The content of a workspace.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_commit: Option<String>,
    /// The branch of the clone on which the result was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_on: Option<String>,
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
    /// True if all of it is kept, so that its files may be removed.
    pub is_complete: bool,
    /// The entries that could not be kept, each with its path and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The branches and commits with changes that the result lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherTipBody>,
    /// True if a person has to choose the result among `others`.
    #[serde(default)]
    pub is_undecided: bool,
}

impl ContentBody {
    /// Returns whether the agent left only files in no commit.
    pub fn is_only_files(&self) -> bool {
        let Self { n_files, n_uncommitted, is_undecided, .. } = *self;
        Content { n_files, n_uncommitted, is_undecided, ..Content::default() }.is_only_files()
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
    /// True if a person does not need it.
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
    /// Returns those of a workspace with this content.
    pub fn all(content: &Content) -> Vec<Self> {
        let body = |other: &OtherTip| {
            let is_dropped = content.is_dropped(other);
            let OtherTip { branch, commit, n_commits } = other.clone();
            Self { branch, commit, n_commits, is_dropped }
        };
        content.others.iter().map(body).collect()
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

/// The filter of the list of workspaces.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceQuery {
    /// The project; without it, the workspaces of all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// `true` also lists the workspaces whose files are gone.
    #[serde(default)]
    pub all: bool,
}

/// The moment of the answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeptQuery {
    /// `true` lets the answer wait until the work of a finished task is kept, a minute at most.
    #[serde(default)]
    pub kept: bool,
}

/// The changes that a diff shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffQuery {
    /// `true` shows one line per file instead of the changes.
    #[serde(default)]
    pub stat: bool,
    /// `true` shows the changes that are in no commit.
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
    /// True if another branch has the name of the task's branch, so that this one has another name.
    pub is_renamed: bool,
    /// The name of the task's branch.
    pub wanted: String,
}

/// The options of a merge.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option that a person sets")]
pub struct MergeRequest {
    /// The branch that gets the result; without it the one that the work began at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Makes one commit with all changes instead of a merge.
    #[serde(default)]
    pub squash: bool,
    /// Makes each commit of the result again, after those of the branch.
    #[serde(default)]
    pub rebase: bool,
    /// Merges all changes once more, as if nothing had been merged before.
    #[serde(default)]
    pub again: bool,
    /// Merges only the changes since an earlier merge that was reverted.
    #[serde(default)]
    pub only_new: bool,
    /// Runs the hooks of the project's repository that judge the commit.
    #[serde(default)]
    pub run_hooks: bool,
    /// Runs none of them.
    #[serde(default)]
    pub no_hooks: bool,
    /// With `noHooks`, later merges into the project run no hooks either, if the branch has the
    /// result then.
    #[serde(default)]
    pub remember: bool,
    /// Also merges the changes that are in no commit.
    #[serde(default)]
    pub with_uncommitted: bool,
    /// The commit that was seen as the result; another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_head: Option<String>,
    /// Merges the result although the task is open.
    #[serde(default)]
    pub now: bool,
    /// On a conflict, sets the task in progress again, so that its agent resolves it.
    #[serde(default)]
    pub ask_agent: bool,
}

/// The end of a merge.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MergedBody {
    /// The branch of the project's repository.
    pub branch: String,
    /// Its newest commit.
    pub commit: String,
    /// True if the branch had the result before.
    pub was_merged: bool,
    /// The commit by which the branch got the result before, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<String>,
    /// True if the task changed nothing.
    #[serde(default)]
    pub is_unchanged: bool,
}
