use super::*;
use crate::Timestamp;
use crate::key::{InstanceKey, Purpose};
use crate::launch::{LaunchState, Outcome, ReportResult, StopReason};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn key(project: &str, purpose: Purpose) -> InstanceKey {
    InstanceKey::new("agt".parse().expect("an id"), project.parse().expect("an id"), purpose)
}

/// Returns an open launch of agent `agt` in project `prj`.
fn launch(id: &str, purpose: Purpose, pid: Option<i32>, coordinator: Option<&str>) -> Launch {
    let id = id.parse().expect("an id");
    let claimed = Launch::claimed(id, key("prj", purpose), "claude".to_owned(), NOW, NOW);
    Launch { pid, coordinator: coordinator.map(|id| id.parse().expect("an id")), ..claimed }
}

fn ended(launch: Launch) -> Launch {
    Launch {
        state: LaunchState::Ended { outcome: Outcome::Stopped(StopReason::Person), at: NOW },
        ..launch
    }
}

/// Returns the launch that a report about agent `agt` in project `prj` is about.
fn find(
    launches: &[Launch],
    pid: Option<i32>,
    coordinator: Option<&str>,
) -> Result<String, Refusal> {
    let coordinator = coordinator.map(|id| id.parse::<CoordinatorId>().expect("an id"));
    let key = key("prj", Purpose::Task);
    let by = ReportedBy {
        agent: &key.agent,
        project: &key.project,
        pid,
        coordinator: coordinator.as_ref(),
    };
    launch_to_report(launches, by).map(|id| id.to_string())
}

#[track_caller]
fn check_found(launches: &[Launch], pid: Option<i32>, expected: &str) {
    assert_eq!(find(launches, pid, None).as_deref(), Ok(expected));
}

#[track_caller]
fn check_refused(launches: &[Launch], pid: Option<i32>, expected: &str) {
    assert_eq!(find(launches, pid, None).expect_err("refused").to_string(), expected);
}

#[test]
fn a_report_is_about_the_only_launch_that_fits() {
    let task = launch("lch_t", Purpose::Task, None, None);
    let chat = launch("lch_c", Purpose::Chat, None, None);
    check_found(std::slice::from_ref(&task), None, "lch_t");
    check_found(std::slice::from_ref(&task), Some(7), "lch_t");
    check_found(&[task.clone(), ended(chat.clone())], None, "lch_t");
    check_refused(&[], None, "No launch of agt in prj is open");
    check_refused(
        &[ended(task.clone())],
        Some(7),
        "No launch of agt in prj is open that process 7 could be of",
    );
    check_refused(
        &[task, chat],
        None,
        "More than one launch of agt in prj fits: lch_t (task), lch_c (chat)",
    );
}

#[test]
fn a_known_process_means_its_own_launch_and_no_other() {
    let task = launch("lch_t", Purpose::Task, Some(7), None);
    let chat = launch("lch_c", Purpose::Chat, Some(8), None);
    let both = [task.clone(), chat.clone()];
    check_found(&both, Some(7), "lch_t");
    check_found(&both, Some(8), "lch_c");
    check_refused(&both, Some(9), "No launch of agt in prj is open that process 9 could be of");
    // The report is repeated after the end of the launch.
    check_found(&[ended(task.clone()), chat.clone()], Some(7), "lch_t");
    // The process id was used again.
    let again = launch("lch_again", Purpose::Task, Some(7), None);
    check_found(&[ended(task), again, chat], Some(7), "lch_again");
}

#[test]
fn a_report_after_that_of_the_agent_is_about_the_launch_that_the_agent_has_ended() {
    let reported = |id: &str, coordinator: Option<&str>, at: i64| Launch {
        report: Some(ReportResult::Success),
        claimed_at: Timestamp::from_millis(at),
        ..ended(launch(id, Purpose::Task, None, coordinator))
    };
    let both = [reported("lch_1", None, 1), reported("lch_2", None, 2)];
    check_found(&both, None, "lch_2");
    check_found(&both, Some(7), "lch_2");
    // A newer launch is meant while it is open. A launch that ended without a report is not meant,
    // and does not make an older one meant.
    let open = launch("lch_open", Purpose::Task, None, None);
    check_found(&[both[0].clone(), open.clone()], None, "lch_open");
    check_refused(&[both[0].clone(), ended(open)], None, "No launch of agt in prj is open");
    check_refused(
        &[reported("lch", Some("crd_keeper"), 1)],
        None,
        "No launch of agt in prj is open",
    );
    let of_process = Launch { pid: Some(8), ..reported("lch", None, 1) };
    check_refused(
        &[of_process],
        Some(7),
        "No launch of agt in prj is open that process 7 could be of",
    );
}

#[test]
fn a_launch_that_another_coordinator_keeps_is_not_ended_by_a_guess() {
    let kept = [launch("lch", Purpose::Task, None, Some("crd_keeper"))];
    check_refused(&kept, None, "No launch of agt in prj is open");
    check_refused(&kept, Some(7), "No launch of agt in prj is open that process 7 could be of");
    assert!(find(&kept, None, Some("crd_other")).is_err());
    assert_eq!(find(&kept, None, Some("crd_keeper")).as_deref(), Ok("lch"));
}

#[test]
fn a_launch_that_another_coordinator_keeps_is_not_ended_by_its_process_either() {
    let kept = [launch("lch", Purpose::Task, Some(7), Some("crd_keeper"))];
    check_refused(&kept, Some(7), "No launch of agt in prj is open that process 7 could be of");
    assert!(find(&kept, Some(7), Some("crd_other")).is_err());
    assert_eq!(find(&kept, Some(7), Some("crd_keeper")).as_deref(), Ok("lch"));
}

#[test]
fn launches_of_other_pairs_are_not_looked_at() {
    let elsewhere =
        Launch { key: key("prj_2", Purpose::Task), ..launch("lch", Purpose::Task, Some(7), None) };
    check_refused(
        &[elsewhere],
        Some(7),
        "No launch of agt in prj is open that process 7 could be of",
    );
}
