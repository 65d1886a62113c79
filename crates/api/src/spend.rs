//! `/spend`: sums of what launches used.

use serde::{Deserialize, Serialize};

use super::activity::UsageBody;
use domain::spend::{Day, SpendBy};

#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpendQuery {
    pub by: SpendBy,
    /// The first day, in UTC. Without it, all launches count that are still in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Day>,
}

/// The usage of the launches that have a task, an agent, a project, a provider, a day or a month in
/// common.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpendBody {
    /// The id, the day or the month; absent for launches without a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub usage: UsageBody,
}
