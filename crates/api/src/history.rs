//! The query of the lists of past events of agents.

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use domain::{AgentId, LaunchId, ProjectId, TaskId};

/// Which rows to list, the newest first; `Id` is that of a row.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryQuery<Id> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Only what goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// At most so many; 100 without it, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Id>,
}
