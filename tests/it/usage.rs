//! The usage and the failures of agents, from the lines of their CLIs to the output of `status`,
//! `logs` and `task show`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::{agent_fixture, until, until_some};

/// Returns the file with lines of a CLI.
fn printed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/output").join(name)
}

/// Returns a daemon with an agent that takes its task, prints these lines and waits for `go`. Then
/// the agent takes the other steps.
fn printing(name: &str, rest: &[&str]) -> Daemon {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let print = format!("run:cat {}", printed(name).display());
    let steps = ["authenticate", "get-my-task", &print, "wait-for:go"];
    daemon.with_one_task(&[&steps, rest].concat());
    daemon
}

/// Waits until the launch is shown with its usage, and returns it.
fn until_used(daemon: &Daemon) -> Value {
    until_some("its usage is known", || {
        daemon.open("agt").into_iter().find(|launch| launch["usage"].is_object())
    })
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
    assert_eq!(
        (&launch["progress"], &launch["failure"]),
        (&"I am done.".into(), &Value::Null),
        "{launch}"
    );
    let status = daemon.done(&["status", "--wide"]);
    assert!(
        status.contains("3 turns, 662 tokens, $0.02") && status.contains("I am done."),
        "{status}"
    );

    let ended = go_on(&daemon);
    assert_eq!(
        (&ended["outcome"], &ended["usage"]),
        (&"completed".into(), &claude_usage()),
        "{ended}"
    );
    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(task["executions"][0]["usage"], claude_usage(), "{task}");
    let task = daemon.done(&["task", "show", "tsk"]);
    assert!(task.contains("3 turns, 662 tokens, $0.02"), "{task}");
}

#[test]
fn the_last_line_of_a_program_that_prints_plain_text_is_shown() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let odd = r"head -c 1000000 /dev/zero | tr '\0' 'x'; printf '\n\n-----\n\377\376\000\n \t\nunfinished'";
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        r"run:echo first; printf '\033[1;32mBuilding\033[0m token sess_0123456789abcdefGHIJKLMNOPQRSTUV\n'",
        "wait-for:go",
        &format!("run:{odd}"),
        "wait-for:end",
        "exit:0",
    ]);
    let progress = || {
        daemon
            .open("agt")
            .into_iter()
            .find_map(|launch| launch["progress"].as_str().map(str::to_owned))
    };
    until("its line is shown", || progress().as_deref() == Some("Building token sess_…"));
    assert!(daemon.done(&["status", "--wide"]).contains("Building token sess_…"));
    std::fs::write(daemon.work().join("go"), "").unwrap();
    until("the long line is cut", || {
        progress().is_some_and(|line| line.starts_with("xxx") && line.chars().count() == 160)
    });
    std::fs::write(daemon.work().join("end"), "").unwrap();
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["progress"]),
        (&"exited_without_report".into(), &"unfinished".into()),
        "{ended}"
    );
}

/// Returns the end of an agent that printed these lines and exited without a report.
fn ended_after(name: &str, exit: &str) -> Value {
    let daemon = printing(name, &[exit]);
    go_on(&daemon)
}

#[test]
fn why_an_agent_went_without_a_report_is_kept() {
    let daemon = printing("claude_quota.jsonl", &["exit:1"]);
    let quota = json!({ "class": "quota", "resets_at": "2026-01-01T00:00:00.000Z" });
    let told = until_some("its trouble is known", || {
        daemon.open("agt").into_iter().find(|it| it["failure"].is_object())
    });
    assert_eq!(told["failure"], quota, "{told}");
    let ended = go_on(&daemon);
    assert_eq!(
        (&ended["outcome"], &ended["failure"]),
        (&"exited_without_report".into(), &quota),
        "{ended}"
    );
    assert_eq!(ended["progress"], "API Error: Request rejected (429)", "{ended}");
    assert_eq!(daemon.json(&["task", "show", "tsk"])["executions"][0]["failure"], quota);
    let status = daemon.done(&["status"]);
    assert!(status.contains("exited_without_report: quota"), "{status}");
    assert_eq!(daemon.logged("launch ended")[0]["failure"], "quota");
}

#[test]
fn an_agent_that_broke_without_a_word_crashed() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    daemon.with_one_task(&["authenticate", "get-my-task", "segv"]);
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["failure"], json!({ "class": "crash" }), "{ended}");
    assert_eq!(ended["usage"], Value::Null, "{ended}");
}

#[test]
fn an_agent_that_left_in_peace_had_no_trouble() {
    let ended = ended_after("claude.jsonl", "exit:0");
    assert_eq!(
        (&ended["outcome"], &ended["failure"]),
        (&"exited_without_report".into(), &Value::Null),
        "{ended}"
    );
    let ended = ended_after("claude_overload.jsonl", "report:success");
    assert_eq!(
        (&ended["outcome"], &ended["failure"]),
        (&"completed".into(), &Value::Null),
        "{ended}"
    );
}

#[test]
fn a_daemon_that_comes_back_knows_what_was_taken() {
    let mut daemon = printing("claude.jsonl", &["run:cat extra", "report:success"]);
    until_used(&daemon);
    daemon.kill();
    // The session went on meanwhile: its total includes the earlier usage.
    let more = r#"{"type":"result","session_id":"5d0c2f4e-0000-4000-8000-000000000001","num_turns":5,"total_cost_usd":1}"#;
    daemon.write("work/extra", format!("{more}\n"));
    daemon.start();
    assert_eq!(until_used(&daemon)["usage"], claude_usage());
    let expected = json!({
        "turns": 5, "input_tokens": 342, "output_tokens": 100, "cache_read_tokens": 200, "cache_write_tokens": 20,
        "cost_usd_micros": 1_000_000,
    });
    assert_eq!(go_on(&daemon)["usage"], expected);
}

#[test]
fn what_was_printed_while_no_daemon_was_there_counts() {
    let mut daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    let print = format!("run:cat {}", printed("opencode.jsonl").display());
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        "write:ready",
        "wait-for:go",
        &print,
        "write:gone",
        "exit:0",
    ]);
    daemon.written_pid("ready");
    daemon.kill();
    daemon.write("work/go", "");
    daemon.written_pid("gone");
    daemon.start();
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["usage"]["turns"], &ended["usage"]["cost_usd_micros"]),
        (&2.into(), &540.into()),
        "{ended}"
    );
}

#[test]
fn a_flood_of_output_hides_nothing_that_comes_after_it() {
    let daemon = Daemon::running(
        "output: { max_file: 64 KiB, files: 2 }\nbackoff: { initial: 1h, max: 1h }",
    );
    let print = format!("run:cat {}", printed("claude.jsonl").display());
    let steps = [
        "authenticate",
        "get-my-task",
        "chatter:3000000",
        "long-line:300000",
        &print,
        "report:success",
    ];
    daemon.with_one_task(&steps);
    assert_eq!(daemon.until_ended("agt")["usage"], claude_usage());
}

#[test]
fn logs_are_put_into_words_for_people_and_left_for_programs() {
    let daemon = printing("claude.jsonl", &["print:plain", "report:success"]);
    go_on(&daemon);
    let lines = std::fs::read_to_string(printed("claude.jsonl")).unwrap();
    // Standard output is not a terminal here.
    for as_it_is in [&["logs", "agt", "prj"][..], &["logs", "agt", "prj", "--raw"]] {
        assert!(daemon.done(as_it_is).contains(&lines), "{as_it_is:?}");
    }
    let words = daemon.done(&["logs", "agt", "prj", "--readable"]);
    let (_, words) = words.split_once("started with claude-x\n").unwrap();
    let expected = "First the task.\ncoordinator.get_my_task\n  > {\"has_task\":true}\nattempt 1 failed: overloaded\n! overload\n\
                    Bash: cargo test\n  > test result: FAILED\nI am done.\n= 3 turns, 662 tokens, $0.02\nplain\n";
    assert!(words.starts_with(expected), "{words}");
}

#[test]
fn a_coordinator_elsewhere_tells_its_server() {
    let mut server = Daemon::serving("");
    server.project("prj");
    let print = format!("run:cat {}", printed("claude.jsonl").display());
    server.agent("agt", "prj", &["authenticate", "get-my-task", &print, "wait-for:go", "exit:1"]);
    server.task("tsk", "prj", "agt");
    let socket = format!("unix:{}", server.state().join("mcp.sock").display());
    let mut coordinator = Daemon::supervising(
        &socket,
        "agents: { agt: { passkey: a-passkey } }\npolling_interval: 1s",
    );
    coordinator.start();
    assert_eq!(until_used(&server)["usage"], claude_usage());
    // A server that has lost a report is told again.
    server.kill();
    server.start();
    assert_eq!(until_used(&server)["usage"], claude_usage());
    let ended = go_on(&server);
    assert_eq!(
        (&ended["usage"], &ended["failure"]["class"]),
        (&claude_usage(), &"crash".into()),
        "{ended}"
    );
    coordinator.until_nothing_is_left();
}

#[test]
fn what_agents_used_is_summed_while_they_work_and_after_a_restart() {
    let mut daemon = printing("claude.jsonl", &["report:success"]);
    until_used(&daemon);
    let check = |daemon: &Daemon| {
        for (by, key) in
            [("task", "tsk"), ("agent", "agt"), ("project", "prj"), ("provider", "claude")]
        {
            let sums = daemon.json(&["spend", "--by", by]);
            assert_eq!(sums, json!([{ "key": key, "usage": claude_usage() }]), "{by}");
        }
    };
    check(&daemon);
    go_on(&daemon);
    check(&daemon);
    daemon.kill();
    daemon.start();
    check(&daemon);
    let shown = daemon.done(&["spend", "--by", "month"]);
    assert!(shown.contains("3 turns, 662 tokens, $0.02"), "{shown}");
    assert_eq!(daemon.json(&["spend", "--by", "day", "--since", "2999-01-01"]), json!([]));
    let said = daemon.cli(&["spend", "--by", "day", "--since", "yesterday"]);
    assert!(said.code == 2 && said.stderr.contains("expected a day such as"), "{said:?}");
}

#[test]
fn totals_of_launches_are_shown_and_survive_a_restart() {
    let mut daemon = printing("claude.jsonl", &["report:success"]);
    until_used(&daemon);
    go_on(&daemon);
    daemon.agent("agt_fails", "prj", &["authenticate", "get-my-task", "report:failed"]);
    daemon.task("tsk_fails", "prj", "agt_fails");
    daemon.until_ended("agt_fails");
    let totals = || daemon.status()["totals"].clone();
    until("both are counted", || totals()["projects"][0]["launches"] == 2);
    let mut shown = totals();
    let outcomes = json!({ "completed": 1, "failed": 1 });
    for (group, name, id) in
        [("providers", "provider", "claude"), ("projects", "project_id", "prj")]
    {
        let total = shown[group][0].as_object_mut().unwrap();
        assert!(total.remove("run_time_seconds").unwrap().is_u64());
        let all = json!({
            name: id, "launches": 2, "outcomes": outcomes, "reported_usage": claude_usage(), "launches_with_usage": 1,
        });
        assert_eq!(shown[group], json!([all]));
    }
    let fails = &shown["agents"][1];
    assert_eq!(
        (&fails["agent_id"], &fails["outcomes"]),
        (&"agt_fails".into(), &json!({ "failed": 1 })),
        "{fails}"
    );
    assert_eq!(
        (&fails["launches_with_usage"], &fails["reported_usage"]),
        (&0.into(), &Value::Null),
        "{fails}"
    );

    let metrics = daemon.done(&["metrics"]);
    let pair = r#"provider="claude",agent_id="agt",project_id="prj""#;
    for line in [
        format!("agent_coordinator_launches_total{{{pair},outcome=\"completed\"}} 1\n"),
        format!("agent_coordinator_launches_with_usage_total{{{pair}}} 1\n"),
        format!("agent_coordinator_reported_input_tokens_total{{{pair}}} 342\n"),
        format!("agent_coordinator_reported_cost_usd_micros_total{{{pair}}} 12346\n"),
        format!("agent_coordinator_run_time_seconds_total{{{pair}}} "),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let before = totals();
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.status()["totals"], before);
}

// ── The transcripts that CLIs keep ──

/// Returns the recorded conversations of a CLI.
fn recorded(cli: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts").join(cli)
}

/// Returns a daemon whose agents are those of a preset, and take the steps of [`Daemon::agent`]. The
/// folder of their CLI is `home`.
fn keeping(preset: &str, arguments: &str) -> Daemon {
    let mut daemon = Daemon::configured("");
    let cli = daemon.folder().join("cli");
    std::fs::write(&cli, format!("#!/bin/sh\nexec {} script\n", agent_fixture().display()))
        .unwrap();
    std::fs::set_permissions(&cli, Permissions::from_mode(0o755)).unwrap();
    daemon.configure(&format!(
        "backoff: {{ initial: 1h, max: 1h }}
ai_providers:
  claude:
    preset: {preset}
    cli_command: FOLDER/cli
    cli_args: {arguments}
    environment: {{ CLAUDE_CONFIG_DIR: FOLDER/home, CODEX_HOME: FOLDER/home, QWEN_HOME: FOLDER/home }}"
    ));
    daemon.start();
    daemon
}

#[track_caller]
fn check_two_answers(launch: &Value, input_tokens: u64) {
    let usage = &launch["usage"];
    assert_eq!(usage["input_tokens"], input_tokens, "{launch}");
    assert_eq!(usage["output_tokens"], 100, "{launch}");
    assert_eq!(usage["cache_read_tokens"], 600, "{launch}");
}

#[test]
fn a_killed_agent_has_the_usage_that_its_cli_kept() {
    let id = "9e183f8f-c36d-45a0-bf6a-cb27b068e647";
    let daemon = keeping("claude", "[]");
    let claude = recorded("claude");
    // Its lines are newer than the launch.
    let later = r#"s/"timestamp":"2026-/"timestamp":"2126-/"#;
    let kept = claude.join("killed.transcript.jsonl");
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        r#"run:mkdir -p "$CLAUDE_CONFIG_DIR/projects/x""#,
        &format!(
            r#"run:sed '{later}' {} > "$CLAUDE_CONFIG_DIR/projects/x/{id}.jsonl""#,
            kept.display()
        ),
        &format!("run:cat {}", claude.join("killed.stdout.jsonl").display()),
        "segv",
    ]);
    let ended = daemon.until_ended("agt");
    check_two_answers(&ended, 1200);
    assert_eq!(ended["usage"]["estimated"], true, "{ended}");
}

#[test]
fn a_resumed_agent_has_the_same_usage_of_its_own_however_often_the_daemon_dies() {
    let codex = recorded("codex");
    let read = |name: &str| std::fs::read_to_string(codex.join(name)).unwrap();
    let (before, after) = (read("killed.transcript.jsonl"), read("resumed.transcript.jsonl"));
    let (_, id) = before.split_once(r#""session_id":""#).unwrap();
    let (id, _) = id.split_once('"').unwrap();
    let mut daemon = keeping("codex", &format!("[resume, {id}, '-']"));
    let transcript = daemon.folder().join(format!("home/sessions/2026/11/30/rollout-x-{id}.jsonl"));
    std::fs::create_dir_all(transcript.parent().unwrap()).unwrap();
    std::fs::write(&transcript, &before).unwrap();
    daemon.write("work/more", after.strip_prefix(&before).unwrap());
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        &format!("run:head -n 1 {}", codex.join("resumed.stdout.jsonl").display()),
        &format!("run:cat more >> {}", transcript.display()),
        &format!("run:tail -n +2 {}", codex.join("resumed.stdout.jsonl").display()),
        "wait-for:go",
        "report:success",
    ]);
    let until_counted = |daemon: &Daemon| {
        until_some("both answers are counted", || {
            let mut open = daemon.open("agt").into_iter();
            open.find(|launch| launch["usage"]["input_tokens"].as_u64() > Some(0))
        })
    };
    check_two_answers(&until_counted(&daemon), 1400);
    for _ in 0..3 {
        daemon.kill();
        daemon.start();
        check_two_answers(&until_counted(&daemon), 1400);
    }
    check_two_answers(&go_on(&daemon), 1400);
}

/// The agent behaves like qwen, which prints nothing while it waits.
#[test]
fn an_agent_that_waits_in_silence_parks_its_account_as_its_transcript_tells() {
    let daemon = keeping("qwen", "[]");
    let qwen = recorded("qwen");
    let kept = std::fs::read_to_string(qwen.join("waited.transcript.jsonl")).unwrap();
    // Its lines are newer than the launch.
    let kept = kept.replace(r#""timestamp":"2026-"#, r#""timestamp":"2126-"#);
    let lines: Vec<&str> = kept.lines().collect();
    for (name, part) in [("begun", &lines[..6]), ("refused", &lines[6..8]), ("rest", &lines[8..])] {
        daemon.write(&format!("work/{name}"), part.join("\n") + "\n");
    }
    let transcript =
        daemon.folder().join("home/projects/x/chats/3fc85b8c-9f46-4345-8c9e-8cd0254f9348.jsonl");
    std::fs::create_dir_all(transcript.parent().unwrap()).unwrap();
    let keep = |name: &str| format!("run:cat {name} >> {}", transcript.display());
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        &format!("run:head -n 1 {}", qwen.join("waited.stdout.jsonl").display()),
        &keep("begun"),
        "wait-for:refuse",
        &keep("refused"),
        "wait-for:go",
        &keep("rest"),
        "wait-for:end",
        "report:success",
    ]);
    // From now on, nothing is printed.
    until_used(&daemon);
    daemon.write("work/refuse", "");
    until("the account is parked", || daemon.status()["parked"][0]["reason"] == "quota");
    daemon.agent("agt_b", "prj", &["authenticate", "get-my-task", "report:success"]);
    daemon.task("tsk_b", "prj", "agt_b");
    until("the other agent waits", || {
        let status = daemon.status();
        let mut deferred = status["deferred"].as_array().unwrap().iter();
        deferred.any(|it| it["agent_id"] == "agt_b" && it["reason"] == "parked")
    });
    assert_eq!(daemon.open("agt")[0]["failure"], json!({ "class": "quota" }));
    daemon.write("work/go", "");
    assert_eq!(daemon.until_ended("agt_b")["outcome"], "completed");
    assert_eq!(daemon.status()["parked"], json!([]));
    daemon.write("work/end", "");
    let ended = daemon.until_ended("agt");
    check_two_answers(&ended, 1400);
    assert_eq!(
        (&ended["outcome"], &ended["failure"]),
        (&"completed".into(), &Value::Null),
        "{ended}"
    );
}
