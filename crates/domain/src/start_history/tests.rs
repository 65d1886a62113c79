use proptest::prelude::*;

use super::*;
use crate::account::Parked;
use crate::activity::FailureClass;
use crate::key::Purpose;
use crate::workspace::WorkspaceMode;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LIMIT: StartLimit = StartLimit { failures: 3, interval: Duration::from_mins(10) };
const AGING: Duration = Duration::from_hours(1);
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_mins(5) };

fn key() -> InstanceKey {
    InstanceKey::new("agt".parse().expect("an id"), "prj".parse().expect("an id"), Purpose::Task)
}

fn ready() -> StartFacts {
    StartFacts {
        workspace_mode: WorkspaceMode::Shared,
        clone: None,
        key: key(),
        agent: Some((AgentStatus::Active, "claude".to_owned())),
        project: Some((ProjectStatus::Active, PathBuf::from("dir"))),
        is_assigned: true,
        waiting_since: Some(NOW),
        task: None,
        open: None,
        record: StartHistory::new(key()),
        account: Account::new("claude".to_owned()),
        is_paused: false,
    }
}

fn open(state: LaunchState) -> OpenLaunch {
    OpenLaunch { id: "lch".parse().expect("an id"), state }
}

/// Returns the record after a failure of a launch that began and ended so many seconds from `NOW`.
fn failed(record: StartHistory, began: u64, ended: u64) -> StartHistory {
    let at = |seconds| NOW + Duration::from_secs(seconds);
    record.after_end(Verdict::Failure, at(began), at(ended), LIMIT)
}

#[test]
fn a_start_has_the_priority_of_its_task_and_is_urgent_after_a_long_wait() {
    let id: TaskId = "tsk".parse().expect("an id");
    let task = |priority, since| {
        let id = id.clone();
        TaskToStart { id, priority, since, is_untried: false }
    };
    let check = |facts: &StartFacts, waited: Duration, expected: (Priority, Timestamp)| {
        let candidate = facts.clone().candidate(BACKOFF, AGING, NOW + waited).expect("work");
        assert_eq!((candidate.priority, candidate.waiting_since), expected);
    };
    let low = StartFacts { task: Some(task(Priority::Low, NOW)), ..ready() };
    check(&low, Duration::ZERO, (Priority::Low, NOW));
    check(&low, Duration::from_mins(59), (Priority::Low, NOW));
    check(&low, AGING, (Priority::Urgent, NOW));
    // A launch of the key ended meanwhile, so the start has waited only since then.
    let later = NOW + Duration::from_mins(50);
    let record = StartHistory { last_end_at: Some(later), ..StartHistory::new(key()) };
    check(&StartFacts { record, ..low.clone() }, AGING, (Priority::Low, later));
    // The clock was set back.
    let record = StartHistory { last_end_at: Some(NOW + 2 * AGING), ..StartHistory::new(key()) };
    check(&StartFacts { record, ..low }, Duration::ZERO, (Priority::Low, NOW));
    check(&ready(), Duration::ZERO, (Priority::Medium, NOW));
}

#[track_caller]
fn check(facts: &StartFacts, expected: StartReason) {
    assert_eq!(facts.reason(BACKOFF, NOW), expected);
}

#[test]
fn each_rule_has_its_reason() {
    check(&ready(), StartReason::Ready);
    check(&StartFacts { agent: None, ..ready() }, StartReason::Unknown);
    check(&StartFacts { project: None, ..ready() }, StartReason::Unknown);
    check(&StartFacts { is_assigned: false, ..ready() }, StartReason::NotAssigned);
    check(
        &StartFacts { agent: Some((AgentStatus::Inactive, String::new())), ..ready() },
        StartReason::Inactive,
    );
    check(
        &StartFacts { project: Some((ProjectStatus::Archived, PathBuf::new())), ..ready() },
        StartReason::Inactive,
    );
    check(&StartFacts { waiting_since: None, ..ready() }, StartReason::NoWork);
    check(&StartFacts { is_paused: true, ..ready() }, StartReason::Paused);
    check(&StartFacts { record: StartHistory::new(key()).held(NOW), ..ready() }, StartReason::Held);
    let failed = self::failed(StartHistory::new(key()), 0, 0);
    check(&StartFacts { record: failed, ..ready() }, StartReason::Backoff);
}

/// Returns an account that is parked until five minutes from `NOW`.
fn parked() -> Account {
    let until = NOW + Duration::from_mins(5);
    let parked = Parked {
        class: FailureClass::Quota,
        since: NOW,
        first: NOW,
        until,
        n_failures: 1,
        probe: None,
    };
    Account { parked: Some(parked), ..Account::new("claude".to_owned()) }
}

#[test]
fn a_parked_account_keeps_its_pairs_until_its_time_and_then_one_tries_it() {
    let facts = StartFacts { account: parked(), ..ready() };
    check(&facts, StartReason::Parked);
    let until = NOW + Duration::from_mins(5);
    let waits = facts.clone().candidate(BACKOFF, AGING, NOW).expect("work");
    assert_eq!((waits.until, waits.is_probe), (Some(until), false));
    let tries = facts.candidate(BACKOFF, AGING, until).expect("work");
    assert_eq!((tries.reason, tries.until, tries.is_probe), (StartReason::Ready, None, true));
    assert!(!ready().candidate(BACKOFF, AGING, NOW).expect("work").is_probe);
}

#[test]
fn an_end_by_the_account_says_nothing_of_the_pair() {
    let failed = failed(StartHistory::new(key()), 0, 1);
    assert_eq!(
        failed.clone().after_end(Verdict::AccountFailed, NOW, NOW + Duration::from_secs(9), LIMIT),
        failed
    );
}

#[test]
fn a_pair_that_cannot_work_as_it_is_configured_waits_for_a_person_at_once() {
    let unlimited = StartLimit { failures: 0, ..LIMIT };
    let record = StartHistory::new(key()).after_end(Verdict::Misconfigured, NOW, NOW, unlimited);
    check(&StartFacts { record: record.clone(), ..ready() }, StartReason::Misconfigured);
    check(&StartFacts { record: record.released(), ..ready() }, StartReason::Ready);
}

#[test]
fn a_reload_ends_only_the_suspension_of_a_pair_that_was_misconfigured() {
    let misconfigured = StartHistory::new(key()).after_end(Verdict::Misconfigured, NOW, NOW, LIMIT);
    let record = misconfigured.clone().reloaded();
    assert_eq!((record.n_failures, record.failed_at.len()), (0, 0));
    check(&StartFacts { record, ..ready() }, StartReason::Ready);
    let held = misconfigured.held(NOW).reloaded();
    assert_eq!((held.held_since, held.suspended_since), (Some(NOW), None));
    let often =
        (0..3).fold(StartHistory::new(key()), |record, n| failed(record, 100 * n, 100 * n + 1));
    assert_eq!(often.clone().reloaded(), often);
}

#[test]
fn an_open_launch_counts_before_everything_that_may_change() {
    let starting = open(LaunchState::Starting { deadline: NOW });
    check(&StartFacts { open: Some(starting), is_paused: true, ..ready() }, StartReason::Starting);
    check(
        &StartFacts { open: Some(open(LaunchState::Ending)), waiting_since: None, ..ready() },
        StartReason::Stopping,
    );
}

#[test]
fn a_candidate_is_judged_by_its_server() {
    let failed = self::failed(StartHistory::new(key()), 0, 0);
    let waits = StartFacts { record: failed.clone(), ..ready() }
        .candidate(BACKOFF, AGING, NOW)
        .expect("work");
    assert_eq!((waits.reason, waits.until), (StartReason::Backoff, BACKOFF.until(&failed, NOW)));
    let held = StartFacts { record: failed.held(NOW), ..ready() }
        .candidate(BACKOFF, AGING, NOW)
        .expect("work");
    assert_eq!((held.reason, held.until), (StartReason::Held, None));
    assert_eq!(StartFacts { waiting_since: None, ..ready() }.candidate(BACKOFF, AGING, NOW), None);
}

#[test]
fn failures_add_up_until_something_else_happens() {
    let failed = self::failed(StartHistory::new(key()), 0, 0);
    let failed = self::failed(failed, 0, 0);
    assert_eq!(failed.n_failures, 2);
    let until = NOW + jittered(Duration::from_secs(2), &key());
    assert_eq!(BACKOFF.until(&failed, NOW), Some(until));
    assert_eq!(BACKOFF.until(&failed, until), None);
    assert_eq!(BACKOFF.until(&failed.clone().after_end(Verdict::Fine, NOW, NOW, LIMIT), NOW), None);
    assert_eq!(BACKOFF.until(&failed.released(), NOW), None);
}

#[test]
fn an_end_in_the_future_holds_nobody_back() {
    let failed = failed(StartHistory::new(key()), 32_400_000, 32_400_000);
    assert_eq!(BACKOFF.until(&failed, NOW), None);
}

#[test]
fn too_many_failures_in_a_short_time_suspend_a_pair_until_a_person_says_otherwise() {
    let often =
        (0..3).fold(StartHistory::new(key()), |record, n| failed(record, 100 * n, 100 * n + 1));
    assert_eq!(often.suspended_since, Some(NOW + Duration::from_secs(201)));
    check(&StartFacts { record: often.clone(), ..ready() }, StartReason::Suspended);
    check(
        &StartFacts { record: often.clone().after_end(Verdict::Fine, NOW, NOW, LIMIT), ..ready() },
        StartReason::Suspended,
    );
    check(&StartFacts { record: often.released(), ..ready() }, StartReason::Ready);
    let seldom =
        (0..9).fold(StartHistory::new(key()), |record, n| failed(record, 301 * n, 301 * n + 1));
    assert_eq!((seldom.n_failures, seldom.suspended_since), (9, None));
    let unlimited = StartLimit { failures: 0, ..LIMIT };
    let any = (0..99).fold(StartHistory::new(key()), |record, _| {
        record.after_end(Verdict::Failure, NOW, NOW, unlimited)
    });
    assert_eq!(
        (any.suspended_since, any.failed_at.len()),
        (None, 0),
        "nothing is kept that nobody counts"
    );
}

#[test]
fn a_stable_run_begins_the_row_anew() {
    let twice = failed(failed(StartHistory::new(key()), 0, 1), 2, 3);
    let late = failed(twice, 4, 700);
    assert_eq!((late.n_failures, late.failed_at.len(), late.suspended_since), (1, 1, None));
}

#[test]
fn no_pair_waits_longer_than_the_maximum() {
    for name in ["a", "b", "c", "d", "agt_build", "reviewer"] {
        let key = InstanceKey { agent: name.parse().expect("an id"), ..key() };
        let record =
            StartHistory { n_failures: 40, last_end_at: Some(NOW), ..StartHistory::new(key) };
        assert_eq!(BACKOFF.until(&record, NOW), Some(NOW + BACKOFF.max), "{name}");
    }
}

#[test]
fn pairs_that_failed_together_wait_for_different_times() {
    let other = InstanceKey { purpose: Purpose::Chat, ..key() };
    let delay = Duration::from_mins(1);
    assert_ne!(jittered(delay, &key()), jittered(delay, &other));
}

proptest! {
    #[test]
    fn jitter_adds_a_quarter_at_most_and_keeps_the_order(n_failures in 0u32..100, name in "[a-z]{1,9}") {
        let key = InstanceKey { agent: name.parse().expect("an id"), ..key() };
        let less = BACKOFF.delay(n_failures);
        let more = BACKOFF.delay(n_failures + 1);
        prop_assert!(jittered(less, &key) <= jittered(more, &key));
        prop_assert!(less <= jittered(less, &key) && jittered(less, &key) <= less + less / 4);
    }

    #[test]
    fn the_delay_grows_and_is_bounded(n_failures in 0u32..100) {
        let less = BACKOFF.delay(n_failures);
        let more = BACKOFF.delay(n_failures + 1);
        prop_assert!(less <= more && more <= BACKOFF.max);
    }
}

#[test]
fn a_key_with_clones_starts_when_the_clone_of_its_next_task_is_ready() {
    let task: TaskId = "tsk".parse().expect("an id");
    let workspace = |state| {
        let id = "wsp".parse().expect("an id");
        let project = "prj".parse().expect("an id");
        let branch = "agents/prj-1".to_owned();
        let at = Timestamp::from_millis(0);
        Workspace { state, ..Workspace::wanted(id, project, task.clone(), branch, at) }
    };
    let with_room = |workspace, no_room| StartFacts {
        clone: Some(NeededClone { task: task.clone(), workspace, no_room, to_choose: None }),
        ..ready()
    };
    let with = |workspace| with_room(workspace, None);
    check(&with(None), StartReason::PreparingWorkspace);
    for (state, reason) in [
        (WorkspaceState::Wanted, StartReason::PreparingWorkspace),
        (WorkspaceState::InUse, StartReason::PreparingWorkspace),
        (WorkspaceState::Ready, StartReason::Ready),
        (WorkspaceState::Broken, StartReason::WorkspaceBroken),
    ] {
        check(&with(Some(workspace(state))), reason);
    }
    // Only a clone that is to be made needs disk space. The wish for one is noted in any case.
    let full = || Some("the disk is full".to_owned());
    check(&with_room(None, full()), StartReason::PreparingWorkspace);
    check(&with_room(Some(workspace(WorkspaceState::Ready)), full()), StartReason::Ready);
    let waits = with_room(Some(workspace(WorkspaceState::Wanted)), full());
    check(&waits, StartReason::WorkspaceDisk);
    let candidate = waits.candidate(BACKOFF, Duration::from_mins(1), NOW);
    assert_eq!(candidate.and_then(|candidate| candidate.detail), full());
    // A clone that is there has its results already.
    let undecided = |state| {
        let facts = with(Some(workspace(state)));
        let to_choose = Some("PRJ-1".parse().expect("a short id"));
        let clone = facts.clone.map(|clone| NeededClone { to_choose, ..clone });
        StartFacts { clone, ..ready() }
    };
    check(&undecided(WorkspaceState::Wanted), StartReason::ResultToChoose);
    check(&undecided(WorkspaceState::Ready), StartReason::Ready);
}
