//! The entries of a manifest as the server takes them. `agent-coordinator apply` sends them as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use domain::agent::{AgentStatus, ProjectStatus};
use domain::limits;
use domain::workspace::WorkspaceMode;
use domain::{AgentId, Priority, ProjectId, Secret, TaskId, TaskStatus};

/// The entries of a manifest, without their places in its file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    #[serde(default)]
    pub agents: Vec<WantedAgent>,
    #[serde(default)]
    pub projects: Vec<WantedProject>,
    #[serde(default)]
    pub tasks: Vec<WantedTask>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedAgent {
    pub id: AgentId,
    #[schemars(transform = limits::NAME.described())]
    pub name: String,
    #[schemars(transform = limits::AI_TYPE.described())]
    pub ai_type: String,
    #[schemars(transform = limits::SYSTEM_PROMPT.described())]
    pub system_prompt: String,
    /// `None` leaves what there is.
    #[serde(default, with = "passkey_text")]
    #[schemars(with = "Option<String>", transform = limits::PASSKEY.described())]
    pub passkey: Option<Secret>,
    pub status: AgentStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedProject {
    pub id: ProjectId,
    #[schemars(transform = limits::NAME.described())]
    pub name: String,
    #[schemars(transform = limits::WORKING_DIRECTORY.described_as_absolute())]
    pub working_directory: PathBuf,
    /// The agents to assign. Agents that are assigned already stay so.
    pub agents: Vec<AgentId>,
    pub status: ProjectStatus,
    /// The place where its agents work. A project that exists keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceMode>,
    /// The base of the work on its tasks; an empty text for that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_base: Option<String>,
    /// The pattern for its branches; an empty text for that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_branch: Option<String>,
    /// `off` if merges run no hooks of its repository; an empty text for the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_hooks: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedTask {
    pub id: TaskId,
    pub project: ProjectId,
    #[schemars(transform = limits::TITLE.described_as_needed())]
    pub title: String,
    #[schemars(transform = limits::DESCRIPTION.described())]
    pub description: String,
    pub assignee: Option<AgentId>,
    /// The status of a new task. An existing task keeps its own.
    pub status: TaskStatus,
    pub parent: Option<TaskId>,
    pub dependencies: Vec<TaskId>,
    pub priority: Priority,
}

/// A passkey on its way from the command line to the daemon.
mod passkey_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use domain::Secret;

    #[allow(clippy::ref_option, reason = "serde gives the field by reference")]
    pub(crate) fn serialize<S: Serializer>(
        passkey: &Option<Secret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match passkey {
            Some(passkey) => serializer.serialize_some(passkey.reveal()),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Secret>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
    }
}
