//! `report_completed` and `logout`: the effects of an agent's last call.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, world};
use crate::daemon::Daemon;

const COMPLETED: &str = "The task is completed. Your session ends here: exit now.";
const RECORDED: &str = "Your report is recorded. Your session ends here: exit now.";

fn said(instruction: &str) -> Value {
    json!({ "success": true, "instruction": instruction })
}

/// Returns an agent that has fetched its task.
fn at_work(daemon: &Daemon, agent: &str) -> ByHand {
    let mut agent = ByHand::authenticate(daemon, agent);
    assert_eq!(agent.get_my_task()["has_task"], true);
    agent
}

#[test]
fn a_report_moves_the_task_and_ends_the_session() {
    let daemon = Daemon::crowded("", &world(MINE));
    for (result, instruction, status, outcome) in [
        ("failed", RECORDED, "blocked", "failed"),
        ("blocked", RECORDED, "blocked", "blocked"),
        ("success", COMPLETED, "done", "completed"),
    ] {
        daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
        let mut ann = at_work(&daemon, "agt_a");
        assert_eq!(ann.report(result), said(instruction));
        let task = daemon.json(&["task", "show", "tsk"]);
        assert_eq!(task["status"], status);
        assert_eq!(
            task["blocked_reason"],
            if status == "blocked" { "a summary".into() } else { Value::Null }
        );
        assert_eq!(daemon.ended("agt_a")[0]["outcome"], outcome);
        check_refused(&ann.get_my_task(), "session_ended", "Invalid session: it has ended");
        // The answer may have been lost. A repeated call gets the same answer, and nothing changes.
        assert_eq!(ann.report("failed"), said(instruction));
        assert_eq!(daemon.json(&["task", "show", "tsk"]), task);
    }
}

#[test]
fn a_failure_without_words_still_says_what_it_was() {
    let daemon = Daemon::crowded("", &world(MINE));
    at_work(&daemon, "agt_a").call("report_completed", json!({ "result": "failed" }));
    assert_eq!(
        daemon.json(&["task", "show", "tsk"])["blocked_reason"],
        "the agent reported failure"
    );
}

#[test]
fn what_a_person_decided_meanwhile_wins() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = at_work(&daemon, "agt_a");
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    assert_eq!(ann.report("success"), said(RECORDED));
    assert_eq!(ann.report("success"), said(RECORDED), "once more");
    assert_eq!(daemon.task_status("tsk"), "cancelled");

    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    let mut ann = at_work(&daemon, "agt_a");
    daemon.done(&["task", "set", "tsk", "--assignee", "agt_b"]);
    assert_eq!(ann.report("failed"), said(RECORDED));
    assert_eq!(daemon.task_status("tsk"), "in_progress");
}

#[test]
fn a_report_after_the_task_was_set_done_succeeds() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = at_work(&daemon, "agt_a");
    ann.set("tsk", "done");
    assert_eq!(ann.report("success"), said(COMPLETED));
    assert_eq!(
        (daemon.task_status("tsk"), &daemon.ended("agt_a")[0]["outcome"]),
        ("done".into(), &"completed".into())
    );
}
