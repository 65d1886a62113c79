//! The waits of tasks and agents, as the API and the page show them.

use serde::{Deserialize, Serialize};

use domain::waiting::WaitAction;
use domain::{Language, Timestamp, Waiting};

/// The reason why a task or an agent does not run.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingBody {
    /// A reason of `why`, or `no_assignee`, `blocked`, `other_task_first` or `host_silent`.
    pub reason: String,
    /// The sentence for people. It contains neither `since` nor `until`.
    pub text: String,
    /// The time when it began, if the reason has one and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The time when it ends by itself, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// True if only a person ends it.
    pub needs_person: bool,
    /// The action of a person that ends it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<WaitAction>,
}

impl From<&Waiting> for WaitingBody {
    fn from(waiting: &Waiting) -> Self {
        Self {
            reason: waiting.word().to_owned(),
            text: waiting.sentence(Language::English),
            since: waiting.since(),
            until: waiting.until,
            needs_person: waiting.needs_person(),
            action: waiting.action(),
        }
    }
}
