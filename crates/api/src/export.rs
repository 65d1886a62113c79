//! `/export` and `/import`: projects, agents, tasks and chats as JSON lines.

use serde::{Deserialize, Serialize};

/// The projects to export.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportQuery {
    /// The ids of projects, with commas between them; all projects without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(,[A-Za-z0-9][A-Za-z0-9._-]{0,63})*$"
    ))]
    pub projects: Option<String>,
}

/// The choices of an import.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportQuery {
    /// Checks everything and changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Leaves objects as they are that exist already. Otherwise they are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge: bool,
    /// Tasks in progress stay so, and their agents start. Otherwise they become todo.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub start: bool,
}
