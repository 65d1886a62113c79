//! The common JSON of both forges: accounts, comments, labels, and things with a name or a number.

use serde::Deserialize;
use serde_json::Value;

use domain::forge::{Comment, ForgeUser};

#[derive(Deserialize)]
pub(super) struct RawUser {
    id: Option<u64>,
    /// GitLab's `username`.
    #[serde(alias = "username")]
    pub(super) login: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawLabel {
    Name(String),
    Label { name: Option<String> },
}

#[derive(Deserialize)]
pub(super) struct RawComment {
    pub(super) id: u64,
    /// GitLab's `author`.
    #[serde(alias = "author")]
    user: Option<Value>,
    body: Option<String>,
    #[serde(default)]
    created_at: String,
    /// A note of GitLab itself: a user was assigned, a label was set.
    #[serde(default)]
    pub(super) system: bool,
}

#[derive(Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct Numbered {
    pub(super) id: u64,
}

/// Returns the author. A deleted account has none, or only a part of it; nothing depends on it.
pub(super) fn author(user: Option<Value>) -> Option<ForgeUser> {
    user.and_then(|user| RawUser::deserialize(user).ok()).map(ForgeUser::from)
}

/// Returns the names of labels. Labels without a name are left out.
pub(super) fn names(labels: Vec<RawLabel>) -> Vec<String> {
    let name = |label| match label {
        RawLabel::Name(name) => Some(name),
        RawLabel::Label { name } => name,
    };
    labels.into_iter().filter_map(name).collect()
}

impl From<RawUser> for ForgeUser {
    fn from(raw: RawUser) -> Self {
        Self { id: raw.id, login: raw.login }
    }
}

impl From<RawComment> for Comment {
    fn from(raw: RawComment) -> Self {
        Self {
            id: raw.id,
            author: author(raw.user),
            body: raw.body.unwrap_or_default(),
            created_at: raw.created_at,
        }
    }
}

/// A branch of a repository.
#[derive(Debug, Deserialize)]
pub(super) struct RawBranch {
    pub(super) protected: bool,
}

/// An issue that blocks another one, or that GitLab links with it. It may be in a repository that
/// shows little of it.
#[derive(Deserialize)]
pub(super) struct RawLinked {
    /// The relation to the other issue. GitHub lists only issues that block it.
    link_type: Option<String>,
    state: Option<String>,
    /// GitLab's `web_url`.
    #[serde(alias = "web_url")]
    pub(super) html_url: Option<String>,
}

impl RawLinked {
    pub(super) fn is_open_blocker(&self) -> bool {
        let blocks = self.link_type.as_deref().is_none_or(|relation| relation == "is_blocked_by");
        blocks && matches!(self.state.as_deref(), Some("open" | "opened"))
    }
}
