//! Work that people assign and withdraw at a forge: the facts of an item at the forge,
//! and their meaning.
//!
//! An item is an issue, pull request or merge request. It becomes a task when the bot is assigned
//! to it and it has the bot's label. From then on each change at the forge and each folder that it
//! needs is stored as [`PendingWrite`]. The daemon repeats each of these until it succeeds, also
//! across restarts.

pub mod claim_step;
pub mod claims;
pub mod eligibility;
pub mod item;
pub mod labels;
pub mod marker;
pub mod open_work;
pub mod pacing;
pub mod publication;
pub mod queue;
pub mod settle;
pub mod task_text;
pub mod texts;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::words::words;

pub use claim_step::{ClaimProgress, ClaimStep};
pub use claims::Claimants;
pub use eligibility::{Eligibility, Rules, StopCause, is_bot};
pub use item::{
    FolderPlace, ForgeItem, ItemEnd, ItemState, PendingWrite, Setback, Settling, WorkState,
};
pub use labels::{LabelDelta, LabelNames};
pub use publication::{Base, DiffBase, Publication, Publish, PullRequest, TakenResult};

words! {
    /// A kind of forge.
    pub enum ForgeKind as "forge" {
        GitHub = "github",
        GitLab = "gitlab",
    }
}

words! {
    /// A kind of item.
    pub enum ItemKind as "item type" {
        Issue = "issue",
        PullRequest = "pull_request",
        MergeRequest = "merge_request",
    }
}

/// The identity of an item, unique among all items that this daemon watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemKey {
    pub forge: ForgeKind,
    /// The base URL of the API without its scheme: `api.github.com`, `code.example/gitlab`.
    pub host: String,
    /// The form `owner/name`; at GitLab the path or the number of a project.
    pub repository: String,
    pub kind: ItemKind,
    /// GitHub's `number`, GitLab's `iid`.
    pub number: u64,
}

/// Writes the key as people write it: `owner/name#7`, `group/name!7`.
impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.kind == ItemKind::MergeRequest { '!' } else { '#' };
        write!(f, "{}{mark}{}", self.repository, self.number)
    }
}

/// An account at a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeUser {
    /// The number of the account, which stays when the account is renamed. `None` if the forge does
    /// not tell it.
    pub id: Option<u64>,
    pub login: String,
}

/// The facts of an item at its forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemFacts {
    pub kind: ItemKind,
    pub number: u64,
    pub title: String,
    /// Empty if the item has no description.
    pub body: String,
    /// The address of the item for people.
    pub url: String,
    /// `None` for a deleted account.
    pub author: Option<String>,
    pub labels: Vec<String>,
    /// All assignees. An answer without them is not valid.
    pub assignees: Vec<ForgeUser>,
    pub is_open: bool,
    /// True if only some people may comment on the item. The bot may be one of them.
    pub is_locked: bool,
    /// The number of open items that block it, as far as the forge tells. It waits for them.
    pub n_blockers: u64,
    /// The text of the forge. It is never parsed as a time.
    pub updated_at: String,
}

/// A comment on an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The number of the comment. It grows with time within a forge.
    pub id: u64,
    /// `None` for a deleted account.
    pub author: Option<ForgeUser>,
    pub body: String,
    pub created_at: String,
}

/// An issue for tests, with facts that a forge may report of it.
#[cfg(test)]
impl ItemKey {
    pub(crate) fn example() -> Self {
        Self {
            forge: ForgeKind::GitHub,
            host: "api.github.com".to_owned(),
            repository: "acme/shop".to_owned(),
            kind: ItemKind::Issue,
            number: 7,
        }
    }
}

#[cfg(test)]
impl ItemFacts {
    pub(crate) fn example() -> Self {
        Self {
            kind: ItemKind::Issue,
            number: 7,
            title: "Login".to_owned(),
            body: String::new(),
            url: "https://forge.example/acme/shop/issues/7".to_owned(),
            author: None,
            labels: Vec::new(),
            assignees: Vec::new(),
            is_open: true,
            is_locked: false,
            n_blockers: 0,
            updated_at: String::new(),
        }
    }
}
