//! Finds the result of a workspace among the branches that its agent left.
//!
//! Agents make branches of their own, work in linked work trees, or detach HEAD. So the result is
//! where the work is, not where the coordinator expects it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A commit that a branch or a HEAD of a workspace names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// The branch, without `refs/heads/`; `None` for a HEAD that is at no branch.
    pub branch: Option<String>,
    pub commit: String,
    /// The place in which it is checked out, if it is.
    pub place: Option<CheckedOut>,
}

/// The place in which a tip is checked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckedOut {
    /// The workspace itself.
    Workspace,
    /// A linked work tree of its repository.
    Linked,
}

/// Commits that are in a workspace and that it did not begin with, each with its parents. Parents
/// that it began with need not be there.
#[derive(Debug, Default)]
pub struct NewCommits(BTreeMap<String, Vec<String>>);

/// The tip that is the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No tip has a new commit.
    Nothing,
    /// The result is this commit.
    Result(String),
    /// Several tips have new commits, and no rule prefers one of them.
    Undecided,
}

/// A branch or a HEAD with changes that the result lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherTip {
    /// `None` for a HEAD that is at no branch.
    pub branch: Option<String>,
    pub commit: String,
    /// The number of its commits whose changes the result lacks.
    pub n_commits: u32,
}

impl OtherTip {
    /// The branch, or else the beginning of the id of the commit.
    pub fn name(&self) -> &str {
        let short = self.commit.get(..10).unwrap_or(&self.commit);
        self.branch.as_deref().unwrap_or(short)
    }
}

impl NewCommits {
    /// Reads lines that each name a commit, followed by its parents, as `git rev-list --parents`
    /// prints them.
    pub fn parse(listed: &str) -> Self {
        let commits = listed.lines().filter_map(|line| {
            let mut ids = line.split(' ').map(str::to_owned);
            Some((ids.next()?, ids.collect()))
        });
        Self(commits.collect())
    }

    /// Returns whether the workspace did not begin with this commit.
    pub fn has(&self, commit: &str) -> bool {
        self.0.contains_key(commit)
    }

    /// Returns the new commits in the history of `commit`, which is one of them.
    fn history<'a>(&'a self, commit: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut next = vec![commit];
        while let Some(commit) = next.pop() {
            if self.has(commit) && found.insert(commit) {
                next.extend(self.0.get(commit).into_iter().flatten().map(String::as_str));
            }
        }
        found
    }

    /// Returns the number of new commits in the history of `tip` that the history of `result` lacks.
    pub fn n_beyond(&self, tip: &str, result: Option<&str>) -> usize {
        let known = result.map(|result| self.history(result)).unwrap_or_default();
        self.history(tip).difference(&known).count()
    }

    /// Returns the one of these new commits that contains all the others.
    fn farthest<'a>(&self, commits: &BTreeSet<&'a str>) -> Option<&'a str> {
        commits.iter().find(|it| commits.is_subset(&self.history(it))).copied()
    }
}

/// The result that a person has chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub commit: String,
    /// The commits of all tips at that time.
    pub among: BTreeSet<String>,
}

/// Returns the result of a workspace whose task has this branch. A commit that a person has chosen
/// stands for that branch. Nothing is decided if the work has gone on elsewhere since. Only tips with
/// new commits count:
///
/// 1. The branch of the task, unless a checked-out tip contains it: then the farthest of those.
/// 2. Else what is checked out: in the workspace, or else in the only linked work tree.
/// 3. Else the tip that contains all the others.
pub fn find_result(branch: &str, chosen: Option<&Choice>, tips: &[Tip], new: &NewCommits) -> Found {
    let counted: Vec<&Tip> = tips.iter().filter(|tip| new.has(&tip.commit)).collect();
    let commits = |of: &dyn Fn(&Tip) -> bool| -> BTreeSet<&str> {
        counted.iter().filter(|tip| of(tip)).map(|tip| tip.commit.as_str()).collect()
    };
    let all = commits(&|_| true);
    if all.is_empty() {
        return Found::Nothing;
    }
    let is_of_task = |tip: &Tip| tip.branch.as_deref() == Some(branch);
    let of_task = counted.iter().find(|tip| is_of_task(tip)).map(|tip| tip.commit.as_str());
    let is_there =
        |choice: &&Choice| all.iter().any(|tip| new.history(tip).contains(choice.commit.as_str()));
    let chosen = chosen.filter(is_there);
    if let Some(Choice { commit, among }) = chosen {
        let goes_on = |tip: &Tip| tip.place.is_some() || is_of_task(tip);
        let is_elsewhere =
            |tip: &&str| !among.contains(*tip) && !new.history(tip).contains(commit.as_str());
        if commits(&goes_on).iter().any(is_elsewhere) {
            return Found::Undecided;
        }
    }
    let chosen = chosen.map(|choice| choice.commit.as_str());
    let found = if let Some(of_task) = chosen.or(of_task) {
        let contains_it = |tip: &Tip| new.history(&tip.commit).contains(of_task);
        let mut later = commits(&|tip| tip.place.is_some() && contains_it(tip));
        later.insert(of_task);
        new.farthest(&later)
    } else {
        let at = |place| commits(&move |tip: &Tip| tip.place == Some(place));
        let only = |commits: BTreeSet<&'_ str>| -> Option<String> {
            commits.first().filter(|_| commits.len() == 1).map(|it| (*it).to_owned())
        };
        let checked_out = only(at(CheckedOut::Workspace)).or_else(|| only(at(CheckedOut::Linked)));
        if let Some(checked_out) = checked_out {
            return Found::Result(checked_out);
        }
        new.farthest(&all)
    };
    found.map_or(Found::Undecided, |commit| Found::Result(commit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits `a` to `d`, one after the other; `x` and `y` after `a`; `o` without parents.
    const GRAPH: &str = "a base\nb a\nc b\nd c\nx a\ny a\no\n";

    fn tip(name: &str, commit: &str, place: Option<CheckedOut>) -> Tip {
        let branch = Some(name.to_owned()).filter(|name| !name.is_empty());
        Tip { branch, commit: commit.to_owned(), place }
    }

    #[test]
    fn the_result_is_where_the_work_is() {
        const HERE: Option<CheckedOut> = Some(CheckedOut::Workspace);
        const LINKED: Option<CheckedOut> = Some(CheckedOut::Linked);
        let result = |commit: &str| Found::Result(commit.to_owned());
        let task = "agents/one";
        let cases: [(&str, Vec<Tip>, Found); 15] = [
            ("nothing was done", vec![tip(task, "base", HERE)], Found::Nothing),
            ("the branch of the task", vec![tip(task, "b", HERE)], result("b")),
            (
                "a linked work tree",
                vec![tip(task, "base", HERE), tip("wt", "b", LINKED)],
                result("b"),
            ),
            (
                "another branch, and back",
                vec![tip(task, "base", HERE), tip("feature", "b", None)],
                result("b"),
            ),
            (
                "another branch that stays",
                vec![tip(task, "base", None), tip("feature", "b", HERE)],
                result("b"),
            ),
            ("no branch", vec![tip(task, "base", None), tip("", "b", HERE)], result("b")),
            ("no ancestor", vec![tip(task, "base", None), tip("o", "o", HERE)], result("o")),
            (
                "a backup of what was reset",
                vec![tip(task, "b", HERE), tip("backup", "d", None)],
                result("b"),
            ),
            (
                "an experiment, and back",
                vec![tip(task, "b", HERE), tip("experiment", "x", None)],
                result("b"),
            ),
            (
                "continued in a linked work tree",
                vec![tip(task, "b", HERE), tip("wt", "d", LINKED), tip("wt2", "c", LINKED)],
                result("d"),
            ),
            (
                "continued in two that went apart",
                vec![tip(task, "a", HERE), tip("wt", "x", LINKED), tip("wt2", "y", LINKED)],
                Found::Undecided,
            ),
            (
                "what is checked out here comes first",
                vec![tip(task, "base", None), tip("x", "x", HERE), tip("y", "y", LINKED)],
                result("x"),
            ),
            (
                "two linked work trees",
                vec![tip(task, "base", HERE), tip("x", "x", LINKED), tip("y", "y", LINKED)],
                Found::Undecided,
            ),
            (
                "the one that contains the others",
                vec![tip(task, "base", HERE), tip("one", "b", None), tip("two", "d", None)],
                result("d"),
            ),
            (
                "two that went apart",
                vec![tip(task, "base", HERE), tip("x", "x", None), tip("y", "y", None)],
                Found::Undecided,
            ),
        ];
        let new = NewCommits::parse(GRAPH);
        let apart = [tip("x", "x", None), tip("y", "y", None)];
        let choice = |commit: &str, among: &[&str]| {
            let among = among.iter().map(|it| (*it).to_owned()).collect();
            Choice { commit: commit.to_owned(), among }
        };
        let y = choice("y", &["x", "y"]);
        assert_eq!(find_result(task, Some(&y), &apart, &new), result("y"));
        let elsewhere = [tip(task, "b", HERE), tip("x", "x", None), tip("y", "y", None)];
        assert_eq!(find_result(task, Some(&y), &elsewhere, &new), Found::Undecided);
        let known = choice("y", &["b", "x", "y"]);
        assert_eq!(find_result(task, Some(&known), &elsewhere, &new), result("y"));
        let later = [tip("x", "x", None), tip("b", "b", None), tip("d", "d", HERE)];
        assert_eq!(find_result(task, Some(&choice("b", &["x", "b"])), &later, &new), result("d"));
        assert_eq!(find_result(task, Some(&choice("gone", &[])), &apart, &new), Found::Undecided);
        for (name, tips, expected) in cases {
            assert_eq!(find_result(task, None, &tips, &new), expected, "{name}");
            let reversed: Vec<Tip> = tips.into_iter().rev().collect();
            assert_eq!(
                find_result(task, None, &reversed, &new),
                expected,
                "{name}, in another order"
            );
        }
    }
}
