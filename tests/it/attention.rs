//! The list of what needs a person: what is in it, what a person does with an entry, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::time::Duration;

use domain::Timestamp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::until;

/// Returns the entries of the inbox, as `kind: title: text`.
fn inbox(daemon: &Daemon, more: &[&str]) -> Vec<String> {
    let listed = daemon.json(&[&["inbox"], more].concat());
    let line = |entry: &Value| {
        let word = |name: &str| entry[name].as_str().unwrap().to_owned();
        format!("{}: {}: {}", word("kind"), word("title"), word("text"))
    };
    listed.as_array().unwrap().iter().map(line).collect()
}

fn id_of(daemon: &Daemon, kind: &str) -> String {
    let listed = daemon.json(&["inbox", "--all", "--kind", kind]);
    listed[0]["id"].as_str().unwrap_or_else(|| panic!("no {kind}: {listed}")).to_owned()
}

/// Starts a daemon with a task that an agent reported as failed, and one that a person blocked.
fn with_failed_and_blocked() -> Daemon {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "get-my-task", "report:failed", "exit:0"]);
    until("the task is blocked", || daemon.task_status("tsk") == "blocked");
    daemon.agent("other", "prj", &["authenticate", "get-my-task", "wait-for:go"]);
    daemon.task("wait", "prj", "other");
    daemon.done(&["task", "set", "wait", "--status", "blocked", "--reason", "the lawyers"]);
    daemon
}

#[test]
fn what_failed_and_what_is_blocked_needs_a_person_until_it_goes_on() {
    let daemon = with_failed_and_blocked();
    assert_eq!(
        inbox(&daemon, &[]),
        [
            "failed: a title: Its agent reported a failure: a summary",
            "blocked: a title: Blocked: the lawyers"
        ]
    );
    let shown = daemon.done(&["inbox"]);
    for expected in ["FAILED (1)", "BLOCKED (1)", "PRJ-2  a title", "-> `task show PRJ-2`"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert_eq!(inbox(&daemon, &["--project", "prj", "--kind", "failed"]).len(), 1);
    daemon.done(&["project", "add", "other", "--directory", &daemon.work().display().to_string()]);
    assert_eq!(inbox(&daemon, &["--project", "other"]), [""; 0]);
    assert_eq!(daemon.cli(&["status", "--exit-code"]).code, 3);
    daemon.done(&["task", "set", "wait", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk", "--status", "cancelled"]);
    assert_eq!(inbox(&daemon, &["--all"]), [""; 0]);
    assert_eq!(daemon.done(&["inbox"]), "Nothing needs you.\n");
    assert_eq!(daemon.cli(&["status", "--exit-code"]).code, 0);
}

#[test]
fn an_entry_that_is_done_or_put_off_is_hidden_until_its_cause_comes_again() {
    let mut daemon = with_failed_and_blocked();
    let (failed, blocked) = (id_of(&daemon, "failed"), id_of(&daemon, "blocked"));
    daemon.done(&["inbox", "done", &blocked]);
    daemon.done(&["inbox", "later", &failed, "--for", "2h"]);
    assert_eq!(inbox(&daemon, &[]), [""; 0]);
    assert_eq!(daemon.cli(&["status", "--exit-code"]).code, 3, "scripts see it");
    daemon.terminate();
    daemon.start();
    let listed = daemon.json(&["inbox", "--all"]);
    let states: Vec<_> = listed.as_array().unwrap().iter().map(|entry| &entry["state"]).collect();
    assert_eq!(states, ["later", "done"]);
    assert!(listed[0]["later_until"].is_string(), "{listed}");
    daemon.done(&["inbox", "reopen", &failed]);
    assert_eq!(inbox(&daemon, &[]).len(), 1);
    // The same task is blocked for another time.
    for status in ["todo", "in_progress", "blocked"] {
        daemon.done(&["task", "set", "wait", "--status", status]);
    }
    assert_eq!(inbox(&daemon, &["--kind", "blocked"]).len(), 1);
    assert_ne!(id_of(&daemon, "blocked"), blocked);
    daemon.done(&["inbox", "done", &id_of(&daemon, "blocked")]);
    let told = daemon.logged("done by a person");
    let told = told.iter().filter(|line| line["what"] == "attention").count();
    assert_eq!(told, 2, "since the restart");
}

#[test]
fn an_entry_that_is_not_there_and_a_time_that_is_over_are_refused() {
    let daemon = with_failed_and_blocked();
    let refused = daemon.cli(&["inbox", "done", "att_0123456789abcdef"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("no present condition has the id"), "{}", refused.stderr);
    assert!(refused.stderr.contains("inbox --all"), "{}", refused.stderr);
    let id = id_of(&daemon, "blocked");
    for delay in ["0s", "400days"] {
        let refused = daemon.cli(&["inbox", "later", &id, "--for", delay]);
        assert_eq!(refused.code, 1, "{delay}");
        assert!(refused.stderr.contains("within a year"), "{}", refused.stderr);
    }
    assert_eq!(daemon.cli(&["inbox", "--kind", "nothing"]).code, 2);
    assert_eq!(inbox(&daemon, &[]).len(), 2);
}

#[test]
fn an_entry_is_put_off_by_the_clock_of_the_server() {
    let daemon = with_failed_and_blocked();
    let id = id_of(&daemon, "blocked");
    let mark = |body: &Value| {
        let path = format!("/api/attention/{id}/mark");
        daemon.post(&path, body)
    };
    let time = || -> Timestamp { serde_json::from_value(daemon.status()["at"].clone()).unwrap() };
    let before = time();
    assert_eq!(mark(&json!({ "forSeconds": 3600 })).0, 204);
    let entry = &daemon.json(&["inbox", "--all", "--kind", "blocked"])[0];
    let until: Timestamp = serde_json::from_value(entry["later_until"].clone()).unwrap();
    let hour = Duration::from_hours(1);
    assert!(before + hour <= until && until <= time() + hour, "{entry}");
    let both = json!({ "forSeconds": 60, "until": until.to_string() });
    let (status, said) = mark(&both);
    assert!(status == 400 && said.contains("not both"), "{status} {said}");
    for seconds in [json!(0), json!(u64::MAX)] {
        let (status, said) = mark(&json!({ "forSeconds": seconds }));
        assert!(status == 409 && said.contains("within a year"), "{status} {said}");
    }
    assert_eq!(mark(&json!({ "until": until.to_string() })).0, 204, "a time is still taken");
}

#[test]
fn a_suspended_agent_says_how_its_last_launch_ended() {
    let daemon = Daemon::running("start: { limit: 2 }\nbackoff: { initial: 1ms, max: 1ms }");
    daemon.with_one_task(&["authenticate", "exit:3"]);
    until("the agent is suspended", || inbox(&daemon, &["--kind", "suspended"]).len() == 1);
    let entry = &daemon.json(&["inbox"])[0];
    let text = entry["text"].as_str().unwrap();
    assert!(text.starts_with("Failed 2 times in a row: No report"), "{text}");
    assert_eq!((&entry["agent_id"], &entry["action"]), (&json!("agt"), &json!("resume")));
    assert!(entry["remedy"].as_str().unwrap().contains("`resume agt prj`"), "{entry}");
    daemon.done(&["stop", "agt", "prj"]);
    assert_eq!(inbox(&daemon, &[]), [""; 0], "a person holds it");
}

#[test]
fn a_chain_that_was_cut_and_a_rejected_configuration_are_there() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "wait-for:go", "exit:0"]);
    daemon.done(&["task", "add", "--id", "one", "--project", "prj", "--title", "One"]);
    daemon.done(&[
        "task",
        "add",
        "--id",
        "two",
        "--project",
        "prj",
        "--title",
        "Two",
        "--assignee",
        "agt",
        "--depends-on",
        "one",
        "--status",
        "in_progress",
    ]);
    daemon.done(&["task", "set", "one", "--status", "cancelled"]);
    let config = fs::read_to_string(daemon.config()).unwrap();
    fs::write(daemon.config(), format!("{config}\nno_such_key: 1\n")).unwrap();
    until("the file is rejected", || inbox(&daemon, &["--kind", "configuration"]).len() == 1);
    let entries = inbox(&daemon, &[]);
    assert_eq!(entries[0], "chain: Two: It is to start after PRJ-1, which was cancelled");
    assert!(entries[1].contains("no_such_key"), "{entries:?}");
    let page = daemon.page("/ui/inbox", "en");
    assert!(page.contains("<title>(2) Inbox"), "{page}");
    let page = daemon.page(&format!("/ui/inbox?item={}", id_of(&daemon, "chain")), "ja");
    assert!(page.contains("取り消されました") && page.contains("/ui/tasks/PRJ-2"), "{page}");
}
