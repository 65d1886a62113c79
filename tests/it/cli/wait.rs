//! `task wait` and `task add --wait`: commands that end with the work of agents.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use super::check_fails;
use crate::daemon::Daemon;

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

/// Adds a task for `agt` and follows it.
const FOLLOW: [&str; 11] = [
    "task",
    "add",
    "--project",
    "prj",
    "--title",
    "t",
    "--assignee",
    "agt",
    "--wait",
    "--follow",
    "--status=in_progress",
];

#[test]
fn the_output_of_the_agent_is_followed_until_its_task_is_over() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    let report = ["authenticate", "get-my-task", "print:works", "report:success", "print:leaves"];
    daemon.agent("agt", "prj", &[&["print:begins"][..], &report].concat());
    let said = daemon.cli(&FOLLOW);
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!((lines.first(), lines.last()), (Some(&"begins"), Some(&"leaves")), "{said:?}");
    let is_own = |line: &&str| line.starts_with("agent-coordinator:");
    assert!(lines.contains(&"works") && !lines.iter().any(is_own), "{said:?}");
    let told: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(told.len(), 4, "{said:?}");
    assert!(told[0].starts_with("agent-coordinator: PRJ-1  tsk_"), "{said:?}");
    assert!(told[1].ends_with(" runs") && told[2].ends_with(" ended: completed"), "{said:?}");
    assert_eq!(told[3], "agent-coordinator: PRJ-1 is done");
    check_fails(
        &daemon,
        &["task", "add", "--project", "prj", "--title", "t", "--follow"],
        2,
        "--wait",
    );
    check_fails(&daemon, &[&FOLLOW[..], &["--json"]].concat(), 2, "--json");
}

#[test]
fn each_launch_for_a_task_is_followed_also_one_without_a_session() {
    let daemon = Daemon::running("backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 2 }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &["print:hello", "exit:3"]);
    let said = daemon.cli(&FOLLOW);
    assert_eq!((said.code, said.stdout.as_str()), (4, "hello\nhello\n"), "{said:?}");
    assert_eq!(said.stderr.matches(" ended: never_authenticated").count(), 2, "{said:?}");
    assert!(said.stderr.contains("PRJ-1 needs a person: "), "{said:?}");
}

#[test]
fn ctrl_c_ends_only_the_command_that_follows() {
    let daemon = Daemon::running("");
    daemon.project("prj");
    // The output of another task of the agent is not printed.
    daemon.agent("agt", "prj", &["print:other", "authenticate", "get-my-task", "report:success"]);
    daemon.task("tsk", "prj", "agt");
    daemon.until_ended("agt");
    daemon.steps("agt", &["print:hello", "authenticate", "get-my-task", "sleep:600"]);
    let mut command = daemon.command();
    command.args(FOLLOW).stdin(Stdio::null());
    let mut following = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(following.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    let pid = nix::unistd::Pid::from_raw(following.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = following.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        told.lines().last(),
        Some(
            "agent-coordinator: PRJ-2 goes on; `logs agt prj --follow` prints the output of its \
             agent, and `task wait PRJ-2` waits for its end"
        ),
        "{told}"
    );
    assert_eq!(daemon.open("agt").len(), 1);
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
