//! A repository at a forge, and the exchange of commits with it.

use crate::id::ProjectId;
use crate::secret::Secret;

/// A repository that git reaches over HTTP with a name and a password.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The address, without a name or a password.
    pub url: String,
    /// The name that git presents with the token.
    pub user: &'static str,
    pub token: Secret,
}

/// Commits that the keep repository of a project is to have.
#[derive(Debug, Clone)]
pub struct FetchOrder {
    pub project: ProjectId,
    pub remote: Remote,
    /// Full names of refs at the remote, beside its HEAD.
    pub refs: Vec<String>,
    /// The members of `refs` that belong to forks, in which other people write.
    pub forks: Vec<String>,
    /// The submodules of all commits but those of forks are fetched, too.
    pub submodules: bool,
    /// New commits are fetched while all workspaces and keep repositories use fewer bytes.
    pub max_disk: u64,
}

/// The commits that the keep repository has after a fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The default branch, such as `main`, and its commit; `None` if there is no commit.
    pub default: Option<(String, String)>,
    /// The commit of each wanted ref that exists, in the order of the wish.
    pub commits: Vec<Option<String>>,
}

/// A commit that a branch of the remote is to have.
#[derive(Debug, Clone)]
pub struct PushOrder {
    pub project: ProjectId,
    pub remote: Remote,
    pub commit: String,
    /// The branch, such as `agents/shop-1`.
    pub branch: String,
    pub way: PushWay,
}

/// The way in which a branch of the remote gets a commit. It never loses a commit there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushWay {
    /// The branch must be new. It is one of a task.
    Create,
    /// The branch must exist, and the commit must contain all of its commits.
    Advance,
}

/// The end of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The branch has the commit, perhaps by an earlier push.
    Done,
    /// The branch has other commits, or is gone, and was left as it is.
    Taken,
}

/// The reason why no commits were exchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The remote refused it, and waiting may not help.
    #[error("{0}")]
    Refused(String),
    /// The remote gave no answer, or this host cannot do it now.
    #[error("{0}")]
    Unanswered(String),
}
