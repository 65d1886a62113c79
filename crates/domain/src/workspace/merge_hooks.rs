//! Decides whether the hooks of a person's repository judge the commit of a merge.
//!
//! Such a hook runs with the result in the work tree, so it may run files that an agent has
//! written.

use std::time::Duration;

use crate::words::words;

words! {
    /// The treatment of the hooks of a person's repository at a merge.
    pub enum MergeHooks as "treatment of hooks" {
        /// A person says for each merge whether they run.
        Ask = "ask",
        /// They run.
        Run = "run",
        /// They do not run.
        Off = "off",
    }
}

/// The wish of a person about the hooks of one merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HookWish {
    /// The setting decides.
    #[default]
    AsSet,
    /// They run.
    Run,
    /// They do not run.
    Skip,
    /// They do not run, also at later merges into the project.
    SkipAlways,
}

/// The facts that decide about the hooks of one merge, beside those of the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookRule {
    pub setting: MergeHooks,
    pub wish: HookWish,
    /// An agent runs as another user than the daemon (`run_as`).
    pub agents_have_users: bool,
    /// The time after which a hook is ended.
    pub timeout: Duration,
}

/// The decision about the hooks of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookStep {
    /// The merge goes on without them.
    Skip,
    /// A person is to say whether they run.
    Ask,
    /// They may not run. A person is to say whether the merge goes on without them.
    AskWithout,
    /// They run.
    Run,
}

impl Default for HookRule {
    fn default() -> Self {
        Self {
            setting: MergeHooks::Ask,
            wish: HookWish::AsSet,
            agents_have_users: false,
            timeout: Duration::from_mins(1),
        }
    }
}

impl HookRule {
    /// Decides about the hooks of a repository. `is_own` says that it belongs to the user of the
    /// daemon. That user may do more than an agent with a user of its own.
    pub const fn step(&self, has_hooks: bool, is_own: bool) -> HookStep {
        match (self.wish, self.setting) {
            _ if !has_hooks => HookStep::Skip,
            (HookWish::Skip | HookWish::SkipAlways, _) | (HookWish::AsSet, MergeHooks::Off) => {
                HookStep::Skip
            }
            _ if is_own && self.agents_have_users => HookStep::AskWithout,
            (HookWish::Run, _) | (HookWish::AsSet, MergeHooks::Run) => HookStep::Run,
            (HookWish::AsSet, MergeHooks::Ask) => HookStep::Ask,
        }
    }
}

/// The hook that judges the message of a commit.
pub const COMMIT_MSG: &str = "commit-msg";

/// Returns the names of the hooks that judge a new commit, in the order in which git runs them.
/// Without a work tree at the branch, there are no files that the first one could look at.
pub const fn hooks_of_commit(is_merge: bool, has_work_tree: bool) -> &'static [&'static str] {
    match (has_work_tree, is_merge) {
        (false, _) => &[COMMIT_MSG],
        (true, true) => &["pre-merge-commit", COMMIT_MSG],
        (true, false) => &["pre-commit", COMMIT_MSG],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_run_only_by_the_setting_or_by_the_wish_of_a_person() {
        use HookStep::{Ask, AskWithout, Run, Skip};
        // The steps for no wish, `--run-hooks`, `--no-hooks`, and `--no-hooks --remember`.
        for (setting, agents_have_users, expected) in [
            (MergeHooks::Ask, false, [Ask, Run, Skip, Skip]),
            (MergeHooks::Run, false, [Run, Run, Skip, Skip]),
            (MergeHooks::Off, false, [Skip, Run, Skip, Skip]),
            (MergeHooks::Ask, true, [AskWithout, AskWithout, Skip, Skip]),
            (MergeHooks::Run, true, [AskWithout, AskWithout, Skip, Skip]),
            (MergeHooks::Off, true, [Skip, AskWithout, Skip, Skip]),
        ] {
            let wishes = [HookWish::AsSet, HookWish::Run, HookWish::Skip, HookWish::SkipAlways];
            let rules = wishes.map(|wish| HookRule {
                setting,
                wish,
                agents_have_users,
                ..HookRule::default()
            });
            assert_eq!(rules.map(|rule| rule.step(true, true)), expected, "{setting}");
            assert_eq!(rules.map(|rule| rule.step(false, true)), [Skip; 4], "{setting}");
            // The repository of another user is no more to an agent than that user.
            let usual = rules.map(|rule| HookRule { agents_have_users: false, ..rule });
            let usual = usual.map(|rule| rule.step(true, true));
            assert_eq!(rules.map(|rule| rule.step(true, false)), usual, "{setting}");
        }
    }

    #[test]
    fn only_hooks_that_judge_are_named() {
        assert_eq!(hooks_of_commit(true, true), ["pre-merge-commit", "commit-msg"]);
        assert_eq!(hooks_of_commit(false, true), ["pre-commit", "commit-msg"]);
        assert_eq!(hooks_of_commit(true, false), ["commit-msg"]);
        assert_eq!(hooks_of_commit(false, false), ["commit-msg"]);
    }
}
