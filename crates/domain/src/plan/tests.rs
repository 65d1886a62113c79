use std::time::Duration;

use super::*;
use crate::id::SessionId;
use crate::instance::Condition;
use crate::key::Purpose;
use crate::task::Priority;

mod chats;
mod faults;
mod order;
mod properties;
mod refused;
mod shared;
mod shims;
mod silence;
mod workspaces;

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

/// Returns the provider of an agent.
fn provider(key: &InstanceKey) -> &'static str {
    if key.agent.as_str() < "agt_3" { "claude" } else { "codex" }
}

fn waiting(key: InstanceKey, since: i64) -> Candidate {
    Candidate {
        needs_clone: false,
        workspace: None,
        detail: None,
        ai_type: provider(&key).to_owned(),
        key,
        working_directory: PathBuf::from("dir"),
        waiting_since: Timestamp::from_millis(since),
        priority: Priority::Medium,
        reason: StartReason::Ready,
        until: None,
        is_probe: false,
    }
}

fn launch(id: &str, key: InstanceKey, state: LaunchState) -> LaunchFacts {
    let id = id.parse().expect("an id");
    let ai_type = provider(&key).to_owned();
    LaunchFacts {
        id,
        key,
        coordinator: Some(me()),
        ai_type,
        state,
        pid: None,
        is_authenticated: false,
        idle_ms: None,
        is_shim_unknown: false,
        is_at_rest: false,
    }
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
        shim: None,
    }
}

fn snapshot(max_concurrent: usize) -> Snapshot {
    Snapshot::empty(me(), Limits::of(max_concurrent, Duration::from_secs(30)), NOW)
}

#[test]
fn a_fuse_is_disarmed_only_for_a_process_that_the_server_hears_of() {
    let check = |phase: Phase, pid: Option<i32>, expected: bool| {
        let state = LaunchState::Running { session: "ses_1".parse().expect("an id") };
        let launch =
            LaunchFacts { pid, is_authenticated: true, ..launch("lch_1", key(1, 1), state) };
        let snapshot = Snapshot {
            instances: vec![instance(&launch, phase.clone())],
            launches: vec![launch],
            ..snapshot(1)
        };
        let actions = plan(&snapshot).actions;
        let is_disarmed =
            actions.iter().any(|action| matches!(action, Action::MarkAuthenticated { .. }));
        assert_eq!(is_disarmed, expected, "{phase:?} {pid:?}");
    };
    check(Phase::Running { pid: 7, started_at: NOW }, None, true);
    check(Phase::Starting, Some(7), true);
    // Its start cannot be read. The claim lapses when its agent leaves, and the agent must not
    // outlive it.
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
fn a_stop_that_only_its_shim_was_told_of_is_told_to_the_server_before_the_end() {
    let session: SessionId = "ses_1".parse().expect("an id");
    let running = launch("lch_1", key(1, 1), LaunchState::Running { session });
    let end = ProcessEnd::Exited(ExitStatus { exit_code: None, signal: Some(9) });
    let ended =
        Phase::Ended { pid: None, started_at: None, end: end.clone(), at: NOW, n_leaked: 0 };
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

/// Returns the waiting keys with their reasons.
fn kept(plan: &Plan) -> Vec<(String, StartReason)> {
    let kept = plan.deferred.iter();
    kept.map(|deferred| {
        (format!("{}/{}", deferred.key.agent, deferred.key.project), deferred.reason)
    })
    .collect()
}

fn running_launch(n: usize, key: InstanceKey) -> LaunchFacts {
    launch(
        &format!("lch_{n}"),
        key,
        LaunchState::Running { session: "ses_1".parse().expect("an id") },
    )
}

const fn with(start: StartLimits, limits: Limits) -> Limits {
    Limits { start, ..limits }
}

/// Checks the reason to wait beside two running agents: agent 1 in project 1, and agent 2 in
/// project 2.
#[track_caller]
fn check_limit(limits: Limits, key: InstanceKey, expected: Option<StartReason>) {
    let launches = vec![running_launch(1, self::key(1, 1)), running_launch(2, self::key(2, 2))];
    let instances = launches.iter().map(|launch| instance(launch, running())).collect();
    let startable = vec![waiting(key, 0)];
    let plan = plan(&Snapshot { startable, launches, instances, limits, ..snapshot(0) });
    assert_eq!(kept(&plan).first().map(|(_, reason)| *reason), expected);
    assert_eq!(starts(&plan).is_empty(), expected.is_some());
}

#[test]
fn of_several_limits_all_are_told() {
    let launches = vec![running_launch(1, key(1, 1)), running_launch(2, key(2, 2))];
    let instances = launches.iter().map(|launch| instance(launch, running())).collect();
    let one = Some(1);
    let limits = with(
        StartLimits { per_project: one, per_agent: one, per_provider: one, ..StartLimits::NONE },
        Limits::of(2, Duration::ZERO),
    );
    let plan = plan(&Snapshot {
        startable: vec![waiting(key(1, 2), 0)],
        launches,
        instances,
        limits,
        ..snapshot(0)
    });
    assert_eq!(plan.deferred[0].reason, StartReason::NoFreeSlot);
    assert_eq!(
        plan.deferred[0].also,
        [StartReason::ProjectLimit, StartReason::AgentLimit, StartReason::ProviderLimit]
    );
    assert_eq!(plan.deferred[0].detail.as_deref(), Some("tasks use 2 and chats use 0 of 2 slots"));
}

#[test]
fn a_limit_that_is_reached_keeps_those_whom_it_concerns() {
    let limits = Limits::of(10, Duration::ZERO);
    check_limit(limits, key(3, 1), None);
    let per_project = with(StartLimits { per_project: Some(1), ..StartLimits::NONE }, limits);
    check_limit(per_project, key(3, 1), Some(StartReason::ProjectLimit));
    check_limit(per_project, key(3, 3), None);
    let per_agent = with(StartLimits { per_agent: Some(1), ..StartLimits::NONE }, limits);
    check_limit(per_agent, key(1, 3), Some(StartReason::AgentLimit));
    check_limit(per_agent, key(3, 3), None);
    let per_provider = with(StartLimits { per_provider: Some(2), ..StartLimits::NONE }, limits);
    check_limit(per_provider, key(0, 3), Some(StartReason::ProviderLimit));
    check_limit(per_provider, key(3, 3), None);
    check_limit(
        with(StartLimits { chat_reserve: 8, ..StartLimits::NONE }, limits),
        key(3, 3),
        Some(StartReason::ChatReserve),
    );
    check_limit(
        with(StartLimits { chat_reserve: 7, ..StartLimits::NONE }, limits),
        key(3, 3),
        None,
    );
    check_limit(Limits::of(2, Duration::ZERO), key(3, 3), Some(StartReason::NoFreeSlot));
}

#[test]
fn a_process_of_unknown_kind_counts_for_every_provider() {
    let unknown = running_launch(1, key(1, 1));
    let instances = vec![instance(&unknown, running())];
    let limits = with(
        StartLimits { per_provider: Some(1), ..StartLimits::NONE },
        Limits::of(9, Duration::ZERO),
    );
    let startable = vec![waiting(key(3, 3), 0)];
    let plan = plan(&Snapshot { startable, instances, limits, ..snapshot(0) });
    assert_eq!(kept(&plan), [("agt_3/prj_3".to_owned(), StartReason::ProviderLimit)]);
}

#[test]
fn chats_go_first_and_tasks_leave_them_their_slots() {
    let chat = |n| InstanceKey { purpose: Purpose::Chat, ..key(n, n) };
    let startable = vec![
        waiting(key(1, 1), 0),
        waiting(key(2, 2), 1),
        waiting(chat(3), 50),
        waiting(chat(4), 60),
    ];
    let plan = plan(&Snapshot {
        startable,
        limits: with(StartLimits { chat_reserve: 2, ..StartLimits::NONE }, snapshot(3).limits),
        ..snapshot(3)
    });
    assert_eq!(starts(&plan), ["agt_3/prj_3", "agt_4/prj_4", "agt_1/prj_1"]);
    assert_eq!(kept(&plan), [("agt_2/prj_2".to_owned(), StartReason::NoFreeSlot)]);
}

#[test]
fn who_waits_for_a_limit_of_its_own_keeps_nobody_else() {
    let limits = with(
        StartLimits { per_project: Some(1), ..StartLimits::NONE },
        Limits::of(2, Duration::ZERO),
    );
    let startable = vec![waiting(key(1, 1), 0), waiting(key(2, 1), 1), waiting(key(3, 2), 90)];
    let plan = plan(&Snapshot { startable, limits, ..snapshot(0) });
    assert_eq!(starts(&plan), ["agt_1/prj_1", "agt_3/prj_2"]);
}

#[test]
fn one_start_of_a_plan_tries_an_account() {
    let probe = |key, since| Candidate { is_probe: true, ..waiting(key, since) };
    let startable = vec![
        probe(key(1, 1), 10),
        probe(key(2, 2), 20),
        probe(key(3, 3), 30),
        waiting(key(4, 4), 40),
    ];
    let plan = plan(&Snapshot { startable, ..snapshot(9) });
    // Agents 1 and 2 share one account, agents 3 and 4 another.
    assert_eq!(starts(&plan), ["agt_1/prj_1", "agt_3/prj_3", "agt_4/prj_4"]);
    assert_eq!(kept(&plan), [("agt_2/prj_2".to_owned(), StartReason::Parked)]);
}

#[test]
fn a_closed_gate_keeps_all_and_names_the_figures() {
    let limits = with(
        StartLimits {
            min_free_disk: Some(5 << 30),
            min_free_memory: Some(1 << 20),
            ..StartLimits::NONE
        },
        Limits::of(9, Duration::ZERO),
    );
    let check = |disk: Option<u64>, memory: Option<u64>, expected: Option<(StartReason, &str)>| {
        let free = Resources { disk, memory };
        let startable = vec![waiting(key(1, 1), 0)];
        let plan = plan(&Snapshot { startable, limits, free, ..snapshot(0) });
        let kept =
            plan.deferred.first().map(|it| (it.reason, it.detail.as_deref().unwrap_or_default()));
        assert_eq!(kept, expected);
        assert_eq!(
            (starts(&plan).len(), plan.wake_at),
            if expected.is_none() { (1, None) } else { (0, Some(NOW + GATE_PAUSE)) }
        );
    };
    check(Some(5 << 30), Some(1 << 20), None);
    check(None, None, None);
    let disk = "1.5 GiB of disk free, and limits.min_free_disk is 5.0 GiB";
    check(Some(3 << 29), Some(0), Some((StartReason::LowDisk, disk)));
    let memory = "1023.9 KiB of memory free, and limits.min_free_memory is 1.0 MiB";
    check(Some(6 << 30), Some((1 << 20) - 1), Some((StartReason::LowMemory, memory)));
}

/// Checks F-27.
#[test]
fn a_limit_below_what_runs_ends_nobody_and_starts_nothing_until_there_is_room() {
    let all: Vec<LaunchFacts> = (0..5).map(|n| running_launch(n, key(n, n))).collect();
    let lowered = [
        Limits::of(2, Duration::ZERO),
        with(
            StartLimits { per_provider: Some(1), ..StartLimits::NONE },
            Limits::of(9, Duration::ZERO),
        ),
    ];
    for limits in lowered {
        for n_left in (0..=5).rev() {
            let launches = all[..n_left].to_vec();
            let instances = launches.iter().map(|launch| instance(launch, running())).collect();
            let startable = vec![waiting(key(1, 9), 0)];
            let plan = plan(&Snapshot { startable, launches, instances, limits, ..snapshot(0) });
            assert!(
                !plan
                    .actions
                    .iter()
                    .any(|it| matches!(it, Action::Stop { .. } | Action::WantStop { .. }))
            );
            let has_room = n_left < limits.start.per_provider.unwrap_or(limits.max_concurrent);
            assert_eq!(!starts(&plan).is_empty(), has_room, "{n_left} left, {limits:?}");
        }
    }
}

#[test]
fn launches_that_start_or_end_take_slots() {
    let starting = launch(
        "lch_1",
        key(1, 1),
        LaunchState::Starting { deadline: NOW + Duration::from_secs(9) },
    );
    let ending = launch("lch_2", key(2, 1), LaunchState::Ending);
    let instances = vec![instance(&starting, Phase::Starting), instance(&ending, running())];
    let snapshot = Snapshot {
        startable: vec![waiting(key(3, 2), 0)],
        launches: vec![starting, ending],
        instances,
        ..snapshot(2)
    };
    assert_eq!(starts(&plan(&snapshot)), [""; 0]);
}

#[test]
fn a_key_with_a_live_process_is_not_started_whatever_the_server_says() {
    let gone = launch("lch_1", key(1, 1), LaunchState::Ending);
    let snapshot = Snapshot {
        startable: vec![waiting(key(1, 1), 0)],
        instances: vec![instance(&gone, running())],
        ..snapshot(5)
    };
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
    assert_eq!(
        plan.deferred,
        [Deferred {
            key: key(1, 1),
            reason: StartReason::Backoff,
            until,
            detail: None,
            also: Vec::new(),
            in_use: None,
            n_ahead: 0,
            since: None
        }]
    );
}

#[test]
fn a_claim_without_a_process_is_given_back_at_once() {
    let claim = launch(
        "lch_1",
        key(1, 1),
        LaunchState::Starting { deadline: NOW + Duration::from_secs(9) },
    );
    let other =
        LaunchFacts { coordinator: Some("crd_other".parse().expect("an id")), ..claim.clone() };
    let mine = plan(&Snapshot { launches: vec![claim], ..snapshot(1) });
    assert!(matches!(
        &mine.actions[..],
        [Action::Report { report: ProcessReport::Ended { .. }, .. }]
    ));
    assert_eq!(plan(&Snapshot { launches: vec![other], ..snapshot(1) }).actions, []);
}

#[test]
fn a_start_that_does_not_authenticate_is_to_be_stopped_at_its_deadline() {
    let late = launch("lch_1", key(1, 1), LaunchState::Starting { deadline: NOW });
    let instances = vec![instance(&late, Phase::Starting)];
    let plan = plan(&Snapshot { launches: vec![late.clone()], instances, ..snapshot(1) });
    assert_eq!(
        plan.actions,
        [Action::WantStop { launch: late.id, reason: StopReason::StartTimeout }]
    );
}

/// Checks what a plan does with a running agent under these limits and clocks.
#[track_caller]
fn check_time(
    limits: Limits,
    elapsed: Elapsed,
    idle: Option<Duration>,
    expected: Result<Option<Duration>, StopReason>,
) {
    let idle_ms = idle.map(|idle| u64::try_from(idle.as_millis()).expect("not that long"));
    let launch = LaunchFacts {
        idle_ms,
        pid: Some(7),
        is_authenticated: true,
        ..running_launch(1, key(1, 1))
    };
    let marked = Instance { is_marked_authenticated: true, ..instance(&launch, running()) };
    let elapsed = BTreeMap::from([(launch.id.clone(), elapsed)]);
    let plan = plan(&Snapshot {
        instances: vec![marked],
        launches: vec![launch.clone()],
        elapsed,
        limits,
        ..snapshot(1)
    });
    let actions = expected.err().map(|reason| Action::Stop { launch: launch.id, reason });
    assert_eq!(plan.actions, Vec::from_iter(actions));
    assert_eq!(plan.wake_at, expected.unwrap_or(None).map(|left| NOW + left));
}

#[test]
fn an_agent_ends_when_it_ran_for_too_long() {
    let minute = Duration::from_mins(1);
    let none = Limits::of(1, Duration::ZERO);
    let ran = |ran| Elapsed { ran: Some(ran), ..Elapsed::default() };
    check_time(none, ran(1000 * minute), None, Ok(None));
    let run = RunLimits { max_runtime: Some(10 * minute), ..none.run };
    let limits = Limits { run, session_maximum: Some(20 * minute), ..none };
    check_time(limits, ran(9 * minute), None, Ok(Some(minute)));
    check_time(limits, ran(10 * minute), None, Err(StopReason::RunMaximum));
    check_time(limits, Elapsed::default(), None, Ok(None));
    check_time(
        Limits { run: none.run, ..limits },
        ran(20 * minute),
        None,
        Err(StopReason::SessionMaximum),
    );
}

#[test]
fn a_clock_that_jumps_ends_no_start_early_and_prolongs_none() {
    let limits =
        Limits { start_timeout: Some(Duration::from_secs(20)), ..Limits::of(1, Duration::ZERO) };
    let check = |now: Timestamp, known: u64, expected: &[StopReason]| {
        let starting = launch(
            "lch_1",
            key(1, 1),
            LaunchState::Starting { deadline: NOW + Duration::from_secs(20) },
        );
        let until_deadline =
            Some(Duration::from_secs(20).saturating_sub(Duration::from_secs(known)));
        let elapsed = Elapsed { until_deadline, ..Elapsed::default() };
        let elapsed = BTreeMap::from([(starting.id.clone(), elapsed)]);
        let instances = vec![instance(&starting, Phase::Starting)];
        let plan = plan(&Snapshot {
            now,
            launches: vec![starting],
            instances,
            elapsed,
            limits,
            ..snapshot(1)
        });
        let wanted = plan.actions.iter().filter_map(|action| match action {
            Action::WantStop { reason, .. } => Some(*reason),
            _ => None,
        });
        assert_eq!(wanted.collect::<Vec<_>>(), expected);
    };
    let year = Duration::from_hours(24 * 365);
    let lingering = LaunchState::Stopping {
        reason: StopReason::Reported,
        stop_at: NOW + Duration::from_secs(30),
    };
    let lingering = launch("lch_1", key(1, 1), lingering);
    let now = NOW + year;
    // The second one had more time than the limit gives now.
    for left in [7, 3_600].map(Duration::from_secs) {
        let elapsed = Elapsed { until_stop: Some(left), ..Elapsed::default() };
        let elapsed = BTreeMap::from([(lingering.id.clone(), elapsed)]);
        let (launches, instances) =
            (vec![lingering.clone()], vec![instance(&lingering, running())]);
        let lingers = plan(&Snapshot { now, launches, instances, elapsed, ..snapshot(1) });
        assert!(
            !lingers.actions.iter().any(|action| matches!(action, Action::Stop { .. })),
            "{lingers:?}"
        );
        assert_eq!(lingers.wake_at, Some(now + left));
    }
    check(NOW + year, 19, &[]);
    check(NOW, 20, &[StopReason::StartTimeout]);
    check(Timestamp::from_millis(0), 20, &[StopReason::StartTimeout]);
}

#[test]
fn the_shim_is_told_to_stop_once_and_not_before_its_time() {
    let stopping = |stop_at| LaunchState::Stopping { reason: StopReason::Reported, stop_at };
    let patient = launch("lch_1", key(1, 1), stopping(NOW + Duration::from_secs(30)));
    let due = launch("lch_2", key(2, 1), stopping(NOW));
    let told = launch("lch_3", key(3, 1), stopping(NOW));
    let mut instances = vec![instance(&patient, Phase::Starting), instance(&due, Phase::Starting)];
    instances
        .push(Instance { stop: Some(StopReason::Reported), ..instance(&told, Phase::Starting) });
    let plan =
        plan(&Snapshot { launches: vec![patient, due.clone(), told], instances, ..snapshot(3) });
    assert_eq!(plan.actions, [Action::Stop { launch: due.id, reason: StopReason::Reported }]);
    assert_eq!(plan.wake_at, Some(NOW + Duration::from_secs(30)));
}

#[test]
fn a_clock_set_back_prolongs_no_stop() {
    let far = LaunchState::Stopping {
        reason: StopReason::Reported,
        stop_at: NOW + Duration::from_hours(1),
    };
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
    let before = plan(&Snapshot {
        launches: vec![open.clone()],
        instances: instances.clone(),
        ..snapshot(1)
    });
    assert!(before.actions.iter().any(|action| matches!(action, Action::Report { .. })));
    assert!(!before.actions.iter().any(|action| matches!(action, Action::Forget { .. })));
    let after = plan(&Snapshot { instances, ..snapshot(1) });
    assert_eq!(after.actions, [Action::Forget { launch: open.id }]);
}
