//! Results of finished tasks that wait until a person has decided about them.

use serde::{Deserialize, Serialize};

use super::{Content, Workspace, WorkspaceState};
use crate::task::{Task, TaskStatus};
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// The next step of a person with the result of a finished task.
    pub enum MergeStep as "step of a merge" {
        /// Merge it.
        Merge = "merge",
        /// Choose it among several branches.
        Choose = "choose",
        /// Resolve the conflict because of which it was not merged.
        Resolve = "resolve",
        /// Look at the branches beside it, although it is merged or published, or has no commit.
        Compare = "compare",
    }
}

/// A merge that was refused, because the result and the branch change the same lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of the merge, or a fact")]
pub struct Conflict {
    /// The result; `None` if there is no commit.
    pub result: Option<String>,
    /// The branch of the source, and the commit that it was at.
    pub branch: String,
    pub commit: String,
    pub files: Vec<String>,
    pub at: Timestamp,
    /// The options of the merge, with which it can be tried again.
    #[serde(default)]
    pub squash: bool,
    #[serde(default)]
    pub rebase: bool,
    #[serde(default)]
    pub with_uncommitted: bool,
    /// The agent of the task was asked to resolve it.
    #[serde(default)]
    pub is_asked: bool,
}

impl Content {
    /// Returns the content without what a merge has found.
    #[must_use]
    pub fn as_kept(self) -> Self {
        Self { conflict: None, is_offered: false, ..self }
    }

    /// Returns the content with the conflict of the last merge, or without one.
    #[must_use]
    pub fn with_conflict(self, conflict: Option<Conflict>) -> Self {
        // An earlier version noted nothing else when it gave the source the branch.
        Self { is_offered: self.is_offered || self.conflict.is_some(), conflict, ..self }
    }

    /// Returns the conflict that the agent was asked to resolve, as long as the result has it.
    pub fn asked_conflict(&self) -> Option<&Conflict> {
        self.conflict.as_ref().filter(|conflict| conflict.is_asked)
    }

    /// Returns whether a version that did not look at branches kept it. Such a version listed no
    /// tips, and each result of a later one has a tip.
    pub fn is_of_earlier_version(&self) -> bool {
        self.tips.is_empty()
    }
}

impl Workspace {
    /// Returns whether its work was neither kept anew nor chosen since it had this content.
    pub fn is_kept_as(&self, seen: Option<&Content>) -> bool {
        self.content.clone().map(Content::as_kept) == seen.cloned().map(Content::as_kept)
    }

    /// Returns the conflict of the last merge, until the branch has moved, or the result is another
    /// one, or was merged.
    pub fn conflict(&self) -> Option<&Conflict> {
        let content = self.content.as_ref().filter(|content| !content.is_undecided)?;
        let is_settled = self.merged_commit.is_some() || self.discarded_at.is_some();
        let conflict = content.conflict.as_ref().filter(|_| !is_settled)?;
        (conflict.result == content.head_commit).then_some(conflict)
    }

    /// Returns it without its conflict, because the branch has moved; `None` if it has no conflict
    /// with `branch`, or if that is at the same commit now.
    pub fn after_move(&self, branch: &str, commit: &str) -> Option<Self> {
        let of_branch = |it: &&Conflict| it.branch == branch && it.commit != commit;
        self.conflict().filter(of_branch)?;
        let content = self.content.clone()?.with_conflict(None);
        Some(Self { content: Some(content), ..self.clone() })
    }

    /// Returns the next step with the result of its task; `None` if a person has decided, if it is
    /// published, or if there is none, and nothing is beside it. `is_at_forge` says whether a forge
    /// has or gets the result.
    pub fn merge_step(&self, task: &Task, is_at_forge: bool) -> Option<MergeStep> {
        let content = self.content.as_ref()?;
        let is_kept = !matches!(self.state, WorkspaceState::InUse | WorkspaceState::Broken);
        let is_finished = task.status == TaskStatus::Done && task.archived_at.is_none();
        if !is_kept || !is_finished || self.discarded_at.is_some() {
            return None;
        }
        let beside = content.open_others().next().map(|_| MergeStep::Compare);
        let is_only_files = content.is_only_files();
        if self.merged_commit.is_some() || is_at_forge && !is_only_files {
            return beside;
        }
        if content.is_undecided {
            return Some(MergeStep::Choose);
        }
        if self.conflict().is_some() {
            return Some(MergeStep::Resolve);
        }
        let published = self.published_commit.as_ref().filter(|_| !content.is_offered);
        let is_published = published.is_some() && published == content.head_commit.as_ref();
        let has_result = content.n_commits > 0 && !is_published;
        if has_result || is_only_files { Some(MergeStep::Merge) } else { beside }
    }
}

/// A result of a finished task that waits for a person.
#[derive(Debug, Clone)]
pub struct UnmergedResult {
    pub workspace: Workspace,
    pub task: Task,
    pub step: MergeStep,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::NewTask;
    use crate::workspace::{OtherTip, Published, WorkspaceReport};

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn task(status: TaskStatus) -> Task {
        let new = NewTask { status, ..NewTask::new("shop".parse().unwrap(), "Sell tea") };
        new.to_task("tsk".parse().unwrap(), "SHOP-1".parse().unwrap(), AT).unwrap()
    }

    fn conflict(result: &str) -> Conflict {
        Conflict {
            result: Some(result.to_owned()),
            branch: "main".to_owned(),
            commit: "1234".to_owned(),
            files: vec!["main.txt".to_owned()],
            at: AT,
            squash: false,
            rebase: true,
            with_uncommitted: false,
            is_asked: false,
        }
    }

    /// Returns the workspace of a finished task with this content.
    fn workspace(content: Content) -> Workspace {
        let Task { id: task, project, .. } = task(TaskStatus::Done);
        let id = "wsp".parse().unwrap();
        let wanted = Workspace::wanted(id, project, task, "agents/shop-1".to_owned(), AT);
        Workspace { state: WorkspaceState::Ready, content: Some(content), ..wanted }
    }

    fn content() -> Content {
        Content { head_commit: Some("a".to_owned()), n_commits: 1, ..Content::default() }
    }

    /// Returns the workspace after this content was kept.
    fn kept(workspace: Workspace, content: Content) -> Workspace {
        let launch = workspace.launch.clone();
        let report = WorkspaceReport::Kept { launch, content: Box::new(content), chosen: None };
        workspace.on(report, &"crd".parse().unwrap())
    }

    #[test]
    fn a_result_waits_until_it_is_merged_discarded_published_or_at_a_forge() {
        let result = workspace(content());
        let some = |text: &str| Some(text.to_owned());
        let published = |commit| Workspace { published_commit: some(commit), ..result.clone() };
        let in_state = |state| Workspace { state, ..result.clone() };
        let merge = Some(MergeStep::Merge);
        let tip = OtherTip { branch: None, commit: "t".to_owned(), n_commits: 1 };
        let with_more = |merged_commit, is_dropped: bool| {
            let dropped = is_dropped.then(|| tip.commit.clone()).into_iter().collect();
            let content = Content { others: vec![tip.clone()], dropped, ..content() };
            Workspace { merged_commit, ..workspace(content) }
        };
        let cases = [
            ("a result", result.clone(), merge),
            ("its files are gone", in_state(WorkspaceState::Removed), merge),
            ("its files come back", in_state(WorkspaceState::Wanted), merge),
            ("it is being kept", in_state(WorkspaceState::InUse), None),
            ("it is broken", in_state(WorkspaceState::Broken), None),
            ("no content", Workspace { content: None, ..result.clone() }, None),
            ("no commit", workspace(Content { n_commits: 0, ..content() }), None),
            ("merged", Workspace { merged_commit: some("m"), ..result.clone() }, None),
            ("discarded", Workspace { discarded_at: Some(AT), ..result.clone() }, None),
            ("published", published("a"), None),
            ("published before later work", published("b"), merge),
            ("merged, with more beside it", with_more(some("m"), false), Some(MergeStep::Compare)),
            ("merged, and the rest dropped", with_more(some("m"), true), None),
            ("not merged, with more beside it", with_more(None, false), merge),
            (
                "several results",
                workspace(Content { is_undecided: true, n_commits: 0, ..content() }),
                Some(MergeStep::Choose),
            ),
        ];
        let done = task(TaskStatus::Done);
        for (name, workspace, expected) in cases {
            assert_eq!(workspace.merge_step(&done, false), expected, "{name}");
            let has_more = workspace.content.iter().any(|it| it.open_others().next().is_some());
            let at_forge = has_more.then_some(MergeStep::Compare);
            assert_eq!(workspace.merge_step(&done, true), at_forge, "{name}, at a forge");
            for status in TaskStatus::ALL.iter().filter(|status| **status != TaskStatus::Done) {
                assert_eq!(workspace.merge_step(&task(*status), false), None, "{name}: {status}");
            }
            let archived = Task { archived_at: Some(AT), ..task(TaskStatus::Done) };
            assert_eq!(workspace.merge_step(&archived, false), None, "{name}, archived");
        }
    }

    #[test]
    fn files_in_no_commit_wait_for_a_person_if_there_is_no_more() {
        let done = task(TaskStatus::Done);
        let merge = Some(MergeStep::Merge);
        let files = workspace(Content { n_commits: 0, n_uncommitted: 3, ..content() });
        assert_eq!(files.merge_step(&done, false), merge);
        assert_eq!(files.merge_step(&done, true), merge, "a forge gets only commits");
        let published = files.content.as_ref().and_then(|content| content.head_commit.clone());
        let published = Workspace { published_commit: published, ..files.clone() };
        assert_eq!(published.merge_step(&done, false), merge);
        assert_eq!(files.clone().merged("m".to_owned(), true).merge_step(&done, false), None);
        let discarded = Workspace { discarded_at: Some(AT), ..files };
        assert_eq!(discarded.merge_step(&done, false), None);
        let empty = workspace(Content { n_commits: 1, n_uncommitted: 3, ..content() });
        assert_eq!(empty.merge_step(&done, true), merge, "its commit has no changes");
        let beside = workspace(Content { n_files: 1, n_uncommitted: 3, ..content() });
        assert_eq!(beside.merge_step(&done, true), None);
        let merged = beside.merged("m".to_owned(), false);
        assert_eq!(merged.merge_step(&done, false), None, "the merge has named them");
    }

    #[test]
    fn a_conflict_lasts_until_the_result_is_another_one_or_is_merged() {
        let done = task(TaskStatus::Done);
        let with = |content| Content { conflict: Some(conflict("a")), ..content };
        let refused = workspace(with(content()));
        assert_eq!(refused.merge_step(&done, false), Some(MergeStep::Resolve));
        // A refused merge gives the source the result as a branch.
        let published = Workspace { published_commit: Some("a".to_owned()), ..refused.clone() };
        assert_eq!(published.merge_step(&done, false), Some(MergeStep::Resolve));
        let other = with(Content { head_commit: Some("b".to_owned()), ..content() });
        assert_eq!(workspace(other).merge_step(&done, false), Some(MergeStep::Merge));
        let undecided = with(Content { is_undecided: true, ..content() });
        assert_eq!(workspace(undecided).merge_step(&done, false), Some(MergeStep::Choose));
        let merged = refused.merged("m".to_owned(), false);
        assert_eq!((merged.conflict(), merged.merge_step(&done, false)), (None, None));
        let again = Workspace { merged_commit: None, ..merged };
        assert_eq!(again.merge_step(&done, false), Some(MergeStep::Merge));
    }

    #[test]
    fn a_branch_that_a_refused_merge_gave_is_no_decision() {
        let done = task(TaskStatus::Done);
        let given = |commit: &str| Published {
            branch: "agents/shop-1".to_owned(),
            commit: commit.to_owned(),
        };
        let offered = workspace(content()).offered_as(given("a"));
        assert_eq!(offered.published(), Some(given("a")));
        let by = "crd".parse().unwrap();
        let reported = offered.clone().on(WorkspaceReport::Published(given("a")), &by);
        let published = offered.clone().published_as(given("a"));
        let again = offered.clone().again("wsp_2".parse().unwrap(), AT);
        let longer = Content { head_commit: Some("b".to_owned()), ..content() };
        let longer = kept(offered.clone(), longer);
        let cases = [
            ("refused", offered.clone(), true),
            ("refused, and kept again", kept(offered.clone(), content()), true),
            ("refused, and made again", again, true),
            ("refused before later work", longer.clone(), true),
            ("the later work is published", longer.published_as(given("b")), false),
            ("published by a person", published.clone(), false),
            ("published as the project wants", reported, false),
            ("published, and kept again", kept(published.clone(), content()), false),
            ("published, and refused after that", published.offered_as(given("a")), true),
            ("merged", offered.clone().merged("m".to_owned(), false), false),
        ];
        for (name, workspace, waits) in cases {
            let expected = waits.then_some(MergeStep::Merge);
            assert_eq!(workspace.merge_step(&done, false), expected, "{name}");
        }
        assert!(offered.is_kept_as(Some(&content())), "it does not change the content");
    }

    #[test]
    fn a_conflict_ends_when_its_branch_moves() {
        let done = task(TaskStatus::Done);
        let content = Content { conflict: Some(conflict("a")), ..content() };
        // An earlier version noted only the conflict and the commit of the branch that it gave.
        let published_commit = Some("a".to_owned());
        let refused = Workspace { published_commit, ..workspace(content) };
        assert_eq!(refused.after_move("main", "1234"), None, "it is still there");
        assert_eq!(refused.after_move("release", "5678"), None);
        let after = refused.after_move("main", "5678").unwrap();
        assert_eq!(after.content.as_ref().unwrap().conflict, None);
        assert_eq!(after.merge_step(&done, false), Some(MergeStep::Merge));
        assert_eq!(after.after_move("main", "9"), None, "that is known");
    }

    #[test]
    fn a_conflict_outlives_a_keeping_of_the_same_result() {
        let refused = |with_uncommitted| {
            let conflict = Some(Conflict { with_uncommitted, ..conflict("a") });
            workspace(Content { conflict, ..content() })
        };
        assert_eq!(kept(refused(false), content()).conflict(), Some(&conflict("a")));
        assert_eq!(kept(refused(true), content()).conflict(), None);
        let other = Content { head_commit: Some("b".to_owned()), ..content() };
        assert_eq!(kept(refused(false), other).content.unwrap().conflict, None);
        // A conflict that a merge has found does not change the content.
        assert!(refused(false).is_kept_as(Some(&content())));
        assert!(!refused(false).is_kept_as(None));
    }

    #[test]
    fn content_of_an_earlier_version_is_read_and_known_as_such() {
        let stored = "{\"head_commit\":\"a\",\"n_commits\":1,\"n_uncommitted\":0,\"n_files\":1,\
            \"n_additions\":1,\"n_deletions\":0,\"disk_bytes\":1,\"kept_commit\":\"k\",\"proof\":null,\
            \"left_out\":[]}";
        let content: Content = serde_json::from_str(stored).unwrap();
        assert!(content.is_of_earlier_version() && content.conflict.is_none());
        assert!(!content.is_offered);
        let content = Content { conflict: Some(conflict("a")), ..content };
        let stored = serde_json::to_string(&content).unwrap();
        assert_eq!(serde_json::from_str::<Content>(&stored).unwrap(), content);
        let earlier = stored.replace(",\"is_offered\":false", "");
        assert_ne!(earlier, stored);
        assert_eq!(serde_json::from_str::<Content>(&earlier).unwrap(), content);
    }
}
