//! Work that people give and take back at a forge (seed 002): what a forge says of an item, and what that means.
//!
//! An item is an issue, pull request or merge request. It becomes a task when the bot is assigned to it and it has the bot's
//! label; from then on what is wanted at the forge (labels, comments, folders) is written down with it as [`Owed`], and done
//! until it is done, whatever is restarted in between.

pub mod claims;
pub mod eligibility;
pub mod item;
pub mod labels;
pub mod marker;
pub mod pacing;
pub mod queue;
pub mod settle;
pub mod task_text;
pub mod texts;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::words::words;

pub use claims::Claimants;
pub use eligibility::{Eligibility, Rules, StopCause, is_bot};
pub use item::{ForgeItem, ItemEnd, ItemState, Owed, Place, Setback, Standing};
pub use labels::{LabelDelta, LabelNames};

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

/// Which item: unique among all that this daemon watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemKey {
    pub forge: ForgeKind,
    /// The base URL of the API without its scheme: `api.github.com`, `code.example/gitlab`.
    pub host: String,
    /// `owner/name`; at GitLab the path or the number of a project.
    pub repository: String,
    pub kind: ItemKind,
    /// GitHub's `number`, GitLab's `iid`.
    pub number: u64,
}

/// As people write it: `owner/name#7`, `group/name!7`.
impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.kind == ItemKind::MergeRequest { '!' } else { '#' };
        write!(f, "{}{mark}{}", self.repository, self.number)
    }
}

/// An account at a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeUser {
    /// Stays when the account is renamed. `None` where the forge doesn't say it.
    pub id: Option<u64>,
    pub login: String,
}

/// What a forge says of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemFacts {
    pub kind: ItemKind,
    pub number: u64,
    pub title: String,
    /// Empty where there is none.
    pub body: String,
    /// For people.
    pub url: String,
    /// `None` for a deleted account.
    pub author: Option<String>,
    pub labels: Vec<String>,
    /// All of them. An answer without them is no answer.
    pub assignees: Vec<ForgeUser>,
    pub is_open: bool,
    /// Whether only some people may comment on it. The bot may be one of them.
    pub is_locked: bool,
    /// As the forge writes it; never computed with.
    pub updated_at: String,
}

/// A comment on an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Grows with time within a forge.
    pub id: u64,
    /// `None` for a deleted account.
    pub author: Option<ForgeUser>,
    pub body: String,
    pub created_at: String,
}

/// For tests: an issue, and what a forge may say of it.
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
            updated_at: String::new(),
        }
    }
}
