//! `/forge`: the watched forges, and the items that are worked on, with the writes that are still
//! pending for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use domain::forge::{ForgeItem, ForgeKind, ItemKind, PendingWrite, StopCause, queue};
use domain::{AgentId, ItemId, Language, ProjectId, ShortId, TaskId, Timestamp};

/// A host.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgeBody {
    pub forge: ForgeKind,
    pub host: String,
    /// `unknown` before the first look, `ok`, `unauthorized`, `limited`, `unavailable`.
    pub health: String,
    /// The end of the pause that the host asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<Timestamp>,
    /// The time until which labels and comments wait, because `forge.writes_per_hour` is used up or
    /// reserved. Stops don't wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_held_until: Option<Timestamp>,
    /// `true` if new items wait because the writes of this hour are reserved for items at work.
    /// Without a time, they wait until one of those ends.
    #[serde(default)]
    pub writes_reserved: bool,
    /// The last error, also if it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// `true` if nothing is written there, and nothing new is taken.
    #[serde(default)]
    pub dry_run: bool,
    pub repositories: Vec<RepositoryBody>,
}

/// A watched repository.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryBody {
    pub name: String,
    pub project_id: ProjectId,
    /// Its agent, if it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// All of its agents: the next one that is free takes the next item.
    #[serde(default)]
    pub agent_ids: Vec<AgentId>,
    /// The last look that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_at: Option<Timestamp>,
    /// Open items that the bot is assigned to, as far as the last look went.
    pub n_assigned: usize,
    /// The assigned items that another coordinator or a person works on.
    pub n_elsewhere: usize,
    /// The assigned items that wait for an agent and a slot.
    #[serde(default)]
    pub n_waiting: usize,
    /// The reason why the repository is not polled, or its items are not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An item that waits, or is or was worked on.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForgeItemBody {
    /// A waiting item has no id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ItemId>,
    /// The name of the item as people write it: `owner/name#7`.
    pub item: String,
    pub forge: ForgeKind,
    pub host: String,
    #[serde(rename = "type")]
    pub kind: ItemKind,
    pub url: String,
    pub title: String,
    /// One that waits for one of several agents has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    pub project_id: ProjectId,
    /// The task that is, or will be, made of it. One that waits has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_short_id: Option<ShortId>,
    /// `preparing`, `waiting`, `claiming`, `processing`, `blocked`, `failed`, `pausing`, `paused`,
    /// `stopping`, `done`, `stopped`, `expired`, `elsewhere`.
    pub state: String,
    /// The position of an item that waits for an agent and a slot; 1 is the next of all
    /// repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// The number of open issues that block it. It is not claimed before they are closed.
    #[serde(default)]
    pub n_blockers: u64,
    /// The addresses of these issues, as far as the forge tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<String>,
    /// The reason why it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<StopCause>,
    /// The pending writes at the forge and in the folders, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed: Vec<String>,
    /// The number of failures of the first pending write.
    #[serde(default)]
    pub n_attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The branch at the forge that has the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The address of the pull or merge request that was opened for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_url: Option<String>,
    /// The time of the claim. For a waiting item, the time at which it was first seen.
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The filter of the list of items.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForgeItemQuery {
    /// Lists the ended items, the newest end first, in place of the waiting ones and those with
    /// work or pending writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The greatest number of entries. The default is 100, and the maximum is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
}

impl ForgeItemBody {
    /// Adds the short id of its task, if it is known.
    pub fn add_short_id(&mut self, short_ids: &BTreeMap<TaskId, ShortId>) {
        self.task_short_id = self.task_id.as_ref().and_then(|task| short_ids.get(task)).cloned();
    }

    /// Returns why it waits, if open issues block it.
    pub fn blocked_text(&self, language: Language) -> Option<String> {
        (self.n_blockers > 0).then(|| queue::blocked_text(self.n_blockers, language))
    }

    /// Returns the addresses of the issues that block it, as far as a browser may follow them.
    pub fn safe_blockers(&self) -> impl Iterator<Item = &String> {
        self.blockers.iter().filter(|url| is_safe_link(url))
    }

    /// Returns whether a browser may follow the link. A text of a forge is not trusted that far.
    pub fn has_safe_url(&self) -> bool {
        is_safe_link(&self.url)
    }
}

/// Returns whether a link leads to a web page.
pub fn is_safe_link(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

impl From<ForgeItem> for ForgeItemBody {
    fn from(item: ForgeItem) -> Self {
        let (branch, request) = item
            .publication
            .map_or((None, None), |publication| (publication.pushed, publication.request));
        Self {
            branch,
            request_url: request.map(|request| request.url),
            item: item.key.to_string(),
            state: item.state.as_str().to_owned(),
            position: None,
            n_blockers: 0,
            blockers: Vec::new(),
            cause: item.state.cause(),
            owed: item.pending.iter().map(PendingWrite::to_string).collect(),
            id: Some(item.id),
            forge: item.key.forge,
            host: item.key.host,
            kind: item.key.kind,
            url: item.url,
            title: item.title,
            agent_id: Some(item.agent),
            project_id: item.project,
            task_id: Some(item.task),
            task_short_id: None,
            n_attempts: item.n_attempts,
            // A closed item is not tried again.
            retry_at: item.retry_at.filter(|_| item.ended_at.is_none()),
            last_error: item.last_error,
            created_at: item.created_at,
            ended_at: item.ended_at,
        }
    }
}
