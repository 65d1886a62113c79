//! `/attention`: the conditions that need a person, with what the person of the request did with
//! them.

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use domain::attention::{AttentionGroup, AttentionKind, AttentionState};
use domain::waiting::WaitAction;
use domain::{AgentId, AttentionId, LaunchId, ProjectId, ShortId, TaskId, Timestamp};

/// A condition that needs a person.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttentionBody {
    /// It stays the same as long as the condition lasts.
    pub id: AttentionId,
    pub kind: AttentionKind,
    pub group: AttentionGroup,
    /// Its state for the person of this request.
    pub state: AttentionState,
    /// The time until which the person put it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_until: Option<Timestamp>,
    /// The title of the task, or the object in a few words.
    pub title: String,
    /// The sentence that says what is wrong.
    pub text: String,
    /// The command or the step by which a person ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The action of a person that ends it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<WaitAction>,
    /// The time since which it exists, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The time at which it ends by itself, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_short_id: Option<ShortId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_id: Option<LaunchId>,
    /// The provider whose account it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The item of a forge that it is about: `owner/name#7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_url: Option<String>,
}

/// The filter of the list, in the order in which people see it: accounts, failures, blocked tasks,
/// operation, and the newest first within each.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttentionQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<AttentionKind>,
    /// The project that the entries, or their tasks, belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<AttentionState>,
    /// The greatest number of entries, up to 1000. Without it and without `cursor`, the answer has
    /// all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<AttentionId>,
}

/// The mark of an entry.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarkRequest {
    /// The time until which it is put off, within a year. Without it and without `forSeconds`, the
    /// entry is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The seconds for which it is put off, by the clock of the server, instead of `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
}
