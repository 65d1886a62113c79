//! Sessions of agents that were started by hand, their time limits, and invalid tokens.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, should_start, world};
use crate::daemon::Daemon;
use crate::support::{is_gone, until};

#[test]
fn an_agent_started_by_hand_works_and_blocks_a_twin_until_it_reports() {
    let daemon = Daemon::running("");
    daemon.steps("agt_a", &["authenticate", "sleep:600"]);
    daemon.apply(&world(""));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    daemon.task("tsk", "prj", "agt_a");
    assert_eq!(ann.get_my_task()["task"]["task_id"], "tsk");
    assert_eq!(should_start(&daemon, "agt_a", None)["reason"], "running");
    let open = daemon.open("agt_a");
    assert_eq!(
        (open.len(), &open[0]["state"], &open[0]["task_id"]),
        (1, &"running".into(), &"tsk".into())
    );
    assert_eq!(open[0].get("pid"), None);
    // The daemon itself starts no agent beside it, only after it.
    assert_eq!(daemon.status()["counters"]["starts"], 0);
    daemon.task("tsk_next", "prj", "agt_a");
    ann.report("success");
    daemon.until_in_state("agt_a", "running");
    assert_eq!(daemon.status()["counters"]["starts"], 1);
}

#[test]
fn each_launch_that_no_coordinator_keeps_is_logged_and_counted_when_it_ends() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    ann.get_my_task();
    ann.report("success");
    ByHand::authenticate(&daemon, "agt_b").call("logout", json!({}));
    for (agent, outcome) in [("agt_a", "completed"), ("agt_b", "exited_without_report")] {
        until("the log has its end", || {
            let mut ended = daemon.logged("launch ended").into_iter();
            ended.any(|line| line["agent_id"] == agent && line["outcome"] == outcome)
        });
    }
    let metrics = daemon.done(&["metrics"]);
    for outcome in ["completed", "exited_without_report"] {
        let sample = format!("agent_coordinator_ends_total{{outcome=\"{outcome}\"}} 1");
        assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    }
}

#[test]
fn silence_ends_the_session_of_an_agent_that_nobody_keeps() {
    let daemon =
        Daemon::crowded("session: { default_timeout: 1s, cleanup_interval: 1s }", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    assert_eq!(ann.get_my_task()["has_task"], true);
    let ended = daemon.until_ended("agt_a");
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"timed_out".into(), &"session_idle".into())
    );
    check_refused(&ann.get_my_task(), "session_expired", "Session has expired");
    check_refused(&ann.report("success"), "session_expired", "Session has expired");
    assert_eq!(daemon.task_status("tsk"), "in_progress");
    // Its slot is free.
    ByHand::authenticate(&daemon, "agt_a");
}

#[test]
fn an_expired_session_is_refused_also_before_it_is_cleaned_up() {
    let daemon =
        Daemon::crowded("session: { default_timeout: 1s, cleanup_interval: 1h }", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let begun = std::time::Instant::now();
    until("a second has passed", || begun.elapsed() > std::time::Duration::from_millis(1_100));
    check_refused(&ann.report("success"), "session_expired", "Session has expired");
    check_refused(&ann.get_my_task(), "session_expired", "Session has expired");
}

#[test]
fn every_call_is_a_sign_of_life_also_a_refused_one() {
    let tasks =
        format!("{MINE}  tsk_part: {{ project: prj, parent: tsk, title: t, status: todo }}\n");
    let daemon =
        Daemon::crowded("session: { default_timeout: 1s, cleanup_interval: 1s }", &world(&tasks));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    ann.get_my_task();
    let begun = std::time::Instant::now();
    until("more than a second has passed", || {
        // The agent calls up to its rate limit, too.
        let code = ann.report("success")["error_code"].clone();
        assert!(code == "subtasks_open" || code == "rate_limited", "{code}");
        begun.elapsed() > std::time::Duration::from_millis(2_200)
    });
    assert_eq!(daemon.open("agt_a").len(), 1);
}

#[test]
fn a_session_past_its_maximum_is_ended_with_its_process() {
    let session = "session: { default_timeout: 1s, max_timeout: 1s, cleanup_interval: 1s }";
    let daemon = Daemon::running(&format!("backoff: {{ initial: 1h, max: 1h }}\n{session}"));
    daemon.with_one_task(&["authenticate", "get-my-task", "write:started", "sleep:600"]);
    let pid = daemon.written_pid("started");
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"timed_out".into(), &"session_maximum".into())
    );
    assert_eq!(ended["signal"], 15);
    assert!(is_gone(pid));
}

#[test]
fn no_secret_is_in_the_log() {
    let daemon = Daemon::crowded("log: { level: trace }", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    ann.report("success");
    daemon.task("tsk_next", "prj", "agt_a");
    let ticket = super::claim(&daemon, "agt_a");
    let by_ticket = ByHand::with(&daemon, "agt_a", &ticket);
    let mistyped = json!({ "agent_id": "agt_a", "passkey": 271_828_182, "project_id": "prj" });
    assert_eq!(daemon.client().call("authenticate", &mistyped)["error_code"], "invalid_arguments");
    let log = daemon.log();
    for secret in ["key_a", &ann.token, &ticket, &by_ticket.token, "271828182", "a summary"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret}: {}", line.unwrap());
    }
}

#[test]
fn a_session_is_shown_with_its_last_call() {
    let daemon = Daemon::crowded("session: { cleanup_interval: 1h }", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    let shown =
        |arguments: &[&str]| daemon.json(&[&["session", "list"], arguments].concat())[0].clone();
    let is_later =
        |session: &Value| session["last_seen_at"].as_str() > session["created_at"].as_str();
    until("a call is shown", || {
        ann.get_my_task();
        is_later(&shown(&[]))
    });
    let id = shown(&[])["id"].as_str().unwrap_or_default().to_owned();
    let seen = shown(&[])["last_seen_at"].clone();
    assert_eq!(daemon.json(&["session", "list"])[0]["last_seen_at"], seen, "{id} did not call");
    ann.report("success");
    let ended = shown(&["--all"]);
    assert_eq!((&ended["id"], &ended["end_reason"]), (&id.into(), &"reported".into()));
    assert!(is_later(&ended), "{ended}");
}
