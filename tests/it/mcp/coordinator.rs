//! The tools of coordinators.

use serde_json::{Value, json};

use super::{ByHand, check_refused, claim, should_start, world};
use crate::daemon::Daemon;
use crate::redacted::redacted;
use crate::support::until;

#[test]
fn health_check_says_who_answers_and_how_much_there_is() {
    let daemon = Daemon::crowded("", &world(""));
    let health = daemon.client().call("health_check", &json!({}));
    assert_eq!(
        redacted(&health),
        json!({
            "status": "ok", "version": "[version]", "timestamp": "[timestamp]", "agent_count": 3, "project_count": 3,
        })
    );
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    health["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
}

#[test]
fn active_projects_are_listed_with_their_active_agents() {
    let daemon = Daemon::crowded("", &world(""));
    daemon.apply(
        "
agents:
  agt_idle: { status: inactive }
  agt_a: { name: Ann }
projects:
  prj_2: { name: Another, working_directory: /somewhere, agents: [agt_idle] }
  prj_asleep: { working_directory: work, agents: [agt_a], status: inactive }
  prj_old: { working_directory: work, agents: [agt_a], status: archived }
  prj_new: { working_directory: work }
",
    );
    let list = |arguments: Value| daemon.client().call("list_active_projects_with_agents", &arguments);
    let project = |id: &str, name: &str, agents: &[&str]| json!({ "project_id": id, "project_name": name, "working_directory": "[working_directory]", "agents": agents });
    let all = [
        project("prj", "Project", &["agt_a", "agt_b"]),
        project("prj_2", "Another", &["agt_a"]),
        project("prj_busy", "prj_busy", &["agt_busy"]),
        project("prj_new", "prj_new", &[]),
    ];
    let whole = list(json!({}));
    assert_eq!(redacted(&whole), json!({ "success": true, "projects": all }));
    assert_eq!(whole["projects"][1]["working_directory"], "/somewhere");

    let first = list(json!({ "limit": 3 }));
    assert_eq!(redacted(&first), json!({ "success": true, "projects": all[..3], "next_cursor": "prj_busy" }));
    let second = list(json!({ "limit": 3, "cursor": "prj_busy", "coordinator_id": "crd_test" }));
    assert_eq!(redacted(&second), json!({ "success": true, "projects": all[3..] }));
    assert_eq!(list(json!({ "limit": 4 })), whole);
    assert_eq!(list(json!({ "cursor": "zzz" })), json!({ "success": true, "projects": [] }));
}

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
        let answer = daemon.client().call("should_start", &json!({ "agent_id": agent, "project_id": project }));
        assert_eq!(answer, json!({ "should_start": false, "reason": reason }), "{agent} in {project}");
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
fn a_yes_reserves_the_start_for_who_asked() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    let yes = should_start(&daemon, "agt_a", Some("crd_one"));
    let expected = json!({
        "should_start": true, "reason": "ready", "ai_type": "claude", "purpose": "task", "launch_id": "[launch_id]",
        "start_deadline": "[start_deadline]", "launch_ticket": "[launch_ticket]",
    });
    assert_eq!(redacted(&yes), expected);
    yes["start_deadline"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();

    let no = json!({ "should_start": false, "reason": "starting" });
    assert_eq!(should_start(&daemon, "agt_a", Some("crd_two")), no);
    assert_eq!(should_start(&daemon, "agt_a", None), no);
    let again = should_start(&daemon, "agt_a", Some("crd_one"));
    assert_eq!(redacted(&again), expected);
    assert_eq!((&again["launch_id"], &again["start_deadline"]), (&yes["launch_id"], &yes["start_deadline"]));
    // An agent that was started after the first answer goes on with what it has.
    assert_eq!(again["launch_ticket"], yes["launch_ticket"]);

    let with = |ticket: &Value| {
        daemon.client().call("authenticate", &super::credentials("agt_a", ticket.as_str().unwrap(), "prj"))
    };
    assert_eq!(with(&again["launch_ticket"])["success"], true);
    let running = json!({ "should_start": false, "reason": "running" });
    assert_eq!(should_start(&daemon, "agt_a", Some("crd_one")), running);
}

#[test]
fn a_ticket_is_only_for_a_coordinator_that_says_its_name() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    let yes = should_start(&daemon, "agt_a", None);
    assert_eq!(
        redacted(&yes),
        json!({
            "should_start": true, "reason": "ready", "ai_type": "claude", "purpose": "task", "launch_id": "[launch_id]",
            "start_deadline": "[start_deadline]",
        })
    );
    // Seed 004's coordinator starts the agent with its passkey: it takes the reservation.
    ByHand::authenticate(&daemon, "agt_a");
    assert_eq!(daemon.open("agt_a")[0]["launch_id"], yes["launch_id"]);
}

#[test]
fn one_of_many_who_ask_at_once_is_told_yes() {
    let daemon = Daemon::crowded("", &world(super::MINE));
    let ask = |n: usize| should_start(&daemon, "agt_a", Some(&format!("crd_{n}")))["should_start"] == true;
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
    let ask = |more: &str| format!("call:should_start {{\"agent_id\": \"agt\", \"project_id\": \"prj\"{more}}}");
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
    let answers: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
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
    let wrong = client.call("list_active_projects_with_agents", &json!({ "coordinator_token": "coord_wrong" }));
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
