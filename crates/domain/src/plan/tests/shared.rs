use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::plan::shared::{
    Crowd, SharedFacts, SnapshotCause, SnapshotFacts, SnapshotOrder, SnapshotState,
};

/// Facts of directories below `/repo`, which are in one git work tree, and of others.
fn facts(directories: &[(&str, &str)], snapshots: Option<SnapshotFacts>) -> SharedFacts {
    let all = ["/repo", "/repo/a", "/repo/b", "dir"].map(PathBuf::from);
    let in_repo = all.into_iter().filter(|path| path.starts_with("/repo"));
    SharedFacts {
        work_trees: in_repo.map(|path| (path, PathBuf::from("/repo"))).collect(),
        directories: directories
            .iter()
            .map(|(launch, path)| (launch.parse().expect("an id"), PathBuf::from(path)))
            .collect(),
        snapshots,
    }
}

fn waiting_in(key: InstanceKey, directory: &str, since: i64) -> Candidate {
    Candidate { working_directory: PathBuf::from(directory), ..waiting(key, since) }
}

fn running(id: &str, key: InstanceKey) -> LaunchFacts {
    let state = LaunchState::Running { session: "ses_1".parse().expect("an id") };
    LaunchFacts { pid: Some(1), is_authenticated: true, ..launch(id, key, state) }
}

fn started(plan: &Plan) -> Vec<&InstanceKey> {
    let starts = plan.actions.iter().filter_map(|action| match action {
        Action::Start { key, .. } => Some(key),
        _ => None,
    });
    starts.collect()
}

fn deferred(plan: &Plan) -> Vec<StartReason> {
    plan.deferred.iter().map(|deferred| deferred.reason).collect()
}

fn at_once(n: usize) -> Limits {
    Limits { shared_at_once: Some(n), ..Limits::of(9, Duration::from_secs(30)) }
}

#[test]
fn agents_beyond_the_limit_of_a_work_tree_wait_for_those_that_work_there() {
    let launch = running("lch_1", key(1, 1));
    let base = Snapshot {
        instances: vec![instance(&launch, Phase::Running { pid: 1, started_at: NOW })],
        launches: vec![launch],
        shared: facts(&[("lch_1", "/repo")], None),
        startable: vec![
            // Another project has a folder of the same work tree.
            waiting_in(key(2, 2), "/repo/a", 1),
            waiting_in(key(3, 1), "/repo", 2),
            waiting_in(key(4, 3), "dir", 3),
        ],
        limits: at_once(1),
        ..snapshot(9)
    };
    let plan = plan(&base);
    assert_eq!(started(&plan), [&key(4, 3)], "no work tree, no limit");
    assert_eq!(deferred(&plan), [StartReason::DirectoryInUse; 2]);
    let detail = plan.deferred[0].detail.as_deref();
    assert_eq!(detail, Some("1 in /repo, and `workspace.shared_at_once` is 1"));
    let plan = super::plan(&Snapshot { limits: at_once(2), ..base.clone() });
    assert_eq!(started(&plan).len(), 2);
    assert_eq!(deferred(&plan), [StartReason::DirectoryInUse]);
    let any = Limits { shared_at_once: None, ..at_once(1) };
    let plan = super::plan(&Snapshot { limits: any, ..base.clone() });
    assert_eq!(started(&plan).len(), 3);
    // A clone is a directory of its own, and a chat changes no files for a task.
    let mut startable = base.startable.clone();
    startable[0].needs_clone = true;
    startable[1].key.purpose = Purpose::Chat;
    let plan = super::plan(&Snapshot { startable, ..base.clone() });
    assert_eq!(started(&plan).len(), 3);
    // The agents of another coordinator work on another machine.
    let mut launches = base.launches.clone();
    launches[0].coordinator = Some("crd_other".parse().expect("an id"));
    let plan = super::plan(&Snapshot { launches, instances: Vec::new(), ..base });
    assert_eq!(started(&plan).len(), 2);
}

#[test]
fn a_start_in_a_work_tree_takes_a_snapshot_first_and_keeps_its_slot() {
    let candidate = waiting_in(key(1, 1), "/repo/a", 1);
    let with = |state: Option<SnapshotState>| {
        let before = state.map(|state| (key(1, 1), state)).into_iter().collect();
        let snapshots = Some(SnapshotFacts { before, ..SnapshotFacts::default() });
        plan(&Snapshot {
            startable: vec![candidate.clone(), waiting_in(key(2, 2), "dir", 2)],
            shared: facts(&[], snapshots),
            ..snapshot(1)
        })
    };
    let order = SnapshotOrder {
        project: key(1, 1).project,
        agent: key(1, 1).agent,
        work_tree: PathBuf::from("/repo"),
        cause: SnapshotCause::Start(key(1, 1)),
    };
    let plan = with(None);
    assert_eq!(plan.actions, [Action::Snapshot(order)]);
    assert_eq!(deferred(&plan), [StartReason::TakingSnapshot, StartReason::NoFreeSlot]);
    let plan = with(Some(SnapshotState::UnderWay));
    assert_eq!(plan.actions, []);
    assert_eq!(deferred(&plan), [StartReason::TakingSnapshot, StartReason::NoFreeSlot]);
    assert_eq!(started(&with(Some(SnapshotState::Over))), [&key(1, 1)]);
}

#[test]
fn the_end_of_a_launch_is_followed_by_one_snapshot_and_its_instance_waits_for_it() {
    let launch = running("lch_1", key(1, 1));
    let end = ProcessEnd::Exited(ExitStatus { exit_code: Some(0), signal: None });
    let ended = instance(
        &launch,
        Phase::Ended { end, at: NOW, pid: Some(1), started_at: Some(NOW), n_leaked: 0 },
    );
    let with = |is_known: bool, state: Option<SnapshotState>| {
        let after = state.map(|state| (launch.id.clone(), state)).into_iter().collect();
        let snapshots = Some(SnapshotFacts { after, ..SnapshotFacts::default() });
        let launches = if is_known { vec![launch.clone()] } else { Vec::new() };
        let directories: &[_] = if is_known { &[("lch_1", "/repo")] } else { &[] };
        plan(&Snapshot {
            launches,
            instances: vec![ended.clone()],
            shared: facts(directories, snapshots),
            ..snapshot(1)
        })
        .actions
    };
    let is_snapshot = |action: &Action| matches!(action, Action::Snapshot(order) if order.work_tree == Path::new("/repo"));
    assert!(with(true, None).iter().any(is_snapshot));
    assert!(!with(true, Some(SnapshotState::UnderWay)).iter().any(is_snapshot));
    assert!(!with(true, Some(SnapshotState::Over)).iter().any(is_snapshot));
    assert_eq!(with(false, Some(SnapshotState::UnderWay)), []);
    let forgotten = [Action::Forget { launch: launch.id.clone() }];
    assert_eq!(with(false, Some(SnapshotState::Over)), forgotten);
    assert_eq!(with(false, None), forgotten);
}

#[test]
fn people_are_warned_when_a_second_agent_works_in_a_work_tree() {
    let launches = vec![running("lch_1", key(1, 1)), running("lch_2", key(2, 2))];
    let with = |second: &str| {
        let shared = facts(&[("lch_1", "/repo"), ("lch_2", second)], None);
        let instances = launches
            .iter()
            .map(|launch| instance(launch, Phase::Running { pid: 1, started_at: NOW }));
        plan(&Snapshot {
            instances: instances.collect(),
            launches: launches.clone(),
            shared,
            ..snapshot(9)
        })
        .crowds
    };
    assert_eq!(with("dir"), []);
    let crowds = with("/repo/b");
    let [crowd] = crowds.as_slice() else { panic!("{crowds:?}") };
    assert_eq!(crowd.launches.len(), 2);
    let warning = Crowd::warning(crowd);
    assert!(warning.starts_with("2 agents work in /repo at once (agt_1, agt_2)"), "{warning}");
}

proptest! {
    #[test]
    fn no_plan_exceeds_the_limit_of_a_work_tree(
        n_running in 0..5_usize,
        directories in proptest::collection::vec(0..4_usize, 0..12),
        limit in 1..4_usize,
        max_concurrent in 0..12_usize,
    ) {
        let names = ["/repo", "/repo/a", "/repo/b", "dir"];
        let launches: Vec<LaunchFacts> =
            (0..n_running).map(|n| running(&format!("lch_{n}"), key(100 + n, 1))).collect();
        let instances = launches
            .iter()
            .map(|launch| instance(launch, Phase::Running { pid: 1, started_at: NOW }));
        let places: Vec<(&str, &str)> =
            launches.iter().map(|launch| (launch.id.as_str(), "/repo")).collect();
        let startable = directories.iter().enumerate().map(|(n, directory)| {
            waiting_in(key(n, n % 3), names[*directory], i64::try_from(n).expect("a small number"))
        });
        let snapshot = Snapshot {
            startable: startable.collect(),
            instances: instances.collect(),
            shared: facts(&places, None),
            launches: launches.clone(),
            limits: Limits { max_concurrent, ..at_once(limit) },
            ..snapshot(0)
        };
        let plan = plan(&snapshot);
        let n_started = plan.actions.iter().filter(|action| matches!(
            action, Action::Start { working_directory, .. } if working_directory.starts_with("/repo")
        )).count();
        prop_assert!(n_started <= limit.saturating_sub(n_running));
        // A start waits only if the work tree is full, or no slot is left.
        for deferred in &plan.deferred {
            if deferred.reason == StartReason::DirectoryInUse {
                prop_assert!(n_started + n_running >= limit);
            }
        }
    }
}
