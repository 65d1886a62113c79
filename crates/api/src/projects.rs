//! `/projects`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use domain::agent::{ProjectEdit, ProjectStatus};
use domain::workspace::{MergeHooks, WorkspaceMode};
use domain::{AgentId, Project, ProjectId, ProjectKey, Timestamp, limits};

/// A project as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectBody {
    pub id: ProjectId,
    pub name: String,
    /// The first part of the short ids of its tasks.
    pub key: ProjectKey,
    pub working_directory: PathBuf,
    pub status: ProjectStatus,
    /// The place where the agents of its tasks work: its directory, or a clone of its repository
    /// for each task.
    pub workspace: WorkspaceMode,
    /// The base of the work on its tasks, in place of `workspace.base` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_base: Option<String>,
    /// The pattern for its branches, in place of `workspace.branch` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_branch: Option<String>,
    /// `off` if merges run no hooks of its repository, in place of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_hooks: Option<MergeHooks>,
    /// Assigned agents, by id.
    pub agents: Vec<AgentId>,
    pub created_at: Timestamp,
}

/// The fields of a new or changed project. A missing field stays, or has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectRequest {
    /// The id of a new project. The server generates one if it is missing. With an id, the request
    /// can be repeated: the answer is then 200, with the project as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::NAME.described())]
    pub name: Option<String>,
    /// The first part of the short ids of its tasks. Without it, the server makes one from the
    /// name. It can be changed once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<ProjectKey>,
    /// An absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = limits::WORKING_DIRECTORY.described_as_absolute())]
    pub working_directory: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ProjectStatus>,
    /// The place where its agents work. It is chosen when the project is made. The default is
    /// `shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceMode>,
    /// The branch, tag or commit that the work on its tasks begins at, or `working_tree`. An empty
    /// text stands for that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_base: Option<String>,
    /// The pattern for the branches of its tasks, with `{task_id}`. An empty text stands for that
    /// of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_branch: Option<String>,
    /// `off` if merges run no hooks of its repository. An empty text stands for the configuration,
    /// which alone can say `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_hooks: Option<String>,
    /// Agents to assign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assign: Vec<AgentId>,
    /// Agents whose assignment ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unassign: Vec<AgentId>,
}

impl From<(Project, Vec<AgentId>)> for ProjectBody {
    fn from((project, agents): (Project, Vec<AgentId>)) -> Self {
        Self {
            id: project.id,
            name: project.name,
            key: project.key,
            working_directory: project.working_directory,
            status: project.status,
            workspace: project.workspace,
            merge_hooks: project.overrides.own_merge_hooks(),
            workspace_base: project.overrides.base,
            workspace_branch: project.overrides.branch,
            agents,
            created_at: project.created_at,
        }
    }
}

impl From<ProjectRequest> for ProjectEdit {
    fn from(request: ProjectRequest) -> Self {
        Self {
            name: request.name,
            key: request.key,
            working_directory: request.working_directory,
            status: request.status,
            workspace: request.workspace,
            workspace_base: request.workspace_base,
            workspace_branch: request.workspace_branch,
            merge_hooks: request.merge_hooks,
            assign: request.assign,
            unassign: request.unassign,
            seen: None,
        }
    }
}
