use super::*;
use crate::plan::chats::REST_PAUSE;

/// Returns a chat of an agent in a project that has its slot. `is_at_rest` tells whether it may give
/// the slot away.
fn chat(n: usize, is_at_rest: bool) -> LaunchFacts {
    let key = InstanceKey { purpose: Purpose::Chat, ..key(n, n) };
    LaunchFacts { is_at_rest, ..running_launch(n, key) }
}

fn ended(snapshot: &Snapshot) -> Vec<String> {
    let ends = plan(snapshot).actions.into_iter().filter_map(|action| match action {
        Action::WantStop { launch, reason: StopReason::ChatIdle } => Some(launch.to_string()),
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_chat_at_rest_gives_its_slot_to_a_start_that_waits() {
    let chats = |at_rest: [bool; 2]| vec![chat(1, at_rest[0]), chat(2, at_rest[1])];
    let one = vec![waiting(key(3, 3), 0)];
    let two = vec![waiting(key(3, 3), 0), waiting(key(4, 4), 0)];
    for (launches, startable, n_slots, expected) in [
        (chats([true, true]), one.clone(), 2, vec!["lch_1"]),
        (chats([false, true]), one.clone(), 2, vec!["lch_2"]),
        (chats([false, false]), one.clone(), 2, vec![]),
        (chats([true, true]), two.clone(), 2, vec!["lch_1", "lch_2"]),
        // A slot is free, or nothing waits.
        (chats([true, true]), one.clone(), 3, vec![]),
        (chats([true, true]), vec![], 2, vec![]),
    ] {
        let snapshot = Snapshot { startable, launches, ..snapshot(n_slots) };
        assert_eq!(ended(&snapshot), expected, "{n_slots} slots");
    }
    // The slot is kept for chats.
    let base = snapshot(2);
    let limits = with(StartLimits { chat_reserve: 2, ..StartLimits::NONE }, base.limits);
    let launches = chats([true, true]);
    assert_eq!(ended(&Snapshot { startable: one.clone(), launches, limits, ..base }), [""; 0]);
    // One that is about to end makes room by itself.
    let state = LaunchState::Stopping { reason: StopReason::ChatIdle, stop_at: NOW };
    let launches = vec![LaunchFacts { state, ..chat(1, true) }, chat(2, true)];
    assert_eq!(ended(&Snapshot { launches, startable: one, ..snapshot(2) }), [""; 0]);
}

#[test]
fn a_chat_ends_only_for_a_limit_that_it_counts_for() {
    for (start, key, expected) in [
        (StartLimits { per_project: Some(1), ..StartLimits::NONE }, key(3, 2), vec!["lch_2"]),
        (StartLimits { per_project: Some(1), ..StartLimits::NONE }, key(3, 3), vec![]),
        (StartLimits { per_agent: Some(1), ..StartLimits::NONE }, key(1, 3), vec!["lch_1"]),
    ] {
        let base = snapshot(9);
        let launches = vec![chat(1, true), chat(2, true)];
        let limits = with(start, base.limits);
        let startable = vec![waiting(key, 0)];
        assert_eq!(ended(&Snapshot { startable, launches, limits, ..base }), expected);
    }
}

#[test]
fn one_start_ends_one_chat_and_none_that_would_not_let_it_begin() {
    let base = snapshot(3);
    let per_project = StartLimits { per_project: Some(2), ..StartLimits::NONE };
    let in_project = |n| LaunchFacts {
        key: InstanceKey { purpose: Purpose::Chat, ..key(n, 1) },
        ..chat(n, true)
    };
    // The chat that the cycle before has ended is about to make room.
    let state = LaunchState::Stopping { reason: StopReason::ChatIdle, stop_at: NOW };
    let stopping = LaunchFacts { state, ..in_project(1) };
    let startable = vec![waiting(key(3, 1), 0)];
    let launches = vec![stopping, in_project(2)];
    let limits = with(per_project, base.limits);
    assert_eq!(ended(&Snapshot { startable, launches, limits, ..base }), [""; 0]);
    // All slots are taken, and the project has its one agent already.
    let base = snapshot(3);
    let per_project = StartLimits { per_project: Some(1), ..StartLimits::NONE };
    let limits = with(per_project, base.limits);
    let launches = vec![running_launch(1, key(1, 1)), chat(2, true), running_launch(3, key(3, 3))];
    let startable = vec![waiting(key(4, 1), 0)];
    assert_eq!(ended(&Snapshot { startable, launches, limits, ..base }), [""; 0]);
}

#[test]
fn a_plan_looks_again_while_a_start_waits_beside_a_chat() {
    let startable = vec![waiting(key(3, 3), 0)];
    let plan = plan(&Snapshot { startable, launches: vec![chat(1, false)], ..snapshot(1) });
    assert_eq!(plan.wake_at, Some(NOW + REST_PAUSE));
}
