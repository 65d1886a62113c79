//! The content of a workspace that was kept after a launch.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Choice, Conflict, OtherTip};
use crate::printable::counted;

/// The content of a workspace, as it was found when it was kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Content {
    /// The last commit of the work; `None` if there is no commit at all.
    pub head_commit: Option<String>,
    /// The number of commits since the base.
    pub n_commits: u32,
    /// The number of files with changes that are in no commit, also in linked work trees inside.
    pub n_uncommitted: u32,
    /// The number of those of them that are in the last commit: files that were changed or removed.
    /// Linked work trees do not count.
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
    /// The commits that a person does not need. They stay among `others`, and are never the result.
    #[serde(default)]
    pub dropped: BTreeSet<String>,
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
    /// Its branch in the source is there for a merge that was refused, so a person still decides.
    #[serde(default)]
    pub is_offered: bool,
}

/// The kind of work in a workspace that a merge can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// Commits, and perhaps files in no commit; or files that were merged before.
    Commits,
    /// Only files in no commit, which no merge takes unasked.
    OnlyFiles,
    /// Neither a commit nor a file.
    Nothing,
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

    /// Returns whether the agent left only files in no commit, apart from commits without changes.
    /// No merge takes them unasked, and no forge gets them.
    pub const fn is_only_files(&self) -> bool {
        self.n_files == 0 && self.n_uncommitted > 0 && !self.is_undecided
    }

    /// Returns the entries about repositories that could not be kept: commits that are beyond a
    /// limit, damaged or malformed.
    pub fn unkept_commits(&self) -> impl Iterator<Item = &String> {
        // A path may contain a colon, and no reason for another entry names something in `.git`.
        let is_of_git = |entry: &&String| {
            let entry = format!("/{entry}");
            entry.contains("/.git: ") || entry.contains("/.git/")
        };
        self.left_out.iter().filter(is_of_git)
    }

    /// Returns whether a person does not need a tip beside the result.
    pub fn is_dropped(&self, other: &OtherTip) -> bool {
        self.dropped.contains(&other.commit)
    }

    /// Returns the tips beside the result about which a person has not decided. A former result
    /// that the result contains is only there to be taken back.
    pub fn open_others(&self) -> impl Iterator<Item = &OtherTip> {
        let has_more = |other: &OtherTip| other.n_commits > 0 || self.is_undecided;
        self.others.iter().filter(move |other| has_more(other) && !self.is_dropped(other))
    }

    /// Notes that a person does not need a tip beside the result. Returns the tip that is the
    /// result then: the only one that is left to choose.
    pub fn drop_tip(&mut self, tip: &OtherTip) -> Option<OtherTip> {
        self.dropped.insert(tip.commit.clone());
        if !self.is_undecided {
            return None;
        }
        let mut left: Vec<OtherTip> = self.open_others().cloned().collect();
        self.is_undecided = !left.is_empty();
        left.pop().filter(|_| left.is_empty())
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

    /// Returns the names of the tips beside the result that a person has not dropped, each with its
    /// number of commits.
    pub fn names_of_others(&self) -> String {
        names_of(self.open_others())
    }

    /// Returns the names of all tips beside the result, each with its number of commits.
    pub fn all_others(&self) -> String {
        names_of(self.others.iter())
    }
}

fn names_of<'a>(tips: impl Iterator<Item = &'a OtherTip>) -> String {
    let named =
        |other: &OtherTip| format!("`{}` ({})", other.name(), counted(other.n_commits, "commit"));
    tips.map(named).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_tip_that_is_left_to_choose_is_the_result() {
        let tip = |name: &str| OtherTip {
            branch: Some(name.to_owned()),
            commit: format!("{name}-commit"),
            n_commits: 1,
        };
        let [x, y, z] = ["x", "y", "z"].map(tip);
        let others = vec![x.clone(), y.clone(), z.clone()];
        let mut content = Content { others, is_undecided: true, ..Content::default() };
        assert_eq!((content.drop_tip(&x), content.is_undecided), (None, true));
        assert_eq!(content.names_of_others(), "`y` (1 commit), `z` (1 commit)");
        assert!(content.all_others().starts_with("`x`"));
        assert_eq!(content.drop_tip(&z), Some(y.clone()));
        // Nothing is left to choose.
        assert_eq!((content.drop_tip(&y), content.is_undecided), (None, false));
        let mut decided = Content { others: vec![x.clone()], ..Content::default() };
        assert_eq!((decided.drop_tip(&x), decided.is_dropped(&x)), (None, true));
    }
}
