//! Decides which actions the page offers for a result, and which one comes first.

use domain::Workspace;
use domain::workspace::{Conflict, Content, WorkspaceState};

/// The action that comes first. The others are in a menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Primary {
    Nothing,
    /// A person chooses a branch in the list of branches.
    Choose,
    /// The agent resolves the conflict that is shown.
    AskAgent,
    Retry,
    Keep,
    Merge,
}

/// An action in the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Merge,
    Squash,
    Rebase,
    MergeAgain,
    Publish,
    Restore,
    Keep,
    Discard,
}

/// The facts about a result that decide about its actions.
#[derive(Clone, Copy)]
pub(super) struct ResultFacts<'a> {
    pub(super) workspace: &'a Workspace,
    /// An agent is to work on the task, so that it cannot be asked for more.
    pub(super) is_in_progress: bool,
}

impl<'a> ResultFacts<'a> {
    /// Returns the action that comes first.
    pub(super) fn primary(self) -> Primary {
        if self.is_broken() {
            Primary::Retry
        } else if self.is_discarded() {
            Primary::Keep
        } else if self.is_to_choose() {
            Primary::Choose
        } else if self.conflict().is_some() {
            Primary::AskAgent
        } else if self.may_merge() && !self.is_merged() {
            Primary::Merge
        } else {
            Primary::Nothing
        }
    }

    /// Returns the other actions, in the order of the menu.
    pub(super) fn menu(self) -> Vec<Action> {
        let primary = self.primary();
        let may_merge = self.may_merge();
        let offers = [
            (Action::Merge, may_merge && primary != Primary::Merge),
            (Action::Squash, may_merge),
            (Action::Rebase, may_merge),
            (Action::MergeAgain, may_merge && self.is_merged()),
            (Action::Publish, self.may_publish()),
            (Action::Restore, self.may_restore()),
            (Action::Keep, self.is_discarded() && primary != Primary::Keep),
            (Action::Discard, self.may_discard()),
        ];
        offers.into_iter().filter_map(|(action, is_offered)| is_offered.then_some(action)).collect()
    }

    pub(super) fn is_in_use(self) -> bool {
        self.workspace.state == WorkspaceState::InUse
    }

    pub(super) fn is_broken(self) -> bool {
        self.workspace.state == WorkspaceState::Broken
    }

    pub(super) const fn is_discarded(self) -> bool {
        self.workspace.discarded_at.is_some()
    }

    pub(super) const fn is_merged(self) -> bool {
        self.workspace.merged_commit.is_some()
    }

    fn is_undecided(self) -> bool {
        self.workspace.content.as_ref().is_some_and(|content| content.is_undecided)
    }

    /// Returns whether there is something that a reader could merge now.
    pub(super) fn may_merge(self) -> bool {
        let content = self.workspace.content.as_ref();
        // Files that were merged are not counted any more. A person may bring them back after a revert.
        let is_counted = |it: &Content| it.n_commits > 0 || it.n_uncommitted > 0;
        let has_result = content.is_some_and(|it| self.is_merged() || is_counted(it));
        let is_settled = self.is_discarded() || self.is_undecided();
        has_result && !self.is_in_use() && !self.is_broken() && !is_settled
    }

    /// Returns whether a merge brings all that was merged before, also files in no commit.
    pub(super) fn repeats_merge(self) -> bool {
        let has_more = self.workspace.content.as_ref().is_some_and(|it| it.n_uncommitted > 0);
        self.is_merged() && !has_more
    }

    /// Returns the conflict that the result has, if the agent can be asked to resolve it.
    pub(super) fn conflict(self) -> Option<&'a Conflict> {
        self.workspace.conflict().filter(|_| self.may_merge() && !self.is_in_progress)
    }

    /// Returns whether a reader could decide about the branches beside the result now.
    pub(super) fn may_decide(self) -> bool {
        !self.is_in_use() && !self.is_discarded()
    }

    /// Returns whether a reader is to choose the result.
    pub(super) fn is_to_choose(self) -> bool {
        self.is_undecided() && self.may_decide()
    }

    /// Returns whether there are commits that a branch of the project's repository could get.
    fn may_publish(self) -> bool {
        self.may_merge() && self.workspace.content.as_ref().is_some_and(|it| it.n_commits > 0)
    }

    /// Returns whether its files are gone and can come back.
    fn may_restore(self) -> bool {
        self.workspace.state == WorkspaceState::Removed && self.workspace.content.is_some()
    }

    /// Returns whether there is a result that a reader could discard.
    const fn may_discard(self) -> bool {
        self.workspace.content.is_some() && !self.is_discarded()
    }
}

impl Action {
    /// Returns the last part of the address that does it.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Merge | Self::Squash | Self::Rebase | Self::MergeAgain => "merge",
            Self::Publish => "publish",
            Self::Restore => "restore",
            Self::Keep => "keep",
            Self::Discard => "discard",
        }
    }

    /// Returns the field that its button sends, and its value.
    pub(super) const fn field(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Squash => Some(("squash", "true")),
            Self::Rebase => Some(("rebase", "true")),
            Self::MergeAgain => Some(("again", "true")),
            Self::Merge | Self::Publish | Self::Restore | Self::Keep | Self::Discard => None,
        }
    }

    /// Returns the name of its symbol in the sprite.
    pub(super) const fn icon(self) -> &'static str {
        match self {
            Self::Merge | Self::Squash | Self::Rebase | Self::MergeAgain => "i-merge",
            Self::Publish => "i-branch",
            Self::Restore => "i-down",
            Self::Keep => "i-yes",
            Self::Discard => "i-close",
        }
    }

    pub(super) fn is_merge(self) -> bool {
        self.path() == "merge"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Timestamp;

    const AT: Timestamp = Timestamp::from_millis(1_000);

    /// Returns a workspace that is ready, with one commit as its result.
    fn ready() -> Workspace {
        let id = "wsp_1".parse().unwrap();
        let project = "shop".parse().unwrap();
        let task = "tsk_1".parse().unwrap();
        let wanted = Workspace::wanted(id, project, task, "agents/shop-1".to_owned(), AT);
        let content =
            Content { head_commit: Some("a".to_owned()), n_commits: 1, ..Content::default() };
        Workspace { state: WorkspaceState::Ready, content: Some(content), ..wanted }
    }

    /// Returns the workspace with changed content.
    fn with(workspace: &Workspace, change: impl FnOnce(&mut Content)) -> Workspace {
        let mut content = workspace.content.clone().unwrap();
        change(&mut content);
        Workspace { content: Some(content), ..workspace.clone() }
    }

    fn conflict() -> Conflict {
        Conflict {
            result: Some("a".to_owned()),
            branch: "main".to_owned(),
            commit: "b".to_owned(),
            files: vec!["main.txt".to_owned()],
            at: AT,
            squash: false,
            rebase: false,
            with_uncommitted: false,
            is_asked: false,
        }
    }

    const fn facts(workspace: &Workspace) -> ResultFacts<'_> {
        ResultFacts { workspace, is_in_progress: false }
    }

    #[test]
    fn one_action_comes_first_in_each_state_and_the_others_are_in_the_menu() {
        use Action::{Discard, Keep, Merge, MergeAgain, Publish, Rebase, Restore, Squash};
        let ready = ready();
        let undecided = with(&ready, |content| content.is_undecided = true);
        let in_conflict = with(&ready, |content| content.conflict = Some(conflict()));
        let unchanged = with(&ready, |content| content.n_commits = 0);
        let only_files = with(&unchanged, |content| content.n_uncommitted = 1);
        let discarded = Workspace { discarded_at: Some(AT), ..undecided.clone() };
        let merged = Workspace { merged_commit: Some("m".to_owned()), ..ready.clone() };
        let merged_files = Workspace { merged_commit: Some("m".to_owned()), ..unchanged.clone() };
        let undecided_in_use = Workspace { state: WorkspaceState::InUse, ..undecided.clone() };
        let broken = Workspace { state: WorkspaceState::Broken, ..in_conflict.clone() };
        let broken_too = Workspace { discarded_at: Some(AT), ..broken.clone() };
        let removed = Workspace { state: WorkspaceState::Removed, ..discarded.clone() };
        let in_use = Workspace { state: WorkspaceState::InUse, ..ready.clone() };
        let empty = Workspace { content: None, ..ready.clone() };
        let cases: [(&str, &Workspace, Primary, &[Action]); 14] = [
            ("ready", &ready, Primary::Merge, &[Squash, Rebase, Publish, Discard]),
            ("undecided", &undecided, Primary::Choose, &[Discard]),
            (
                "a conflict",
                &in_conflict,
                Primary::AskAgent,
                &[Merge, Squash, Rebase, Publish, Discard],
            ),
            ("no commit", &only_files, Primary::Merge, &[Squash, Rebase, Discard]),
            ("unchanged", &unchanged, Primary::Nothing, &[Discard]),
            ("discarded", &discarded, Primary::Keep, &[]),
            (
                "merged",
                &merged,
                Primary::Nothing,
                &[Merge, Squash, Rebase, MergeAgain, Publish, Discard],
            ),
            (
                "merged files",
                &merged_files,
                Primary::Nothing,
                &[Merge, Squash, Rebase, MergeAgain, Discard],
            ),
            ("broken", &broken, Primary::Retry, &[Discard]),
            ("broken and discarded", &broken_too, Primary::Retry, &[Keep]),
            ("discarded and removed", &removed, Primary::Keep, &[Restore]),
            ("in use", &in_use, Primary::Nothing, &[Discard]),
            ("undecided and in use", &undecided_in_use, Primary::Nothing, &[Discard]),
            ("nothing is kept", &empty, Primary::Nothing, &[]),
        ];
        for (what, workspace, primary, menu) in cases {
            let facts = facts(workspace);
            assert_eq!(facts.primary(), primary, "{what}");
            assert_eq!(facts.menu(), menu, "{what}");
        }
    }

    #[test]
    fn an_agent_that_is_to_work_is_not_asked_about_a_conflict() {
        let in_conflict = with(&ready(), |content| content.conflict = Some(conflict()));
        let waits = ResultFacts { is_in_progress: true, ..facts(&in_conflict) };
        assert_eq!(waits.primary(), Primary::Merge);
        assert!(waits.conflict().is_none());
    }

    #[test]
    fn a_repeated_merge_has_the_files_that_were_merged() {
        let merged = Workspace { merged_commit: Some("m".to_owned()), ..ready() };
        let with_more = with(&merged, |content| content.n_uncommitted = 1);
        assert!(facts(&merged).repeats_merge());
        assert!(!facts(&with_more).repeats_merge() && !facts(&ready()).repeats_merge());
    }

    #[test]
    fn a_reader_chooses_when_no_agent_works_and_the_result_is_not_discarded() {
        let undecided = with(&ready(), |content| content.is_undecided = true);
        assert!(facts(&undecided).is_to_choose() && !facts(&ready()).is_to_choose());
        let in_use = Workspace { state: WorkspaceState::InUse, ..undecided.clone() };
        let discarded = Workspace { discarded_at: Some(AT), ..undecided };
        for workspace in [in_use, discarded] {
            assert!(!facts(&workspace).is_to_choose() && !facts(&workspace).may_decide());
        }
    }

    #[test]
    fn the_button_of_a_merge_sends_its_option() {
        let merges = facts(&ready()).menu().into_iter().filter(|action| action.is_merge());
        let fields: Vec<_> = merges.map(Action::field).collect();
        assert_eq!(fields, [Some(("squash", "true")), Some(("rebase", "true"))]);
        assert_eq!([Action::Merge, Action::Discard].map(Action::field), [None, None]);
    }
}
