//! `/stop`, `/resume`, `/pause`, `/drain` and `/refresh`: actions of people on running agents.

use serde::{Deserialize, Serialize};

use domain::{AgentId, LaunchId, ProjectId, Purpose};

/// The target: one agent in a project, or all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetRequest {
    #[serde(default)]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The default is both purposes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// `true` also ends launches whose coordinator is not connected. Only a stop takes it.
    #[serde(default)]
    pub force: bool,
    /// The provider whose account is resumed. Only a resume takes it, without other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// The result of a stop.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoppedBody {
    /// Launches that are being ended.
    pub launches: Vec<LaunchId>,
    /// Launches that can't be ended, because their coordinator is not connected.
    pub abandoned: Vec<LaunchId>,
}
