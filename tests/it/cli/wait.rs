//! `task wait`, `task add --wait` and `run-once`: commands that end with the work of agents.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use super::check_fails;
use crate::daemon::Daemon;
use crate::support::until;

#[test]
fn a_wait_ends_with_the_outcome_of_the_tasks() {
    let mut daemon = Daemon::running("");
    daemon.project("prj");
    // No agent starts, so that only this test changes the tasks.
    daemon.done(&["pause"]);
    daemon.agent("agt", "prj", &[]);
    for task in ["a", "b", "c"] {
        daemon.task(task, "prj", "agt");
    }
    let said = daemon.cli(&["task", "wait", "a", "PRJ-2", "--timeout", "50ms"]);
    assert_eq!((said.code, said.stdout.as_str()), (124, ""), "{said:?}");
    assert!(said.stderr.contains("PRJ-1 is not over yet"), "{said:?}");
    check_fails(&daemon, &["task", "wait"], 2, "required arguments were not provided");
    check_fails(&daemon, &["task", "wait", "none"], 1, "no task `none`");

    // It goes on after a restart of the daemon.
    let mut command = daemon.command();
    command.args(["task", "wait", "a", "b"]).stdin(Stdio::null());
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.done(&["task", "set", "a", "--status", "done"]);
    // It has reached the daemon when it tells the first end.
    let mut told = String::new();
    let mut lines = BufReader::new(waiting.stdout.take().unwrap());
    lines.read_line(&mut told).unwrap();
    daemon.kill();
    daemon.start();
    daemon.done(&["task", "set", "b", "--status", "cancelled"]);
    let output = waiting.wait_with_output().unwrap();
    lines.read_to_string(&mut told).unwrap();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert_eq!(told, "PRJ-1 is done\nPRJ-2 is cancelled\n");

    daemon.done(&["task", "set", "c", "--status", "blocked", "--reason", "which?"]);
    let said = daemon.cli(&["task", "wait", "a", "b", "c"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.stdout.ends_with("PRJ-3 is blocked: which?\n"), "{said:?}");
    assert_eq!(daemon.done(&["task", "wait", "a"]), "PRJ-1 is done\n");
    assert_eq!(daemon.json(&["task", "wait", "a"])[0]["status"], "done");
}

#[test]
fn a_task_is_added_and_waited_for() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "report:success"]);
    let add = ["task", "add", "--project", "prj", "--title", "t", "--assignee", "agt"];
    let add = [&add[..], &["--status", "in_progress", "--wait"]].concat();
    let said = daemon.done(&[&add[..], &["--id", "tsk"]].concat());
    assert_eq!(said, "tsk\nPRJ-1 is done\n");
    assert_eq!(daemon.json(&add)["status"], "done");
    daemon.steps("agt", &["authenticate", "get-my-task", "report:blocked"]);
    assert_eq!(daemon.cli(&add).code, 4);
    check_fails(
        &daemon,
        &["task", "add", "--project", "prj", "--title", "t", "--timeout", "1s"],
        2,
        "--wait",
    );
}

#[test]
fn an_agent_runs_once_in_the_foreground() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["print:hello", "authenticate", "get-my-task", "exit:3"]);
    check_fails(&daemon, &["run-once", "agt", "prj"], 1, "set a task of it in_progress");
    daemon.done(&["stop", "agt", "prj"]);
    daemon.task("tsk", "prj", "agt");
    daemon.until_ended("agt");
    let said = daemon.cli(&["run-once", "agt", "prj"]);
    assert!(said.code == 1 && said.stdout.starts_with("hello\n"), "{said:?}");
    assert!(said.stderr.contains("exited_without_report; it is held until `resume"), "{said:?}");

    // The agent is repaired, and runs once more.
    daemon.steps("agt", &["print:better", "authenticate", "get-my-task", "report:success"]);
    let said = daemon.cli(&["run-once", "agt", "prj"]);
    assert!(said.code == 0 && said.stdout.starts_with("better\n"), "{said:?}");
    assert_eq!(daemon.ended("agt").len(), 3);

    // It refuses while the agent runs.
    daemon.steps("agt", &["authenticate", "write:ready", "sleep:600"]);
    daemon.task("tsk_2", "prj", "agt");
    daemon.written_pid("ready");
    check_fails(&daemon, &["run-once", "agt", "prj"], 1, "It is running already");
    until("it still runs", || daemon.open("agt").len() == 1);
}

#[test]
fn ctrl_c_stops_the_agent_that_runs_once() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["exit:3"]);
    daemon.task("tsk", "prj", "agt");
    daemon.until_ended("agt");
    daemon.steps("agt", &["print:hello", "authenticate", "sleep:600"]);
    let mut command = daemon.command();
    command.args(["run-once", "agt", "prj"]).stdin(Stdio::null());
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    let pid = nix::unistd::Pid::from_raw(running.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("stopping the agent"), "{said}");
    assert!(said.contains("stopped (") && said.contains("it is held until"), "{said}");
    assert_eq!(daemon.open("agt").len(), 0);
}

#[test]
fn a_wait_ends_when_the_agent_needs_a_person() {
    let daemon = Daemon::running("start: { limit: 1 }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "exit:3"]);
    daemon.task("tsk", "prj", "agt");
    let said = daemon.cli(&["task", "wait", "tsk"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert_eq!(said.stdout, "PRJ-1 needs a person: Failed once in a row: No report\n");
}
