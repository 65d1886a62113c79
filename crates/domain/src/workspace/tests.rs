use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::TaskStatus;
use crate::task::NewTask;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const KEEP: Duration = Duration::from_secs(100);

fn id<T: std::str::FromStr<Err = crate::id::InvalidId>>(text: &str) -> T {
    text.parse().expect("an id")
}

fn task(name: &str, parent: Option<&str>, assignee: &str) -> Task {
    let new = NewTask {
        status: TaskStatus::Done,
        assignee: Some(id(assignee)),
        parent: parent.map(id),
        ..NewTask::new(id("prj"), "a title")
    };
    let short_id = "SHOP-1".parse().expect("a short id");
    Task { revision: 1, ..new.to_task(id(name), short_id, NOW).expect("a short title") }
}

fn workspace() -> Workspace {
    Workspace::wanted(id("wsp"), id("prj"), id("tsk"), "agents/x-1".to_owned(), NOW)
}

fn prepared() -> WorkspaceReport {
    WorkspaceReport::Prepared(Prepared {
        branch: "agents/x-1".to_owned(),
        base_ref: Some("refs/heads/main".to_owned()),
        base_commit: Some("1234".to_owned()),
        subdirectory: String::new(),
    })
}

/// Returns the report that the content after the last launch of `workspace` is kept.
fn kept(workspace: &Workspace, content: Content) -> WorkspaceReport {
    let chosen = content.chosen.clone();
    WorkspaceReport::Kept { launch: workspace.launch.clone(), content: Box::new(content), chosen }
}

#[test]
fn a_decision_about_branches_outlives_a_keeping_that_began_before_it() {
    let by = "crd".parse().unwrap();
    let ready =
        |content| Workspace { state: WorkspaceState::Ready, content: Some(content), ..workspace() };
    let with = |chosen: Option<&str>, dropped: &[&str]| Content {
        chosen: chosen.map(str::to_owned),
        dropped: dropped.iter().map(|it| (*it).to_owned()).collect(),
        ..Content::default()
    };
    let kept = |content: Content, chosen: Option<&str>| WorkspaceReport::Kept {
        launch: None,
        content: Box::new(Content { disk_bytes: 7, ..content }),
        chosen: chosen.map(str::to_owned),
    };
    let is_taken =
        |before: Content, report| ready(before).on(report, &by).content.unwrap().disk_bytes == 7;
    assert!(is_taken(with(Some("a"), &["x"]), kept(with(Some("a"), &["x"]), Some("a"))));
    assert!(!is_taken(with(Some("a"), &[]), kept(with(None, &[]), None)));
    assert!(!is_taken(with(None, &["x"]), kept(with(None, &[]), None)));
    // The work went on elsewhere since the choice, so that it is to be made once more.
    let undecided = Content { is_undecided: true, ..with(None, &[]) };
    assert!(is_taken(with(Some("a"), &[]), kept(undecided, Some("a"))));
}

fn proved(proof: Option<&str>) -> Content {
    Content { proof: proof.map(str::to_owned), ..Content::default() }
}

/// Returns the workspace after its content was kept as a whole.
fn after_kept(workspace: Workspace) -> Workspace {
    let report = kept(&workspace, proved(Some("p")));
    workspace.on(report, &id("crd"))
}

#[test]
fn parts_of_the_same_agent_use_the_workspace_of_the_task_above() {
    let top = task("top", None, "one");
    let mine = task("mine", Some("top"), "one");
    let theirs = task("theirs", Some("mine"), "two");
    let below = task("below", Some("theirs"), "two");
    let graph: TaskGraph = [&top, &mine, &theirs, &below].into_iter().cloned().collect();
    assert_eq!(owner(&mine, &graph).id, top.id);
    assert_eq!(owner(&below, &graph).id, theirs.id);
    assert_eq!(owner(&top, &graph).id, top.id);
}

#[test]
fn late_reports_change_nothing() {
    let by: CoordinatorId = id("crd");
    let ready = workspace().on(prepared(), &by);
    assert_eq!(ready.state, WorkspaceState::Ready);
    assert_eq!(ready.clone().on(prepared(), &by), ready);
    let used = ready.claimed(id("lch"));
    assert_eq!(used.clone().on(prepared(), &by), used);
    assert_eq!(used.clone().on(WorkspaceReport::Removed, &by), used);
    let removed = after_kept(used.clone()).on(WorkspaceReport::Removed, &by);
    assert_eq!(removed.state, WorkspaceState::Removed);
    assert_eq!(removed.clone().on(kept(&removed, proved(None)), &by), removed);
    let again = after_kept(used.clone()).claimed(id("lch_2"));
    assert_eq!(again.clone().on(kept(&used, proved(Some("p"))), &by), again, "it is in use");
}

#[test]
fn a_person_decides_about_a_broken_workspace() {
    let by: CoordinatorId = id("crd");
    let broken = || WorkspaceReport::Broken { reason: "no git".to_owned() };
    let never_made = workspace().on(broken(), &by);
    assert_eq!(never_made.state, WorkspaceState::Broken);
    assert_eq!(never_made.retried(false).state, WorkspaceState::Wanted);
    let used = workspace().on(prepared(), &by).claimed(id("lch")).on(broken(), &by);
    assert_eq!(used.retried(false).state, WorkspaceState::InUse, "its content is kept first");
}

#[test]
fn a_workspace_whose_folder_is_gone_is_made_again_from_what_was_kept() {
    let by: CoordinatorId = id("crd");
    let used = after_kept(workspace().on(prepared(), &by).claimed(id("lch")));
    let gone = used.claimed(id("lch_2")).on(WorkspaceReport::Broken { reason: "gone".into() }, &by);
    let wanted = gone.retried(true);
    assert_eq!(wanted.state, WorkspaceState::Wanted);
    let restores = wanted.restores().expect("its content was kept");
    assert_eq!(restores.base_commit.as_deref(), Some("1234"));
    assert_eq!(wanted.on(prepared(), &by).state, WorkspaceState::Ready);
    let in_part = Workspace { content: Some(Content::default()), ..workspace() };
    assert_eq!(in_part.on(prepared(), &by).state, WorkspaceState::InUse, "it is kept anew");
}

#[test]
fn a_ready_workspace_is_made_again_only_if_its_folder_is_gone() {
    let by: CoordinatorId = id("crd");
    let ready = after_kept(workspace().on(prepared(), &by).claimed(id("lch")));
    assert_eq!(ready.clone().retried(true).state, WorkspaceState::Wanted);
    assert_eq!(ready.retried(false).state, WorkspaceState::Ready);
    let used = workspace().on(prepared(), &by).claimed(id("lch"));
    assert_eq!(used.retried(true).state, WorkspaceState::InUse, "its launch tells what it found");
}

#[test]
fn a_removed_workspace_comes_back_and_stays_for_its_whole_time() {
    let by: CoordinatorId = id("crd");
    let used = after_kept(workspace().on(prepared(), &by).claimed(id("lch")));
    let removed = Workspace { discarded_at: Some(NOW), ..used }.on(WorkspaceReport::Removed, &by);
    let late = NOW + 10 * KEEP;
    let again = removed.clone().again(id("wsp_2"), late);
    assert_eq!((again.state, again.discarded_at), (WorkspaceState::Wanted, None));
    assert_eq!(again.base_commit.as_deref(), Some("1234"), "the diff shows all of the work");
    let again = again.on(prepared(), &by);
    let done = task("tsk", None, "one");
    assert!(!again.may_be_removed(&done, Some(KEEP), late));
    assert!(again.may_be_removed(&done, Some(KEEP), late + KEEP));
    let merged = removed.clone().merged("5678".to_owned(), false);
    assert_eq!(
        merged.again(id("wsp_3"), late).base_commit.as_deref(),
        Some("1234"),
        "also after a merge"
    );
}

#[test]
fn a_clock_that_is_set_back_removes_nothing_early() {
    let by: CoordinatorId = id("crd");
    let ready = after_kept(workspace().on(prepared(), &by).claimed(id("lch")));
    let year = Duration::from_hours(365 * 24);
    let later = NOW + year;
    let done = Task { status_since: later, ..task("tsk", None, "one") };
    for now in [NOW, later] {
        assert!(!ready.may_be_removed(&done, Some(KEEP), now), "{now:?}");
    }
    assert!(ready.may_be_removed(&done, Some(KEEP), later + KEEP));
}

#[test]
fn a_merge_without_the_files_in_no_commit_removes_no_clone() {
    let by: CoordinatorId = id("crd");
    let kept = after_kept(workspace().on(prepared(), &by).claimed(id("lch")));
    let content = kept.content.clone().map(|content| Content { n_uncommitted: 2, ..content });
    let ready = Workspace { content, ..kept };
    let done = task("tsk", None, "one");
    let may_be_removed =
        |with| ready.clone().merged("5678".to_owned(), with).may_be_removed(&done, None, NOW);
    assert_eq!([false, true].map(may_be_removed), [false, true]);
}

#[test]
fn a_workspace_whose_files_were_merged_is_not_without_work() {
    let kept = |content| Workspace { content: Some(content), ..workspace() };
    let only_files = kept(Content { n_uncommitted: 2, ..Content::default() });
    assert_eq!(only_files.work_kind(), WorkKind::OnlyFiles);
    assert_eq!(only_files.merged("5678".to_owned(), true).work_kind(), WorkKind::Commits);
    assert_eq!(kept(Content::default()).work_kind(), WorkKind::Nothing);
    let all = Content { n_commits: 1, n_files: 1, n_uncommitted: 2, ..Content::default() };
    assert_eq!(kept(all).work_kind(), WorkKind::Commits);
}

#[test]
fn only_a_clone_that_no_launch_used_goes_with_its_deleted_task_without_being_kept() {
    let by: CoordinatorId = id("crd");
    let wanted = workspace();
    assert_eq!(wanted.clone().on(WorkspaceReport::Removed, &by), wanted, "its task is there");
    let ready = wanted.clone().on(prepared(), &by);
    for unused in [wanted, ready.clone()] {
        assert!(!unused.is_unused_orphan(), "its task is there");
        let orphan = unused.orphaned(NOW);
        assert!(orphan.is_unused_orphan());
        let broken = WorkspaceReport::Broken { reason: "it cannot be made".to_owned() };
        let orphan = orphan.on(broken, &by);
        assert!(orphan.is_unused_orphan(), "it still goes: {:?}", orphan.state);
        let removed = orphan.on(WorkspaceReport::Removed, &by);
        assert_eq!((removed.state, removed.content), (WorkspaceState::Removed, None));
    }
    let used = ready.claimed(id("lch"));
    for used in [used.clone(), after_kept(used)] {
        assert!(!used.orphaned(NOW).is_unused_orphan());
    }
}

#[test]
fn a_kept_state_is_given_up_only_by_a_person_and_after_its_files() {
    let by: CoordinatorId = id("crd");
    let done = task("tsk", None, "one");
    let open = Task { status: TaskStatus::Todo, ..done.clone() };
    let used = workspace().on(prepared(), &by).claimed(id("lch"));
    assert!(used.clone().given_up(&done, NOW).is_err(), "it is not kept yet");
    assert!(workspace().given_up(&done, NOW).is_err(), "it is being made");
    let ready = after_kept(used);
    assert!(ready.clone().given_up(&open, NOW).is_err());
    let left_out = vec!["pipe: not a file".to_owned()];
    let in_part = kept(&ready, Content { left_out, ..Content::default() });
    let refused = ready.clone().on(in_part, &by).given_up(&done, NOW).expect_err("not all is kept");
    assert!(refused.contains("pipe"), "{refused}");
    let given_up = ready.given_up(&done, NOW).expect("it may be");
    assert_eq!(given_up.may_be_forgotten(), None, "its files are there");
    assert!(given_up.may_be_removed(&done, None, NOW));
    let used_again = given_up.clone().claimed(id("lch_2"));
    assert_eq!(used_again.forever_at, None, "a launch takes it back");
    let removed = given_up.on(WorkspaceReport::Removed, &by);
    assert_eq!(removed.may_be_forgotten(), Some(NOW));
    let forgotten = removed.on(WorkspaceReport::Forgotten, &by);
    assert_eq!((&forgotten.content, forgotten.may_be_forgotten()), (&None, None));
}

#[test]
fn a_launch_takes_back_that_the_result_was_merged_or_discarded() {
    let ready = workspace().on(prepared(), &id("crd"));
    let merged_commit = Some("1234".to_owned());
    let over = Workspace { merged_commit, discarded_at: Some(NOW), ..ready };
    let kept = after_kept(over.claimed(id("lch")));
    assert_eq!((&kept.merged_commit, kept.discarded_at), (&None, None));
    assert!(!kept.may_be_removed(&task("tsk", None, "one"), Some(KEEP), NOW));
}

/// One step of the life of a workspace.
#[derive(Debug, Clone, Copy)]
enum Step {
    Claim,
    Prepared,
    Failed,
    Broken,
    Retry,
    RetryGone,
    Kept,
    KeptInPart,
    Discard,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::Claim),
        Just(Step::Prepared),
        Just(Step::Failed),
        Just(Step::Broken),
        Just(Step::Retry),
        Just(Step::RetryGone),
        Just(Step::Kept),
        Just(Step::KeptInPart),
        Just(Step::Discard),
        Just(Step::Wait),
    ];
    proptest::collection::vec(step, 0..30)
}

proptest! {
    /// The files may be removed only if they were not used since all of them were kept.
    #[test]
    fn no_order_of_events_removes_what_was_not_kept(steps in steps()) {
        let by: CoordinatorId = id("crd");
        let mut workspace = workspace();
        let mut is_kept = false;
        let mut now = NOW;
        for step in steps {
            workspace = match step {
                // The claim checks the state.
                Step::Claim if workspace.state == WorkspaceState::Ready => {
                    is_kept = false;
                    workspace.claimed(id("lch"))
                }
                Step::Claim => workspace,
                Step::Prepared => workspace.on(prepared(), &by),
                Step::Failed => workspace.on(WorkspaceReport::Failed { reason: String::new() }, &by),
                Step::Broken => workspace.on(WorkspaceReport::Broken { reason: String::new() }, &by),
                Step::Retry => workspace.retried(false),
                Step::RetryGone => {
                    let after = workspace.clone().retried(true);
                    if after.state != workspace.state {
                        // All that there is then comes from the kept state.
                        is_kept = after.content.as_ref().is_some_and(|found| found.proof.is_some());
                    }
                    after
                }
                Step::Kept | Step::KeptInPart => {
                    let is_whole = matches!(step, Step::Kept);
                    let after = workspace.clone().on(kept(&workspace, proved(is_whole.then_some("p"))), &by);
                    if after.content != workspace.content {
                        is_kept = is_whole;
                    } else if matches!(workspace.state, WorkspaceState::InUse) && is_whole {
                        is_kept = true;
                    }
                    after
                }
                Step::Discard => Workspace { discarded_at: Some(now), ..workspace },
                Step::Wait => {
                    now = now + KEEP;
                    workspace
                }
            };
            let may = workspace.may_be_removed(&task("tsk", None, "one"), Some(KEEP), now);
            prop_assert!(!may || is_kept, "{workspace:?}");
        }
    }
}

#[test]
fn a_result_is_published_once_and_again_when_it_has_more() {
    let by: CoordinatorId = id("crd");
    let content = |head: &str| {
        let head_commit = Some(head.to_owned());
        Content { head_commit, n_commits: 1, ..Content::default() }
    };
    let done = task("tsk", None, "one");
    let open = Task { status: TaskStatus::InProgress, ..done.clone() };
    let ready = workspace().on(prepared(), &by);
    assert!(!ready.is_to_be_published(&done), "there is no result");
    let used = ready.claimed(id("lch"));
    let report = kept(&used, content("1234"));
    let first = used.clone().on(report, &by);
    assert!(first.is_to_be_published(&done) && !first.is_to_be_published(&open));
    let cancelled = Task { status: TaskStatus::Cancelled, ..done.clone() };
    assert!(!first.is_to_be_published(&cancelled));
    let discarded = Workspace { discarded_at: Some(NOW), ..first.clone() };
    assert!(!discarded.is_to_be_published(&done));
    assert!(!first.clone().merged("5678".to_owned(), false).is_to_be_published(&done));
    let published = Published { branch: "agents/x-1".to_owned(), commit: "1234".to_owned() };
    let report = WorkspaceReport::Published(published.clone());
    let late = used.clone().on(report.clone(), &by);
    assert_eq!((late.state, late.published()), (used.state, Some(published.clone())));
    let first = first.on(report, &by);
    assert_eq!(first.published(), Some(published.clone()));
    assert!(!first.is_to_be_published(&done));
    let used = first.claimed(id("lch_2"));
    let report = kept(&used, content("9abc"));
    let more = used.on(report, &by);
    assert!(more.is_to_be_published(&done));
    // The clone that is made again knows the branch.
    assert_eq!(more.again(id("wsp_2"), NOW).published(), Some(published));
}
