//! Properties of the plans of any snapshot, and planners without one of them that are found.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::*;

fn for_purpose(key: InstanceKey, is_chat: bool) -> InstanceKey {
    if is_chat { InstanceKey { purpose: Purpose::Chat, ..key } } else { key }
}

prop_compose! {
    pub(super) fn any_snapshot()(
        max_concurrent in 0usize..5,
        (per_project, per_agent, per_provider) in (prop::option::of(0usize..4), prop::option::of(0usize..3), prop::option::of(0usize..4)),
        chat_reserve in 0usize..3,
        n_waiting in prop::collection::vec((0usize..6, 0usize..3, 0i64..100, 0u8..6, 0usize..4), 0..10),
        open in prop::collection::vec((0usize..6, 0usize..3, 0u8..10, 0u8..4), 0..6),
    ) -> Snapshot {
        let mut taken = BTreeSet::new();
        let mut launches = Vec::new();
        let mut instances = Vec::new();
        for (n, (agent, project, state, phase)) in open.into_iter().enumerate() {
            if !taken.insert((agent, project)) {
                continue;
            }
            let (state, is_chat) = (state % 5, state >= 5);
            let state = match state {
                0 => LaunchState::Starting { deadline: NOW + Duration::from_secs(1) },
                1 => LaunchState::Starting { deadline: NOW },
                2 => LaunchState::Running { session: "ses_1".parse::<SessionId>().expect("an id") },
                3 => LaunchState::Stopping { reason: StopReason::Person, stop_at: NOW },
                _ => LaunchState::Ending,
            };
            let launch = launch(&format!("lch_{n}"), for_purpose(key(agent, project), is_chat), state);
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
        for (agent, project, since, reason, priority) in n_waiting {
            let key = for_purpose(key(agent, project), reason >= 3);
            let is_open = launches.iter().any(|launch: &LaunchFacts| launch.key == key);
            if is_open || startable.iter().any(|other: &Candidate| other.key == key) {
                continue;
            }
            let (reason, until) = match reason % 3 {
                0 => (StartReason::Ready, None),
                1 => (StartReason::Paused, None),
                _ => (StartReason::Backoff, Some(NOW + Duration::from_secs(1))),
            };
            let priority = Priority::ALL[priority];
            startable.push(Candidate { priority, reason, until, ..waiting(key, since) });
        }
        let none = StartLimits::NONE;
        let start = StartLimits { per_project, per_agent, per_provider, chat_reserve, ..none };
        let limits = Limits { start, ..snapshot(max_concurrent).limits };
        Snapshot { startable, launches, instances, limits, ..snapshot(max_concurrent) }
    }
}

/// Returns the rules that a plan breaks, judged by the real state.
pub(super) fn violations(plan: &Plan, snapshot: &Snapshot) -> BTreeSet<&'static str> {
    let started: Vec<&InstanceKey> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Start { key, .. } => Some(key),
            _ => None,
        })
        .collect();
    // The slots are counted in another way than in the plan: each launch and each process once.
    let mut taken: BTreeMap<&LaunchId, (&InstanceKey, &str)> = BTreeMap::new();
    for instance in snapshot.instances.iter().filter(|instance| instance.is_live()) {
        taken.insert(&instance.launch, (&instance.key, ""));
    }
    for launch in &snapshot.launches {
        taken.insert(&launch.id, (&launch.key, &launch.ai_type));
    }
    let all: Vec<(&InstanceKey, &str)> =
        taken.values().copied().chain(started.iter().map(|key| (*key, provider(key)))).collect();
    let exceeds = |limit: Option<usize>, is_same: &dyn Fn(&InstanceKey, &InstanceKey) -> bool| {
        let n = |key: &InstanceKey| all.iter().filter(|(other, _)| is_same(key, other)).count();
        limit.is_some_and(|limit| started.iter().any(|key| n(key) > limit))
    };
    let Limits { max_concurrent, start, .. } = snapshot.limits;
    let StartLimits { per_project, per_agent, per_provider, chat_reserve, .. } = start;
    let of_provider = |key: &InstanceKey| {
        all.iter().filter(|(_, kind)| kind.is_empty() || *kind == provider(key)).count()
    };
    let n_tasks = all.iter().filter(|(key, _)| key.purpose == Purpose::Task).count();
    let starts_task = started.iter().any(|key| key.purpose == Purpose::Task);
    let lives = |key: &InstanceKey| {
        snapshot.instances.iter().any(|instance| instance.is_live() && instance.key == *key)
    };
    let is_claimed = |key: &InstanceKey| snapshot.launches.iter().any(|launch| launch.key == *key);
    let found = [
        ("more than the limit", !started.is_empty() && all.len() > max_concurrent),
        ("more of a project", exceeds(per_project, &|a, b| a.project == b.project)),
        ("more of an agent", exceeds(per_agent, &|a, b| a.agent == b.agent)),
        (
            "more of a provider",
            per_provider.is_some_and(|limit| started.iter().any(|key| of_provider(key) > limit)),
        ),
        ("a slot for chats", starts_task && n_tasks > max_concurrent.saturating_sub(chat_reserve)),
        ("one key twice", started.iter().collect::<BTreeSet<_>>().len() < started.len()),
        ("a key that lives", started.iter().copied().any(lives)),
        ("a key that is claimed", started.iter().copied().any(is_claimed)),
        ("an urgent start waits", order::leaves_urgent(plan, snapshot)),
        ("a lower priority first", order::leaves_higher(plan, snapshot)),
        ("a project out of turn", order::skips_turn(plan, snapshot)),
    ];
    found.into_iter().filter(|(_, is_so)| *is_so).map(|(what, _)| what).collect()
}

/// Checks that many random snapshots reveal a planner that is wrong on purpose.
#[track_caller]
pub(super) fn check_is_found(mutant: impl Fn(&Snapshot) -> Plan, expected: &str) {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let is_found = (0..2000).any(|_| {
        let snapshot = any_snapshot().new_tree(&mut runner).expect("a snapshot").current();
        violations(&mutant(&snapshot), &snapshot).contains(expected)
    });
    assert!(is_found, "the properties would not notice: {expected}");
}

type Forget = fn(&mut StartLimits);
/// Functions that forget one limit each.
const FORGOTTEN: [(&str, Forget); 4] = [
    ("more of a project", |limits| limits.per_project = None),
    ("more of an agent", |limits| limits.per_agent = None),
    ("more of a provider", |limits| limits.per_provider = None),
    ("a slot for chats", |limits| limits.chat_reserve = 0),
];

#[test]
fn planners_that_are_wrong_are_found() {
    check_is_found(
        |snapshot| plan(&Snapshot { instances: Vec::new(), ..snapshot.clone() }),
        "a key that lives",
    );
    check_is_found(
        |snapshot| {
            plan(&Snapshot { launches: Vec::new(), instances: Vec::new(), ..snapshot.clone() })
        },
        "more than the limit",
    );
    for (what, forget) in FORGOTTEN {
        let mutant = |snapshot: &Snapshot| {
            let mut snapshot = snapshot.clone();
            forget(&mut snapshot.limits.start);
            plan(&snapshot)
        };
        check_is_found(mutant, what);
    }
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
            let twice =
                snapshot.startable.iter().cloned().chain(snapshot.startable.clone()).collect();
            plan(&Snapshot { startable: twice, ..snapshot.clone() })
        },
        "one key twice",
    );
    order::wrong_orders_are_found();
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
