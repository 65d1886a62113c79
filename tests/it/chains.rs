//! Tasks that are laid out in advance: each begins when the tasks before it are done.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use serde_json::json;

use crate::daemon::Daemon;
use crate::support::until;

/// The steps of an agent that notes its task and is done.
const NOTES: [&str; 5] =
    ["authenticate", "get-my-task", "run:echo $AGENT_ID >>order.txt", "report:success", "exit:0"];

/// The steps of an agent that works until the file `go` exists.
const WAITS: [&str; 5] = ["authenticate", "get-my-task", "wait-for:go", "report:success", "exit:0"];

/// Adds tasks in progress, each of which depends on the one before.
fn lay_out(daemon: &Daemon, tasks: &[&str], agent: &str) {
    let mut before: Option<&str> = None;
    for task in tasks {
        let mut add = vec!["task", "add", "--id", task, "--project", "prj", "--title", task];
        add.extend(["--assignee", agent, "--status", "in_progress"]);
        add.extend(before.iter().flat_map(|before| ["--depends-on", before]));
        daemon.done(&add);
        before = Some(task);
    }
}

#[test]
fn a_chain_of_five_tasks_runs_without_a_person_although_the_daemon_is_killed() {
    let mut daemon = Daemon::running("backoff: { initial: 10ms, max: 10ms }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &NOTES);
    let tasks = ["tsk_1", "tsk_2", "tsk_3", "tsk_4", "tsk_5"];
    lay_out(&daemon, &tasks, "agt");
    for task in ["tsk_1", "tsk_3"] {
        until("a task of the chain is done", || daemon.task_status(task) == "done");
        daemon.kill();
        daemon.start();
    }
    until("the chain is done", || daemon.task_status("tsk_5") == "done");
    assert_eq!(tasks.map(|task| daemon.task_status(task)), ["done"; 5]);
    daemon.until_nothing_is_left();
}

#[test]
fn a_manifest_lays_out_a_chain() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &NOTES);
    daemon.apply(
        "
tasks:
  tsk_2: { project: prj, title: t, assignee: agt, status: in_progress, dependencies: [tsk_1] }
  tsk_1: { project: prj, title: t, assignee: agt, status: in_progress }
",
    );
    until("the chain is done", || daemon.task_status("tsk_2") == "done");
    assert_eq!(daemon.task_status("tsk_1"), "done");
}

#[test]
fn a_task_that_waits_says_for_which_and_a_person_can_take_that_back() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &WAITS);
    lay_out(&daemon, &["tsk_1", "tsk_2"], "agt");
    let told = daemon.done(&["task", "set", "tsk_2", "--status", "in_progress"]);
    assert_eq!(told, "PRJ-2 is todo; starts after PRJ-1 (in_progress)\n");
    let shown = daemon.json(&["task", "show", "tsk_2"]);
    let status = (&shown["status"], &shown["starts_after"]);
    assert_eq!(status, (&json!("todo"), &json!(["tsk_1"])));
    let page = daemon.page("/ui/parts/tasks/tsk_2", "en");
    assert!(page.contains("It starts when all of these are done."), "{page}");

    // A dependency that is cancelled is shown, and decided by a person.
    daemon.done(&["task", "set", "tsk_1", "--status", "cancelled"]);
    let shown = daemon.done(&["task", "show", "tsk_2"]);
    assert!(shown.contains("starts after PRJ-1 (cancelled). A cancelled task is never"), "{shown}");
    let status = daemon.done(&["status"]);
    let expected = "PRJ-2: It is to start after PRJ-1, which was cancelled";
    assert!(status.contains(expected), "{status}");
    let page = daemon.page("/ui/parts/tasks/tsk_2", "ja");
    assert!(page.contains("依存タスクが取り消されました"), "{page}");
    assert_eq!(daemon.task_status("tsk_2"), "todo");

    daemon.done(&["task", "set", "tsk_2", "--status", "todo"]);
    let shown = daemon.json(&["task", "show", "tsk_2"]);
    assert_eq!(shown.get("starts_after"), None);
    daemon.done(&["task", "set", "tsk_2", "--no-dependencies"]);
    assert_eq!(daemon.task_status("tsk_2"), "todo");
    fs::write(daemon.work().join("go"), "").unwrap();
}

#[test]
fn a_task_that_is_wanted_lets_a_stopped_agent_start_when_its_turn_comes() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("one", "prj", &WAITS);
    daemon.agent("two", "prj", &NOTES);
    lay_out(&daemon, &["tsk_1"], "one");
    daemon.done(&["stop", "two", "prj"]);
    let mut add = vec!["task", "add", "--id", "tsk_2", "--project", "prj", "--title", "t"];
    add.extend(["--assignee", "two", "--status", "in_progress", "--depends-on", "tsk_1"]);
    daemon.done(&add);
    fs::write(daemon.work().join("go"), "").unwrap();
    until("the chain is done", || daemon.task_status("tsk_2") == "done");
}
