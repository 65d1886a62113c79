//! The tools of coordinators.

use serde_json::{Value, json};

use super::{ByHand, check_refused, claim, should_start, world};
use crate::daemon::Daemon;
use crate::support::until;

#[test]
fn each_reason_for_and_against_a_start_has_its_word() {
    let daemon = Daemon::crowded(
        "backoff: { initial: 1h, max: 1h }",
        "
agents:
  agt_ready: {}
  agt_idle: {}
  agt_stray: {}
  agt_asleep: { status: inactive }
  agt_starting: {}
  agt_running: { passkey: key_running }
  agt_stopping: {}
  agt_held: {}
  agt_failed: { passkey: key_failed }
projects:
  prj:
    working_directory: work
    agents: [agt_ready, agt_idle, agt_asleep, agt_starting, agt_running, agt_stopping, agt_held, agt_failed]
  prj_asleep: { working_directory: work, agents: [agt_ready], status: inactive }
tasks:
  tsk_ready: { project: prj, title: t, assignee: agt_ready, status: in_progress }
  tsk_idle: { project: prj, title: t, assignee: agt_idle, status: todo }
  tsk_asleep: { project: prj, title: t, assignee: agt_asleep, status: in_progress }
  tsk_starting: { project: prj, title: t, assignee: agt_starting, status: in_progress }
  tsk_running: { project: prj, title: t, assignee: agt_running, status: in_progress }
  tsk_stopping: { project: prj, title: t, assignee: agt_stopping, status: in_progress }
  tsk_held: { project: prj, title: t, assignee: agt_held, status: in_progress }
  tsk_failed: { project: prj, title: t, assignee: agt_failed, status: in_progress, priority: high }
  tsk_next: { project: prj, title: t, assignee: agt_failed, status: in_progress }
  tsk_elsewhere: { project: prj_asleep, title: t, assignee: agt_ready, status: in_progress }
",
    );
    claim(&daemon, "agt_starting");
    let ticket = claim(&daemon, "agt_stopping");
    ByHand::with(&daemon, "agt_stopping", &ticket).call("logout", json!({}));
    daemon.done(&["stop", "agt_held", "prj"]);
    ByHand::authenticate(&daemon, "agt_running");
    let mut failing = ByHand::authenticate(&daemon, "agt_failed");
    assert_eq!(failing.get_my_task()["task"]["task_id"], "tsk_failed");
    failing.report("failed");

    let check = |agent: &str, project: &str, reason: &str| {
        let answer = daemon
            .client()
            .call("should_start", &json!({ "agent_id": agent, "project_id": project }));
        assert_eq!(
            answer,
            json!({ "should_start": false, "reason": reason }),
            "{agent} in {project}"
        );
    };
    check("agt_nobody", "prj", "unknown");
    check("agt_ready", "prj_nowhere", "unknown");
    check("agt_stray", "prj", "not_assigned");
    check("agt_asleep", "prj", "inactive");
    check("agt_ready", "prj_asleep", "inactive");
    check("agt_idle", "prj", "no_work");
    check("agt_starting", "prj", "starting");
    check("agt_running", "prj", "running");
    check("agt_stopping", "prj", "stopping");
    check("agt_held", "prj", "held");
    check("agt_failed", "prj", "backoff");
    daemon.cli(&["stop", "--all", "--no-wait"]);
    check("agt_ready", "prj", "paused");
    daemon.done(&["resume"]);
    assert_eq!(should_start(&daemon, "agt_ready", None)["reason"], "ready");
    check("agt_ready", "prj", "starting");
}

#[test]
fn one_of_many_who_ask_at_once_is_told_yes() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    let ask = |n: usize| {
        should_start(&daemon, "agt_a", Some(&format!("crd_{n}")))["should_start"] == true
    };
    let n_yes = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..8).map(|n| scope.spawn(move || ask(n))).collect();
        askers.into_iter().map(|asker| usize::from(asker.join().unwrap())).sum::<usize>()
    });
    assert_eq!(n_yes, 1);
}

#[test]
fn an_agent_is_no_coordinator_unless_it_knows_the_token() {
    let daemon = Daemon::running("");
    let token = std::fs::read_to_string(daemon.state().join("coordinator_token")).unwrap();
    let ask = |more: &str| {
        format!("call:should_start {{\"agent_id\": \"agt\", \"project_id\": \"prj\"{more}}}")
    };
    let with_token = ask(&format!(", \"coordinator_token\": \"{}\"", token.trim()));
    daemon.with_one_task(&[
        &ask(""),
        &ask(", \"coordinator_token\": \"coord_wrong\""),
        &ask(", \"coordinator_id\": \"crd_other\""),
        "call:list_active_projects_with_agents {}",
        &with_token,
        "call:health_check {}",
    ]);
    daemon.until_ended("agt");
    let printed = daemon.done(&["logs", "agt", "prj"]);
    let answers: Vec<Value> =
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers.len(), 6, "{printed}");
    for refused in &answers[..4] {
        assert_eq!(
            *refused,
            json!({
                "success": false, "error": "This tool is for coordinators", "error_code": "coordinator_only",
                "hint": "agents call get_my_task and report_completed",
            })
        );
    }
    assert_eq!(answers[4], json!({ "should_start": false, "reason": "starting" }));
    assert_eq!(answers[5]["status"], "ok");
    let mut client = daemon.client();
    let wrong = client
        .call("list_active_projects_with_agents", &json!({ "coordinator_token": "coord_wrong" }));
    check_refused(&wrong, "coordinator_only", "This tool is for coordinators");
    until("its end is known", || daemon.ended("agt")[0]["outcome"] == "never_authenticated");
}

#[test]
fn a_person_who_insists_ends_what_a_coordinator_left_that_is_not_there() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    assert_eq!(should_start(&daemon, "agt_a", Some("crd_gone"))["should_start"], true);
    let said = daemon.cli(&["stop", "agt_a", "prj"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("--force") && !said.stdout.contains("stopped"), "{said:?}");
    let stopping = json!({ "should_start": false, "reason": "stopping" });
    assert_eq!(should_start(&daemon, "agt_a", Some("crd_gone")), stopping);
    let said = daemon.done(&["stop", "agt_a", "prj", "--force"]);
    assert!(said.contains("stopped"), "{said}");
    let held = json!({ "should_start": false, "reason": "held" });
    assert_eq!(should_start(&daemon, "agt_a", Some("crd_gone")), held);
}

#[test]
fn a_launch_without_its_coordinator_names_the_command_that_ends_it() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    let claim = should_start(&daemon, "agt_a", Some("crd_gone"));
    let started =
        json!({ "coordinator_id": "crd_gone", "launch_id": claim["launch_id"], "pid": 4242 });
    assert_eq!(
        daemon.client().call("report_process_started", &started),
        json!({ "success": true })
    );
    let launch = claim["launch_id"].as_str().unwrap();
    let sentence = format!("oordinator of {launch} is not there");
    let command_line = "f it does not come back, only `stop agt_a prj --force` ends that launch";
    assert_eq!(daemon.open("agt_a")[0]["is_abandoned"], true);
    for command in [vec!["status"], vec!["why", "agt_a", "prj"]] {
        let said = daemon.done(&command);
        assert!(said.contains(&sentence) && said.contains(command_line), "{said}");
    }
    assert!(!daemon.done(&["why", "agt_b", "prj"]).contains("--force"));
    daemon.done(&["stop", "agt_a", "prj", "--force"]);
    assert!(!daemon.done(&["status"]).contains("--force"));
}
