//! What agents take and how they fail, from the lines that their CLIs print to what `status`, `logs` and `task show` tell.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::until_some;

/// Lines as a CLI prints them.
fn printed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/output").join(name)
}

/// A daemon with an agent that takes its task, prints these lines and waits for `go`; then it does the rest.
fn printing(name: &str, rest: &[&str]) -> Daemon {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let print = format!("run:cat {}", printed(name).display());
    let steps = ["authenticate", "get-my-task", &print, "wait-for:go"];
    daemon.with_one_task(&[&steps, rest].concat());
    daemon
}

/// The launch once it is shown with its usage.
fn until_used(daemon: &Daemon) -> Value {
    until_some("its usage is known", || daemon.open("agt").into_iter().find(|launch| launch["usage"].is_object()))
}

fn go_on(daemon: &Daemon) -> Value {
    std::fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("agt")
}

fn claude_usage() -> Value {
    json!({
        "turns": 3, "input_tokens": 342, "output_tokens": 100, "cache_read_tokens": 200, "cache_write_tokens": 20,
        "cost_usd_micros": 12346,
    })
}

#[test]
fn what_a_running_agent_takes_and_does_is_shown() {
    let daemon = printing("claude.jsonl", &["report:success"]);
    let launch = until_used(&daemon);
    assert_eq!(launch["usage"], claude_usage(), "{launch}");
    assert_eq!((&launch["progress"], &launch["failure"]), (&"I am done.".into(), &Value::Null), "{launch}");
    let status = daemon.done(&["status"]);
    assert!(status.contains("3 turns, 662 tokens, $0.01") && status.contains("I am done."), "{status}");

    let ended = go_on(&daemon);
    assert_eq!((&ended["outcome"], &ended["usage"]), (&"completed".into(), &claude_usage()), "{ended}");
    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(task["executions"][0]["usage"], claude_usage(), "{task}");
    let task = daemon.done(&["task", "show", "tsk"]);
    assert!(task.contains("3 turns, 662 tokens, $0.01"), "{task}");
}
