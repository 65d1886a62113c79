//! The order of the starts: urgent ones first, then the projects in turn, and none waits forever.

use proptest::prelude::*;

use super::properties::check_is_found;
use super::*;
use crate::id::ProjectId;

/// Returns the ready candidates of tasks that the plan starts, and those that wait only for a free
/// slot. A key that is listed twice or that lives counts as neither.
fn started_and_left<'a>(
    plan: &Plan,
    snapshot: &'a Snapshot,
) -> (Vec<&'a Candidate>, Vec<&'a Candidate>) {
    let find = |key: &InstanceKey| {
        let mut of_key = snapshot.startable.iter().filter(|candidate| candidate.key == *key);
        of_key.next().filter(|candidate| candidate.key.purpose == Purpose::Task)
    };
    let started = plan.actions.iter().filter_map(|action| match action {
        Action::Start { key, .. } => find(key),
        _ => None,
    });
    let left = plan.deferred.iter().filter(|deferred| {
        matches!(deferred.reason, StartReason::NoFreeSlot | StartReason::ChatReserve)
            && deferred
                .also
                .iter()
                .all(|also| matches!(also, StartReason::NoFreeSlot | StartReason::ChatReserve))
    });
    (started.collect(), left.filter_map(|deferred| find(&deferred.key)).collect())
}

/// Returns whether an urgent start waits while another start that should be behind it takes a slot.
pub(super) fn leaves_urgent(plan: &Plan, snapshot: &Snapshot) -> bool {
    let (started, left) = started_and_left(plan, snapshot);
    let is_urgent = |candidate: &Candidate| candidate.priority == Priority::Urgent;
    left.iter().filter(|left| is_urgent(left)).any(|left| {
        started
            .iter()
            .any(|started| !is_urgent(started) || started.waiting_since > left.waiting_since)
    })
}

/// Returns whether a start of the same project with a lower priority, or with the same and a
/// shorter wait, takes the slot of another.
pub(super) fn leaves_higher(plan: &Plan, snapshot: &Snapshot) -> bool {
    let (started, left) = started_and_left(plan, snapshot);
    left.iter().any(|left| {
        let mut same = started.iter().filter(|started| started.key.project == left.key.project);
        same.any(|started| {
            started.priority < left.priority
                || (started.priority == left.priority && started.waiting_since > left.waiting_since)
        })
    })
}

/// Returns whether a project takes a slot with an ordinary start, although another project that
/// waits had at least two slots fewer afterwards.
pub(super) fn skips_turn(plan: &Plan, snapshot: &Snapshot) -> bool {
    let (started, left) = started_and_left(plan, snapshot);
    let mut launches: BTreeMap<&LaunchId, &ProjectId> = BTreeMap::new();
    for instance in snapshot.instances.iter().filter(|instance| instance.is_live()) {
        launches.insert(&instance.launch, &instance.key.project);
    }
    for launch in &snapshot.launches {
        launches.insert(&launch.id, &launch.key.project);
    }
    let n_slots = |project: &ProjectId| {
        let begun = launches.values().filter(|other| **other == project).count();
        let of_plan = plan.actions.iter().filter(
            |action| matches!(action, Action::Start { key, .. } if key.project == *project),
        );
        begun + of_plan.count()
    };
    let ordinary = started.iter().filter(|started| started.priority != Priority::Urgent);
    let mut projects = ordinary.map(|started| &started.key.project);
    projects
        .any(|project| left.iter().any(|left| n_slots(&left.key.project) + 1 < n_slots(project)))
}

/// Changes a candidate so that a planner orders it wrongly.
type Confuse = fn(Candidate) -> Candidate;
const CONFUSED: [(&str, Confuse); 3] = [
    ("an urgent start waits", |candidate| Candidate { priority: Priority::Medium, ..candidate }),
    ("a lower priority first", |candidate| Candidate { priority: Priority::Medium, ..candidate }),
    ("a project out of turn", |candidate| Candidate { priority: Priority::Urgent, ..candidate }),
];

pub(super) fn wrong_orders_are_found() {
    for (what, confuse) in CONFUSED {
        let mutant = |snapshot: &Snapshot| {
            let startable = snapshot.startable.iter().cloned().map(confuse).collect();
            plan(&Snapshot { startable, ..snapshot.clone() })
        };
        check_is_found(mutant, what);
    }
}

fn with_priority(priority: Priority, key: InstanceKey, since: i64) -> Candidate {
    Candidate { priority, ..waiting(key, since) }
}

#[test]
fn urgent_starts_of_all_projects_come_first_and_then_the_projects_take_turns() {
    let startable = vec![
        waiting(key(1, 1), 10),
        with_priority(Priority::High, key(2, 1), 90),
        with_priority(Priority::Low, key(3, 2), 50),
        with_priority(Priority::Urgent, key(4, 2), 80),
        with_priority(Priority::Urgent, key(5, 2), 70),
    ];
    let plan = plan(&Snapshot { startable, ..snapshot(4) });
    assert_eq!(starts(&plan), ["agt_5/prj_2", "agt_4/prj_2", "agt_2/prj_1", "agt_1/prj_1"]);
}

#[test]
fn a_start_without_a_slot_says_how_many_are_ahead() {
    let startable = vec![
        with_priority(Priority::Low, key(1, 1), 10),
        waiting(key(2, 1), 20),
        with_priority(Priority::Urgent, key(3, 2), 30),
        waiting(key(4, 2), 40),
    ];
    let plan = plan(&Snapshot { startable, ..snapshot(1) });
    assert_eq!(starts(&plan), ["agt_3/prj_2"]);
    let details: Vec<String> = plan
        .deferred
        .iter()
        .map(|it| format!("{}: {}", it.key.agent, it.detail.as_deref().unwrap_or_default()))
        .collect();
    let slots = "tasks use 1 and chats use 0 of 1 slots";
    assert_eq!(
        details,
        [
            format!("agt_2: {slots}"),
            format!("agt_1: {slots}; 1 start is ahead"),
            format!("agt_4: {slots}; 2 starts are ahead"),
        ]
    );
}

const AGING_MS: i64 = 60;
const N_PROJECTS: usize = 3;
const N_AGENTS: usize = 4;

proptest! {
    /// Each key that gets new work whenever it is free starts again after a bounded time, whatever
    /// the priorities are: at most all other keys are before it once it counts as urgent.
    #[test]
    fn no_project_and_no_priority_starves(
        max_concurrent in 1usize..4,
        priorities in prop::collection::vec(0usize..4, N_PROJECTS * N_AGENTS),
        lengths in prop::collection::vec(1i64..12, 1..20),
    ) {
        let keys: Vec<InstanceKey> = (0..N_PROJECTS * N_AGENTS)
            .map(|n| key(n, n % N_PROJECTS))
            .collect();
        let n_keys = i64::try_from(keys.len()).expect("a small number");
        let longest = AGING_MS + 12 * (n_keys + 1);
        let mut waits: BTreeMap<&InstanceKey, i64> = keys.iter().map(|key| (key, 0)).collect();
        let mut runs: BTreeMap<&InstanceKey, i64> = BTreeMap::new();
        let mut n_started = 0;
        for now in 0..600 {
            for (key, _) in runs.extract_if(.., |_, until| *until <= now) {
                waits.insert(key, now);
            }
            let startable = waits.iter().map(|(key, since)| {
                let n = keys.iter().position(|other| other == *key).expect("a key");
                let is_old = now - since >= AGING_MS;
                let priority = if is_old { Priority::Urgent } else { Priority::ALL[priorities[n]] };
                with_priority(priority, (*key).clone(), *since)
            });
            let launches = runs.keys().enumerate();
            let launches: Vec<LaunchFacts> =
                launches.map(|(n, key)| running_launch(n, (*key).clone())).collect();
            let instances = launches.iter().map(|launch| instance(launch, running())).collect();
            let at = Snapshot {
                startable: startable.collect(),
                launches,
                instances,
                ..snapshot(max_concurrent)
            };
            for action in plan(&at).actions {
                let Action::Start { key, .. } = action else { continue };
                let key = keys.iter().find(|other| **other == key).expect("a key");
                waits.remove(key);
                runs.insert(key, now + lengths[n_started % lengths.len()]);
                n_started += 1;
            }
            for (key, since) in &waits {
                prop_assert!(now - since <= longest, "{} waits for {}", key, now - since);
            }
        }
    }
}
