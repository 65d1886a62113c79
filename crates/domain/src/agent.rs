//! Agents and projects as people define them, and the projects in which each agent works.

mod ai_types;
mod edit;

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::id::{AgentId, ProjectId};
use super::secret::PasskeyHash;
use super::short_id::ProjectKey;
use super::time::Timestamp;
use super::words::words;
use super::workspace::{WorkspaceMode, WorkspaceOverrides};

pub use ai_types::AiTypes;
pub use edit::{AgentEdit, ProjectEdit};

words! {
    /// Whether an agent may be started.
    pub enum AgentStatus as "agent status" {
        Active = "active",
        Inactive = "inactive",
        /// Lists leave it out, too.
        Archived = "archived",
    }
}

words! {
    /// Whether work of a project is started.
    pub enum ProjectStatus as "project status" {
        Active = "active",
        Inactive = "inactive",
        Archived = "archived",
    }
}

/// The provider of an agent whose definition names none.
pub const DEFAULT_AI_TYPE: &str = "claude";

/// An agent definition. The server keeps the system prompt and the `ai_type`; a coordinator does
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub id: AgentId,
    pub name: String,
    /// The provider that starts the agent.
    pub ai_type: String,
    pub system_prompt: String,
    /// Without a passkey, the agent can only authenticate with a launch ticket.
    pub passkey: Option<PasskeyHash>,
    pub status: AgentStatus,
    /// The status before it was archived. It has this one again if it is unarchived.
    pub archived_from: Option<AgentStatus>,
    pub created_at: Timestamp,
    pub revision: i64,
}

/// A project: a name for a working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    pub name: String,
    /// The first part of the short ids of its tasks. No other project has it.
    pub key: ProjectKey,
    /// People have changed the key. They may do that once.
    pub is_key_edited: bool,
    /// An absolute path. This program never creates the directory.
    pub working_directory: PathBuf,
    pub status: ProjectStatus,
    /// The status before it was archived. It has this one again if it is unarchived.
    pub archived_from: Option<ProjectStatus>,
    /// The place where the agents of its tasks work. It is chosen when the project is created.
    pub workspace: WorkspaceMode,
    /// Its settings of workspaces, in place of those of the configuration.
    pub overrides: WorkspaceOverrides,
    pub created_at: Timestamp,
    pub revision: i64,
}

/// The permission of an agent to work in a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Assignment {
    #[serde(rename = "project_id")]
    pub project: ProjectId,
    #[serde(rename = "agent_id")]
    pub agent: AgentId,
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.agent, self.project)
    }
}
