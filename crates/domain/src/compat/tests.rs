use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::account::Account;
use crate::agent::AgentStatus;
use crate::key::{InstanceKey, Purpose};
use crate::start_history::{OpenLaunch, StartHistory};
use crate::workspace::WorkspaceMode;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_mins(5) };
const STARTING: LaunchState = LaunchState::Starting { deadline: NOW };

fn key(project: &str, purpose: Purpose) -> InstanceKey {
    InstanceKey::new("agt".parse().expect("an id"), project.parse().expect("an id"), purpose)
}

/// Returns a pair whose work waits since then, with a launch in that state.
fn pair(project: &str, waiting_since: Option<i64>, open: Option<LaunchState>) -> StartFacts {
    let key = key(project, Purpose::Task);
    StartFacts {
        workspace_mode: WorkspaceMode::Shared,
        clone: None,
        record: StartHistory::new(key.clone()),
        key,
        agent: Some((AgentStatus::Active, "claude".to_owned())),
        project: Some((ProjectStatus::Active, PathBuf::from("dir"))),
        is_assigned: true,
        waiting_since: waiting_since.map(Timestamp::from_millis),
        task: None,
        open: open.map(|state| OpenLaunch { id: "lch".parse().expect("an id"), state }),
        account: Account::new("claude".to_owned()),
        is_paused: false,
    }
}

fn running() -> LaunchState {
    LaunchState::Running { session: "ses".parse().expect("an id") }
}

#[track_caller]
fn check_start(pairs: Vec<StartFacts>, expected: Option<&str>) {
    let found = pair_to_start(pairs, BACKOFF, NOW).map(|pair| pair.key.project.to_string());
    assert_eq!(found.as_deref(), expected);
}

#[test]
fn a_start_without_a_project_is_where_work_waits_longest() {
    check_start(vec![], None);
    check_start(
        vec![pair("a", None, None), pair("b", Some(20), None), pair("c", Some(10), None)],
        Some("c"),
    );
    check_start(vec![pair("a", Some(10), Some(running())), pair("b", Some(20), None)], Some("b"));
    check_start(vec![pair("a", None, None), pair("b", Some(10), Some(running()))], Some("b"));
    check_start(
        vec![pair("a", Some(10), Some(running())), pair("b", Some(20), Some(STARTING))],
        Some("b"),
    );
    let held = StartFacts {
        record: StartHistory::new(key("a", Purpose::Task)).held(NOW),
        ..pair("a", Some(10), None)
    };
    check_start(vec![held.clone(), pair("b", Some(20), None)], Some("b"));
    check_start(vec![pair("b", None, None), held], Some("a"));
}

#[track_caller]
fn check_enter(pairs: Vec<StartFacts>, expected: Option<&str>) {
    let found = pair_to_enter(pairs).map(|pair| pair.key.project.to_string());
    assert_eq!(found.as_deref(), expected);
}

#[test]
fn a_session_without_a_project_is_where_the_agent_is_starting_or_awaited() {
    check_enter(vec![], None);
    check_enter(vec![pair("a", None, None)], Some("a"));
    check_enter(vec![pair("a", None, None), pair("b", None, None)], None);
    check_enter(vec![pair("a", Some(10), None), pair("b", Some(20), Some(STARTING))], Some("b"));
    check_enter(
        vec![pair("a", None, None), pair("b", Some(20), None), pair("c", Some(10), None)],
        Some("c"),
    );
    check_enter(vec![pair("a", Some(10), Some(running())), pair("b", Some(20), None)], Some("b"));
    check_enter(vec![pair("a", Some(10), Some(running())), pair("b", None, None)], Some("a"));
    let asleep = StartFacts {
        project: Some((ProjectStatus::Archived, PathBuf::from("dir"))),
        ..pair("a", Some(10), None)
    };
    check_enter(vec![asleep, pair("b", Some(20), None)], Some("b"));
}
