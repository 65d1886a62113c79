use proptest::prelude::*;

use super::*;
use crate::domain::key::Purpose;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_mins(5) };

fn key() -> InstanceKey {
    InstanceKey::new("agt".parse().expect("an id"), "prj".parse().expect("an id"), Purpose::Task)
}

fn ready() -> PairFacts {
    PairFacts {
        key: key(),
        agent: Some((AgentStatus::Active, "claude".to_owned())),
        project: Some((ProjectStatus::Active, PathBuf::from("dir"))),
        is_assigned: true,
        waiting_since: Some(NOW),
        open: None,
        record: PairRecord::new(key()),
        is_paused: false,
    }
}

fn open(state: LaunchState) -> OpenLaunch {
    OpenLaunch { id: "lch".parse().expect("an id"), state }
}

#[track_caller]
fn check(facts: &PairFacts, expected: StartReason) {
    assert_eq!(facts.reason(BACKOFF, NOW), expected);
}

#[test]
fn each_rule_has_its_reason() {
    check(&ready(), StartReason::Ready);
    check(&PairFacts { agent: None, ..ready() }, StartReason::Unknown);
    check(&PairFacts { project: None, ..ready() }, StartReason::Unknown);
    check(&PairFacts { is_assigned: false, ..ready() }, StartReason::NotAssigned);
    check(&PairFacts { agent: Some((AgentStatus::Inactive, String::new())), ..ready() }, StartReason::Inactive);
    check(&PairFacts { project: Some((ProjectStatus::Archived, PathBuf::new())), ..ready() }, StartReason::Inactive);
    check(&PairFacts { waiting_since: None, ..ready() }, StartReason::NoWork);
    check(&PairFacts { is_paused: true, ..ready() }, StartReason::Paused);
    check(&PairFacts { record: PairRecord::new(key()).held(NOW), ..ready() }, StartReason::Held);
    let failed = PairRecord::new(key()).after_end(Verdict::Failure, NOW);
    check(&PairFacts { record: failed, ..ready() }, StartReason::Backoff);
}

#[test]
fn an_open_launch_counts_before_everything_that_may_change() {
    let starting = open(LaunchState::Starting { deadline: NOW });
    check(&PairFacts { open: Some(starting), is_paused: true, ..ready() }, StartReason::Starting);
    check(&PairFacts { open: Some(open(LaunchState::Ending)), waiting_since: None, ..ready() }, StartReason::Stopping);
}

#[test]
fn a_candidate_is_judged_by_its_server() {
    let failed = PairRecord::new(key()).after_end(Verdict::Failure, NOW);
    let waits = PairFacts { record: failed.clone(), ..ready() }.candidate(BACKOFF, NOW).expect("work");
    assert_eq!((waits.reason, waits.until), (StartReason::Backoff, BACKOFF.until(&failed, NOW)));
    let held = PairFacts { record: failed.held(NOW), ..ready() }.candidate(BACKOFF, NOW).expect("work");
    assert_eq!((held.reason, held.until), (StartReason::Held, None));
    assert_eq!(PairFacts { waiting_since: None, ..ready() }.candidate(BACKOFF, NOW), None);
}

#[test]
fn failures_add_up_until_something_else_happens() {
    let failed = PairRecord::new(key()).after_end(Verdict::Failure, NOW).after_end(Verdict::Failure, NOW);
    assert_eq!(failed.n_failures, 2);
    let until = NOW + Duration::from_secs(2);
    assert_eq!(BACKOFF.until(&failed, NOW), Some(until));
    assert_eq!(BACKOFF.until(&failed, until), None);
    assert_eq!(BACKOFF.until(&failed.clone().after_end(Verdict::Fine, NOW), NOW), None);
    assert_eq!(BACKOFF.until(&failed.released(), NOW), None);
}

#[test]
fn an_end_in_the_future_holds_nobody_back() {
    let failed = PairRecord::new(key()).after_end(Verdict::Failure, NOW + Duration::from_hours(9000));
    assert_eq!(BACKOFF.until(&failed, NOW), None);
}

proptest! {
    #[test]
    fn the_delay_grows_and_is_bounded(n_failures in 0u32..100) {
        let (less, more) = (BACKOFF.delay(n_failures), BACKOFF.delay(n_failures + 1));
        prop_assert!(less <= more && more <= BACKOFF.max);
    }
}
