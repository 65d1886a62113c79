//! The content of a workspace that was kept after a launch.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Choice, Conflict, OtherTip};

/// The content of a workspace, as it was found when it was kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Content {
    /// The last commit of the work; `None` if there is no commit at all.
    pub head_commit: Option<String>,
    /// The number of commits since the base.
    pub n_commits: u32,
    /// The number of files with changes that are in no commit.
    pub n_uncommitted: u32,
    /// The number of those of them that are in the last commit: files that were changed or removed.
    #[serde(default)]
    pub n_changed: u32,
    /// The number of files that the commits change.
    pub n_files: u32,
    pub n_additions: u32,
    pub n_deletions: u32,
    /// The disk space that it uses, in bytes.
    pub disk_bytes: u64,
    /// The commit of the coordinator's repository that reaches all of it.
    pub kept_commit: String,
    /// The mark of the files that `kept_commit` was proved to reach; `None` if something was left
    /// out.
    pub proof: Option<String>,
    /// The entries that could not be kept, each with its path and the reason.
    pub left_out: Vec<String>,
    /// The branches and HEADs with changes that the result lacks.
    #[serde(default)]
    pub others: Vec<OtherTip>,
    /// None of `others` is preferred, so a person is to choose one of them. `head_commit` is the
    /// result before.
    #[serde(default)]
    pub is_undecided: bool,
    /// The commit that a person chose as the result.
    #[serde(default)]
    pub chosen: Option<String>,
    /// The branch on which the result was found, if it was on one.
    #[serde(default)]
    pub found_on: Option<String>,
    /// The commits of all branches and HEADs with commits that the workspace did not begin with.
    #[serde(default)]
    pub tips: BTreeSet<String>,
    /// The files are those of another commit than the result: HEAD is elsewhere.
    #[serde(default)]
    pub is_elsewhere: bool,
    /// The conflict of the last merge that was refused because of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<Conflict>,
}

impl Content {
    /// The commit that is the result; `None` without any, and while a person is to choose it.
    pub fn result(&self) -> Option<&String> {
        self.head_commit.as_ref().filter(|_| !self.is_undecided)
    }

    /// Returns whether the agent left nothing: no commit, no file, and no other branch.
    pub const fn is_unchanged(&self) -> bool {
        self.n_commits == 0 && self.n_uncommitted == 0 && self.others.is_empty()
    }

    /// Returns the result that a person chose, if one did.
    pub fn choice(&self) -> Option<Choice> {
        self.chosen.clone().map(|commit| Choice { commit, among: self.tips.clone() })
    }

    /// Returns the tip beside the result that `name` names: its branch, or at least 7 digits of its
    /// commit.
    pub fn other(&self, name: &str) -> Option<&OtherTip> {
        let is_named = |other: &&OtherTip| other.branch.as_deref() == Some(name);
        let is_begun = |other: &&OtherTip| name.len() >= 7 && other.commit.starts_with(name);
        self.others.iter().find(is_named).or_else(|| self.others.iter().find(is_begun))
    }

    /// Returns the names of the tips beside the result, each with its number of commits.
    pub fn names_of_others(&self) -> String {
        let named = |other: &OtherTip| {
            let plural = if other.n_commits == 1 { "" } else { "s" };
            format!("`{}` ({} commit{plural})", other.name(), other.n_commits)
        };
        self.others.iter().map(named).collect::<Vec<_>>().join(", ")
    }
}
