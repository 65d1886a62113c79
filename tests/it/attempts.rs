//! What a second attempt at a task knows of the first.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::redacted::redacted;
use crate::support::{agent_fixture, until};

/// Starts a daemon whose agents keep their prompts and retry at once.
fn daemon(language: &str) -> Daemon {
    let agent = agent_fixture();
    Daemon::running(&format!(
        "language: {language}\nbackoff: {{ initial: 10ms, max: 10ms }}\nrun: {{ linger: 0 }}\n\
         ai_providers:\n  claude:\n    cli_command: {}\n    prompt: stdin\n    \
         cli_args: ['run:cat >prompt.$AGENT_ATTEMPT', script]\n",
        agent.display()
    ))
}

/// The steps of an agent that keeps its task of each attempt in a file.
const KEEP_TASK: [&str; 2] = ["authenticate", "run:call get_my_task >task.$AGENT_ATTEMPT"];

/// Returns the prompt of an attempt.
fn prompt(daemon: &Daemon, attempt: u32) -> String {
    fs::read_to_string(daemon.work().join(format!("prompt.{attempt}"))).unwrap()
}

/// Returns the task as an attempt got it.
fn task(daemon: &Daemon, attempt: u32) -> Value {
    let answer = fs::read_to_string(daemon.work().join(format!("task.{attempt}"))).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["task"].clone()
}

#[test]
fn a_second_attempt_knows_how_the_first_ended() {
    let daemon = daemon("en");
    let said = json!({ "id": "m", "content": [{ "type": "text", "text": "half way" }] });
    let line = json!({ "type": "assistant", "session_id": "s", "message": said });
    fs::write(daemon.work().join("line"), format!("{line}\n")).unwrap();
    let steps = [
        &KEEP_TASK[..],
        &[
            "run:[ $AGENT_ATTEMPT != 1 ] || { cat line; exit 3; }",
            "run:[ $AGENT_ATTEMPT != 2 ] || kill -KILL $$",
            "report:success",
        ],
    ];
    daemon.with_one_task(&steps.concat());
    until("the task is done", || daemon.task_status("tsk") == "done");

    let first = task(&daemon, 1);
    assert_eq!((&first["attempt"], first.get("last_end")), (&1.into(), None));
    let second = task(&daemon, 2);
    assert_eq!(second["attempt"], 2);
    let end = json!({
        "outcome": "exited_without_report", "failure": "crash", "last_line": "half way",
        "at": "[at]",
    });
    assert_eq!(redacted(&second["last_end"]), end);
    assert_eq!(second["context"]["outcome"], "exited_without_report");
    let third = task(&daemon, 3);
    assert_eq!((&third["attempt"], &third["last_end"]["outcome"]), (&3.into(), &end["outcome"]));

    assert!(!prompt(&daemon, 1).contains("attempt"), "{}", prompt(&daemon, 1));
    let sentence =
        "\n\nThis is attempt 2 at your task: the one before ended without report_completed.\n\n";
    assert!(prompt(&daemon, 2).contains(sentence), "{}", prompt(&daemon, 2));
    assert!(!prompt(&daemon, 2).contains("half way"));
}

#[test]
fn an_attempt_after_a_report_or_a_stop_names_it_in_the_language_of_the_agents() {
    let daemon = daemon("ja");
    daemon.with_one_task(&[&KEEP_TASK[..], &["report:failed"]].concat());
    until("the task is blocked", || daemon.task_status("tsk") == "blocked");
    daemon.steps("agt", &[&KEEP_TASK[..], &["sleep:600"]].concat());
    daemon.done(&["task", "set", "PRJ-1", "--status", "in_progress"]);
    let has_task = || fs::read_to_string(daemon.work().join("task.2"));
    until("it has its task", || has_task().is_ok_and(|answer| answer.contains("task_id")));
    daemon.until_in_state("agt", "running");
    daemon.done(&["stop", "agt", "prj"]);
    // Another agent goes on, and its attempts are counted with those of the first.
    daemon.agent("bob", "prj", &[&KEEP_TASK[..], &["report:success"]].concat());
    let handed_over = ["task", "set", "PRJ-1", "--assignee", "bob", "--status", "in_progress"];
    daemon.done(&handed_over);
    until("the task is done", || daemon.task_status("tsk") == "done");

    assert!(
        prompt(&daemon, 2)
            .contains("これはタスクの 2 回目の試行です。前回は失敗を報告して終了しました。")
    );
    assert!(
        prompt(&daemon, 3)
            .contains("これはタスクの 3 回目の試行です。前回はユーザーによって停止されました。")
    );
    let end = &task(&daemon, 3)["last_end"];
    assert_eq!((&end["outcome"], &end["reason"]), (&"stopped".into(), &"person".into()));
}

#[test]
fn a_chat_is_always_a_first_attempt() {
    let daemon = daemon("en");
    daemon.with_one_task(&[&KEEP_TASK[..], &["report:failed"]].concat());
    until("the task is blocked", || daemon.task_status("tsk") == "blocked");
    daemon.steps("agt", &["env:environment", "authenticate", "sleep:600"]);
    daemon.done(&["chat", "start", "agt", "prj"]);
    until("the chat has begun", || daemon.work().join("environment").exists());
    let environment = fs::read_to_string(daemon.work().join("environment")).unwrap();
    assert!(environment.lines().any(|line| line == "AGENT_ATTEMPT=1"), "{environment}");
    assert!(!prompt(&daemon, 1).contains("attempt"));
}
