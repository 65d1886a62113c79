//! The query of the lists of past events of agents.

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use domain::{AgentId, LaunchId, ProjectId, TaskId};

/// The filter of a list, the newest row first. `Id` is the type of the id of a row.
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
    /// `true` leaves out what has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// The greatest number of entries. The default is 100, and the maximum is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Id>,
}
