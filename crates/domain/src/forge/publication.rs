//! The way of a result from an item's task to the repository at the forge: the commit that the work
//! begins at, the branch that is pushed, and the pull or merge request.
//!
//! Each fact is stored as soon as it is known, and before the next step. So a step that is repeated
//! after a crash ends in the same state.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The destination of the results of a repository's items.
    pub enum Publish as "destination of results" {
        /// Results stay with the coordinator.
        Nothing = "none",
        /// The branch is pushed to the forge.
        Push = "push",
        /// The branch is pushed, and a draft pull or merge request is opened for it.
        PullRequest = "pull_request",
    }
}

/// The work on an item as far as its repository is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub publish: Publish,
    /// The branch at the forge that the result is meant for, such as `main`.
    pub target: String,
    /// The commit that the work begins at. The keep repository has it.
    pub base: String,
    /// The address of the repository, without a name or a password.
    pub upstream: String,
    /// The branch that a pull or merge request is compared with; `None` for an issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_base: Option<DiffBase>,
    /// The branch of a pull or merge request, if the result is to be pushed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_to: Option<String>,
    /// The result, once it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TakenResult>,
    /// The branch at the forge that has the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed: Option<String>,
    /// The pull or merge request for the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<PullRequest>,
    /// The open request of another account for the branch, because of which none was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_request: Option<PullRequest>,
    /// The reason why the result was not published, if that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The result of a task when it was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenResult {
    /// The branch of the workspace.
    pub branch: String,
    /// The newest commit of the branch; `None` if the work has no commit.
    pub commit: Option<String>,
}

/// The branch that a pull or merge request is to be merged into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffBase {
    pub branch: String,
    /// Its newest commit. The keep repository has it.
    pub commit: String,
}

/// A pull or merge request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequest {
    /// GitHub's `number`, GitLab's `iid`.
    pub number: u64,
    /// The address for people.
    pub url: String,
}

/// The commit at which the work on an item would begin now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The branch that the result is meant for, such as `main`.
    pub target: String,
    pub commit: String,
    /// The address of the repository, without a name or a password.
    pub upstream: String,
    /// It is the head of a fork, to which nothing is pushed.
    pub is_read_only: bool,
    /// The branch that a pull or merge request is compared with.
    pub diff_base: Option<DiffBase>,
    /// The branch of a pull or merge request, if the result is to be pushed to it.
    pub push_to: Option<String>,
}

impl Publication {
    /// Returns the publication of an item that is taken now.
    pub fn new(publish: Publish, base: Base) -> Self {
        let Base { target, commit, upstream, is_read_only, diff_base, push_to } = base;
        Self {
            publish: if is_read_only { Publish::Nothing } else { publish },
            target,
            base: commit,
            upstream,
            diff_base,
            push_to,
            result: None,
            pushed: None,
            request: None,
            foreign_request: None,
            problem: None,
        }
    }

    /// Returns whether the result is on the branch of the pull or merge request itself, which needs
    /// no other request.
    pub fn is_on_request(&self) -> bool {
        self.pushed.is_some() && self.pushed == self.push_to
    }

    /// Returns whether the forge has the result or gets it.
    pub fn reaches_forge(&self) -> bool {
        self.publish != Publish::Nothing && self.problem.is_none()
    }

    /// Returns the branch and the commit to publish; `None` if the work made no commit, and before
    /// the result was taken.
    pub fn to_push(&self) -> Option<(&str, &str)> {
        let TakenResult { branch, commit } = self.result.as_ref()?;
        let commit = commit.as_deref().filter(|commit| *commit != self.base)?;
        Some((branch, commit))
    }
}

/// Returns the `n`th name to try for a branch, from 1. The names after the first have a number.
pub fn nth_branch(branch: &str, n: u32) -> String {
    if n == 1 { branch.to_owned() } else { format!("{branch}-{n}") }
}

#[cfg(test)]
impl Publication {
    pub(crate) fn example() -> Self {
        let base = Base {
            target: "main".to_owned(),
            commit: "1".repeat(40),
            upstream: "https://forge.example/acme/shop.git".to_owned(),
            is_read_only: false,
            diff_base: None,
            push_to: None,
        };
        Self::new(Publish::PullRequest, base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_a_commit_is_not_pushed() {
        let taken = |commit: Option<&str>| Publication {
            result: Some(TakenResult {
                branch: "agents/shop-1".to_owned(),
                commit: commit.map(str::to_owned),
            }),
            ..Publication::example()
        };
        assert_eq!(Publication::example().to_push(), None);
        assert_eq!(taken(None).to_push(), None);
        assert_eq!(taken(Some(&"1".repeat(40))).to_push(), None);
        assert_eq!(taken(Some("22")).to_push(), Some(("agents/shop-1", "22")));
        assert_eq!(
            (nth_branch("agents/shop-1", 1), nth_branch("agents/shop-1", 2)),
            ("agents/shop-1".to_owned(), "agents/shop-1-2".to_owned())
        );
    }
}
