use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::*;
use crate::domain::id::SessionId;
use crate::domain::instance::Condition;
use crate::domain::key::Purpose;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn key(agent: usize, project: usize) -> InstanceKey {
    let id = |kind, n| format!("{kind}_{n}");
    InstanceKey::new(
        id("agt", agent).parse().expect("an id"),
        id("prj", project).parse().expect("an id"),
        Purpose::Task,
    )
}

fn me() -> CoordinatorId {
    "crd_me".parse().expect("an id")
}

fn waiting(key: InstanceKey, since: i64) -> Candidate {
    Candidate {
        key,
        ai_type: "claude".to_owned(),
        working_directory: PathBuf::from("dir"),
        waiting_since: Timestamp::from_millis(since),
        reason: StartReason::Ready,
        until: None,
    }
}

fn launch(id: &str, key: InstanceKey, state: LaunchState) -> LaunchFacts {
    let id = id.parse().expect("an id");
    LaunchFacts { id, key, coordinator: Some(me()), state, pid: None, is_authenticated: false }
}

fn instance(launch: &LaunchFacts, phase: Phase) -> Instance {
    Instance {
        launch: launch.id.clone(),
        key: launch.key.clone(),
        phase,
        adopted: false,
        stop: None,
        is_marked_authenticated: false,
        condition: Condition::default(),
    }
}

fn snapshot(max_concurrent: usize) -> Snapshot {
    Snapshot {
        now: NOW,
        coordinator: me(),
        startable: Vec::new(),
        launches: Vec::new(),
        instances: Vec::new(),
        limits: Limits { max_concurrent, linger: Duration::from_secs(30) },
    }
}

#[test]
fn a_fuse_is_disarmed_only_for_a_process_that_the_server_hears_of() {
    let check = |phase: Phase, pid: Option<i32>, expected: bool| {
        let state = LaunchState::Running { session: "ses_1".parse().expect("an id") };
        let launch = LaunchFacts { pid, is_authenticated: true, ..launch("lch_1", key(1, 1), state) };
        let snapshot =
            Snapshot { instances: vec![instance(&launch, phase.clone())], launches: vec![launch], ..snapshot(1) };
        let actions = plan(&snapshot).actions;
        let is_disarmed = actions.iter().any(|action| matches!(action, Action::MarkAuthenticated { .. }));
        assert_eq!(is_disarmed, expected, "{phase:?} {pid:?}");
    };
    check(Phase::Running { pid: 7, started_at: NOW }, None, true);
    check(Phase::Starting, Some(7), true);
    // Its start can't be read: the claim lapses when its agent leaves, and must not outlive that.
    check(Phase::Starting, None, false);
}

fn starts(plan: &Plan) -> Vec<String> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::Start { key, .. } => Some(format!("{}/{}", key.agent, key.project)),
            _ => None,
        })
        .collect()
}

fn running() -> Phase {
    Phase::Running { pid: 7, started_at: NOW }
}

#[test]
fn a_stop_that_only_its_keeper_was_told_of_is_told_to_the_server_before_the_end() {
    let session: SessionId = "ses_1".parse().expect("an id");
    let running = launch("lch_1", key(1, 1), LaunchState::Running { session });
    let end = ProcessEnd::Exited(ExitStatus { exit_code: None, signal: Some(9) });
    let ended = Phase::Ended { pid: None, started_at: None, end: end.clone(), at: NOW, n_leaked: 0 };
    let stopped = Instance { stop: Some(StopReason::Shutdown), ..instance(&running, ended) };
    let launch = running.id.clone();
    let plan = plan(&Snapshot { launches: vec![running], instances: vec![stopped], ..snapshot(3) });
    let expected = [
        Action::WantStop { launch: launch.clone(), reason: StopReason::Shutdown },
        Action::Report { launch, report: ProcessReport::Ended { end, at: NOW } },
    ];
    assert_eq!(plan.actions, expected);
}

#[test]
fn starts_go_round_the_projects_the_longest_waiting_first() {
    let startable = vec![
        waiting(key(1, 1), 10),
        waiting(key(2, 1), 20),
        waiting(key(3, 1), 30),
        waiting(key(4, 2), 40),
        waiting(key(5, 2), 50),
    ];
    let plan = plan(&Snapshot { startable, ..snapshot(4) });
    assert_eq!(starts(&plan), ["agt_1/prj_1", "agt_4/prj_2", "agt_2/prj_1", "agt_5/prj_2"]);
    assert_eq!(plan.deferred.len(), 1);
    assert_eq!(plan.deferred[0].reason, StartReason::NoFreeSlot);
}

#[test]
fn launches_that_start_or_end_take_slots() {
    let starting = launch("lch_1", key(1, 1), LaunchState::Starting { deadline: NOW + Duration::from_secs(9) });
    let ending = launch("lch_2", key(2, 1), LaunchState::Ending);
    let instances = vec![instance(&starting, Phase::Starting), instance(&ending, running())];
    let snapshot =
        Snapshot { startable: vec![waiting(key(3, 2), 0)], launches: vec![starting, ending], instances, ..snapshot(2) };
    assert_eq!(starts(&plan(&snapshot)), [""; 0]);
}

#[test]
fn a_key_with_a_live_process_is_not_started_whatever_the_server_says() {
    let gone = launch("lch_1", key(1, 1), LaunchState::Ending);
    let snapshot =
        Snapshot { startable: vec![waiting(key(1, 1), 0)], instances: vec![instance(&gone, running())], ..snapshot(5) };
    let plan = plan(&snapshot);
    assert_eq!(plan.actions, [Action::Stop { launch: gone.id, reason: StopReason::Unknown }]);
    assert_eq!(plan.deferred[0].reason, StartReason::Stopping);
}

#[test]
fn a_pair_that_may_not_start_waits_and_the_plan_says_until_when() {
    let until = Some(NOW + Duration::from_secs(4));
    let failing = Candidate { reason: StartReason::Backoff, until, ..waiting(key(1, 1), 0) };
    let plan = plan(&Snapshot { startable: vec![failing], ..snapshot(1) });
    assert_eq!(plan.wake_at, until);
    assert_eq!(plan.deferred, [Deferred { key: key(1, 1), reason: StartReason::Backoff, until }]);
}

#[test]
fn a_claim_without_a_process_is_given_back_at_once() {
    let claim = launch("lch_1", key(1, 1), LaunchState::Starting { deadline: NOW + Duration::from_secs(9) });
    let other = LaunchFacts { coordinator: Some("crd_other".parse().expect("an id")), ..claim.clone() };
    let mine = plan(&Snapshot { launches: vec![claim], ..snapshot(1) });
    assert!(matches!(&mine.actions[..], [Action::Report { report: ProcessReport::Ended { .. }, .. }]));
    assert_eq!(plan(&Snapshot { launches: vec![other], ..snapshot(1) }).actions, []);
}

#[test]
fn a_start_that_does_not_authenticate_is_to_be_stopped_at_its_deadline() {
    let late = launch("lch_1", key(1, 1), LaunchState::Starting { deadline: NOW });
    let instances = vec![instance(&late, Phase::Starting)];
    let plan = plan(&Snapshot { launches: vec![late.clone()], instances, ..snapshot(1) });
    assert_eq!(plan.actions, [Action::WantStop { launch: late.id, reason: StopReason::StartTimeout }]);
}

#[test]
fn the_keeper_is_told_to_stop_once_and_not_before_its_time() {
    let stopping = |ladder_at| LaunchState::Stopping { reason: StopReason::Reported, ladder_at };
    let patient = launch("lch_1", key(1, 1), stopping(NOW + Duration::from_secs(30)));
    let due = launch("lch_2", key(2, 1), stopping(NOW));
    let told = launch("lch_3", key(3, 1), stopping(NOW));
    let mut instances = vec![instance(&patient, Phase::Starting), instance(&due, Phase::Starting)];
    instances.push(Instance { stop: Some(StopReason::Reported), ..instance(&told, Phase::Starting) });
    let plan = plan(&Snapshot { launches: vec![patient, due.clone(), told], instances, ..snapshot(3) });
    assert_eq!(plan.actions, [Action::Stop { launch: due.id, reason: StopReason::Reported }]);
    assert_eq!(plan.wake_at, Some(NOW + Duration::from_secs(30)));
}

#[test]
fn a_clock_set_back_prolongs_no_stop() {
    let far = LaunchState::Stopping { reason: StopReason::Reported, ladder_at: NOW + Duration::from_hours(1) };
    let lingering = launch("lch_1", key(1, 1), far);
    let instances = vec![instance(&lingering, Phase::Starting)];
    let plan = plan(&Snapshot { launches: vec![lingering.clone()], instances, ..snapshot(1) });
    assert_eq!(plan.actions, [Action::Stop { launch: lingering.id, reason: StopReason::Reported }]);
}

#[test]
fn an_end_is_reported_until_the_server_knows_it_and_only_then_forgotten() {
    let open = launch("lch_1", key(1, 1), LaunchState::Ending);
    let end = ProcessEnd::Exited(ExitStatus { exit_code: Some(3), signal: None });
    let over = Phase::Ended { pid: Some(7), started_at: Some(NOW), end, at: NOW, n_leaked: 0 };
    let instances = vec![instance(&open, over)];
    let before = plan(&Snapshot { launches: vec![open.clone()], instances: instances.clone(), ..snapshot(1) });
    assert!(before.actions.iter().any(|action| matches!(action, Action::Report { .. })));
    assert!(!before.actions.iter().any(|action| matches!(action, Action::Forget { .. })));
    let after = plan(&Snapshot { instances, ..snapshot(1) });
    assert_eq!(after.actions, [Action::Forget { launch: open.id }]);
}

prop_compose! {
    fn any_snapshot()(
        max_concurrent in 0usize..5,
        n_waiting in prop::collection::vec((0usize..6, 0usize..3, 0i64..100, 0u8..3), 0..10),
        open in prop::collection::vec((0usize..6, 0usize..3, 0u8..5, 0u8..4), 0..6),
    ) -> Snapshot {
        let mut taken = BTreeSet::new();
        let mut launches = Vec::new();
        let mut instances = Vec::new();
        for (n, (agent, project, state, phase)) in open.into_iter().enumerate() {
            if !taken.insert((agent, project)) {
                continue;
            }
            let state = match state {
                0 => LaunchState::Starting { deadline: NOW + Duration::from_secs(1) },
                1 => LaunchState::Starting { deadline: NOW },
                2 => LaunchState::Running { session: "ses_1".parse::<SessionId>().expect("an id") },
                3 => LaunchState::Stopping { reason: StopReason::Person, ladder_at: NOW },
                _ => LaunchState::Ending,
            };
            let launch = launch(&format!("lch_{n}"), key(agent, project), state);
            match phase {
                0 => {}
                1 => instances.push(instance(&launch, Phase::Starting)),
                _ => instances.push(instance(&launch, running())),
            }
            if phase != 3 {
                launches.push(launch);
            }
        }
        let mut startable = Vec::new();
        for (agent, project, since, reason) in n_waiting {
            let key = key(agent, project);
            let is_open = launches.iter().any(|launch: &LaunchFacts| launch.key == key);
            if is_open || startable.iter().any(|other: &Candidate| other.key == key) {
                continue;
            }
            let (reason, until) = match reason {
                0 => (StartReason::Ready, None),
                1 => (StartReason::Paused, None),
                _ => (StartReason::Backoff, Some(NOW + Duration::from_secs(1))),
            };
            startable.push(Candidate { reason, until, ..waiting(key, since) });
        }
        Snapshot { startable, launches, instances, ..snapshot(max_concurrent) }
    }
}

/// What a plan does that none may do, seen what is really there.
fn violations(plan: &Plan, snapshot: &Snapshot) -> BTreeSet<&'static str> {
    let started: Vec<&InstanceKey> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Start { key, .. } => Some(key),
            _ => None,
        })
        .collect();
    let occupied: usize = occupied_slots(snapshot).values().sum();
    let lives =
        |key: &InstanceKey| snapshot.instances.iter().any(|instance| instance.is_live() && instance.key == *key);
    let is_claimed = |key: &InstanceKey| snapshot.launches.iter().any(|launch| launch.key == *key);
    let found = [
        ("more than the limit", !started.is_empty() && occupied + started.len() > snapshot.limits.max_concurrent),
        ("one key twice", started.iter().collect::<BTreeSet<_>>().len() < started.len()),
        ("a key that lives", started.iter().copied().any(lives)),
        ("a key that is claimed", started.iter().copied().any(is_claimed)),
    ];
    found.into_iter().filter(|(_, is_so)| *is_so).map(|(what, _)| what).collect()
}

/// A planner that is wrong on purpose, seen by what it does in many snapshots.
#[track_caller]
fn check_is_found(mutant: impl Fn(&Snapshot) -> Plan, expected: &str) {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let is_found = (0..2000).any(|_| {
        let snapshot = any_snapshot().new_tree(&mut runner).expect("a snapshot").current();
        violations(&mutant(&snapshot), &snapshot).contains(expected)
    });
    assert!(is_found, "the properties would not notice: {expected}");
}

#[test]
fn planners_that_are_wrong_are_found() {
    check_is_found(|snapshot| plan(&Snapshot { instances: Vec::new(), ..snapshot.clone() }), "a key that lives");
    check_is_found(
        |snapshot| plan(&Snapshot { launches: Vec::new(), instances: Vec::new(), ..snapshot.clone() }),
        "more than the limit",
    );
    check_is_found(
        |snapshot| {
            let claimed = snapshot.launches.iter().map(|launch| waiting(launch.key.clone(), 0));
            let startable = snapshot.startable.iter().cloned().chain(claimed).collect();
            plan(&Snapshot { startable, instances: Vec::new(), ..snapshot.clone() })
        },
        "a key that is claimed",
    );
    check_is_found(
        |snapshot| {
            let twice = snapshot.startable.iter().cloned().chain(snapshot.startable.clone()).collect();
            plan(&Snapshot { startable: twice, ..snapshot.clone() })
        },
        "one key twice",
    );
}

proptest! {
    #[test]
    fn the_plan_never_exceeds_the_limit_nor_doubles_a_key(snapshot in any_snapshot()) {
        prop_assert_eq!(violations(&plan(&snapshot), &snapshot), BTreeSet::new());
    }

    #[test]
    fn each_startable_key_is_started_or_deferred_with_a_reason(snapshot in any_snapshot()) {
        let plan = plan(&snapshot);
        prop_assert_eq!(starts(&plan).len() + plan.deferred.len(), snapshot.startable.len());
    }

    #[test]
    fn planning_again_after_the_starts_adds_none(snapshot in any_snapshot()) {
        let first = plan(&snapshot);
        let mut next = snapshot;
        for (n, action) in first.actions.iter().enumerate() {
            let Action::Start { key, .. } = action else { continue };
            let deadline = NOW + Duration::from_secs(9);
            let claimed = launch(&format!("lch_new_{n}"), key.clone(), LaunchState::Starting { deadline });
            next.instances.push(instance(&claimed, Phase::Starting));
            next.startable.retain(|candidate| candidate.key != *key);
            next.launches.push(claimed);
        }
        prop_assert_eq!(starts(&plan(&next)).len(), 0);
    }
}
