//! The agents that run and those that wait: limits, and accounts that failed.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::{agent_fixture, until, until_some};

/// The steps of an agent that works until the file `go` exists.
const WORKS: [&str; 5] = ["authenticate", "get-my-task", "wait-for:go", "report:success", "exit:0"];

/// Returns a step that prints lines of an agent CLI.
fn print(name: &str) -> String {
    format!(
        "run:cat {}",
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/output").join(name).display()
    )
}

/// Returns settings with the tests' agent as two providers, `claude` and `other`.
fn with_other(settings: &str) -> String {
    let agent = agent_fixture();
    let entry = format!("{{ cli_command: {}, cli_args: [script] }}", agent.display());
    format!("ai_providers:\n  claude: {entry}\n  other: {entry}\n{settings}")
}

/// Adds an agent with this `ai_type`, and a task in progress for it.
fn give_work(daemon: &Daemon, agent: &str, ai_type: &str, steps: &[&str]) {
    daemon.steps(agent, steps);
    daemon.done(&["agent", "add", agent, "--ai-type", ai_type]);
    daemon.done(&["project", "set", "prj", "--assign", agent]);
    daemon.task(&format!("tsk_{agent}"), "prj", agent);
}

/// Waits until an agent's task waits for this reason, and returns the entry.
fn until_deferred(daemon: &Daemon, agent: &str, reason: &str) -> Value {
    until_some(&format!("{agent} waits: {reason}"), || {
        let status = daemon.status();
        let mut deferred = status["deferred"].as_array().unwrap().iter();
        deferred.find(|it| it["agent_id"] == agent && it["reason"] == reason).cloned()
    })
}

fn why(daemon: &Daemon, agent: &str) -> Value {
    daemon.json(&["why", agent, "prj", "--purpose", "task"])[0].clone()
}

/// Returns a daemon in which `agt_a` runs, and `agt_b` with this `ai_type` waits.
fn one_runs_and_one_waits(settings: &str, second: &str, reason: &str) -> Daemon {
    let daemon = Daemon::running(&with_other(settings));
    daemon.project("prj");
    give_work(&daemon, "agt_a", "claude", &WORKS);
    daemon.until_in_state("agt_a", "running");
    give_work(&daemon, "agt_b", second, &WORKS);
    until_deferred(&daemon, "agt_b", reason);
    daemon
}

#[track_caller]
fn check_limit(limit: &str, second: &str, reason: &str) {
    let daemon = one_runs_and_one_waits(
        &format!("max_concurrent: 9\nlimits: {{ {limit}: 1 }}"),
        second,
        reason,
    );
    assert_eq!(why(&daemon, "agt_b")["reason"], reason);
    let told = daemon.done(&["why", "agt_b", "prj"]);
    assert!(told.contains(&format!("limits.{limit}")), "{told}");
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("agt_b");
}

#[test]
fn a_project_and_a_provider_have_no_more_agents_than_they_may() {
    check_limit("per_project", "other", "project_limit");
    check_limit("per_provider", "claude", "provider_limit");
}

#[test]
fn each_limit_that_keeps_a_start_is_told() {
    let limits = "max_concurrent: 1\nlimits: { per_project: 1, per_provider: 1 }";
    let daemon = one_runs_and_one_waits(limits, "claude", "no_free_slot");
    let why = why(&daemon, "agt_b");
    let rules = why["rules"].as_array().unwrap().iter();
    let keep: Vec<&str> = rules
        .filter(|rule| rule["keeps"] == true)
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert_eq!(keep, ["no_free_slot", "project_limit", "provider_limit"], "{why}");
}

#[test]
fn an_agent_works_in_no_more_projects_than_it_may() {
    let daemon = Daemon::running("limits: { per_agent: 1 }");
    daemon.with_one_task(&WORKS);
    daemon.until_in_state("agt", "running");
    daemon.done(&[
        "project",
        "add",
        "prj_b",
        "--directory",
        daemon.work().to_str().unwrap(),
        "--assign",
        "agt",
    ]);
    daemon.task("tsk_b", "prj_b", "agt");
    until_deferred(&daemon, "agt", "agent_limit");
}

#[test]
fn a_slot_is_kept_for_chats() {
    let daemon = Daemon::running("max_concurrent: 2\nlimits: { chat_reserve: 1 }");
    daemon.project("prj");
    give_work(&daemon, "agt_a", "claude", &WORKS);
    daemon.until_in_state("agt_a", "running");
    give_work(&daemon, "agt_b", "claude", &["authenticate", "sleep:600"]);
    until_deferred(&daemon, "agt_b", "chat_reserve");
    daemon.done(&["chat", "start", "agt_b", "prj"]);
    daemon.until_in_state("agt_b", "running");
    until_deferred(&daemon, "agt_b", "no_free_slot");
}

/// Returns the parked accounts that the status shows.
fn parked(daemon: &Daemon) -> Vec<(String, String)> {
    let status = daemon.status();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let parked = status["parked"].as_array().unwrap().iter();
    parked.map(|it| (text(&it["provider"]), text(&it["reason"]))).collect()
}

#[test]
fn a_quota_that_is_used_up_parks_its_provider_and_nobody_else() {
    let mut daemon = Daemon::running(&with_other("parking: { initial: 1h, max: 1h }"));
    daemon.project("prj");
    give_work(
        &daemon,
        "agt_a",
        "claude",
        &["authenticate", "get-my-task", &print("claude_quota.jsonl"), "exit:1"],
    );
    daemon.until_ended("agt_a");
    until("the account is parked", || {
        parked(&daemon) == [("claude".to_owned(), "quota".to_owned())]
    });
    give_work(&daemon, "agt_b", "claude", &["authenticate", "write:b", "sleep:600"]);
    let waits = until_deferred(&daemon, "agt_b", "parked");
    assert!(waits["until"].is_string(), "{waits}");
    // Its own failure causes no backoff: it waits only for its account.
    let why_a = why(&daemon, "agt_a");
    assert_eq!((&why_a["reason"], &why_a["n_failures"]), (&"parked".into(), &0.into()), "{why_a}");
    give_work(&daemon, "agt_c", "other", &["authenticate", "sleep:600"]);
    daemon.until_in_state("agt_c", "running");
    let told = daemon.done(&["status"]);
    assert!(told.contains("parked: claude (quota): no agent of it starts for"), "{told}");
    let told = daemon.done(&["why", "agt_b", "prj"]);
    assert!(
        told.contains("does not start: parked") && told.contains("--provider claude"),
        "{told}"
    );

    daemon.kill();
    daemon.start();
    until_deferred(&daemon, "agt_b", "parked");
    let told = daemon.done(&["resume", "agt_b", "prj"]);
    assert!(told.contains("still parked: claude"), "{told}");
    assert_eq!(parked(&daemon).len(), 1);
    let said = daemon.cli(&["resume", "--provider", "calude"]);
    assert!(
        said.code == 1 && said.stderr.contains("no agent has the ai_type `calude`"),
        "{said:?}"
    );
    daemon.steps("agt_a", &["authenticate", "sleep:600"]);
    daemon.done(&["resume", "--provider", "claude"]);
    daemon.until_in_state("agt_b", "running");
    assert_eq!(parked(&daemon), []);
}

/// The agent behaves like opencode, which tries again as often as it takes.
#[test]
fn an_agent_that_waits_for_its_quota_parks_its_account_until_it_goes_on() {
    let daemon = Daemon::running("max_concurrent: 9\nparking: { initial: 1h, max: 1h }");
    daemon.project("prj");
    let waits = [
        "authenticate",
        "get-my-task",
        &print("opencode_waits.jsonl"),
        "wait-for:go",
        &print("opencode.jsonl"),
        "sleep:600",
    ];
    give_work(&daemon, "agt_a", "claude", &waits);
    until("the account is parked", || {
        parked(&daemon) == [("claude".to_owned(), "quota".to_owned())]
    });
    give_work(&daemon, "agt_b", "claude", &["authenticate", "sleep:600"]);
    until_deferred(&daemon, "agt_b", "parked");
    let status = daemon.status();
    assert_eq!(status["instances"].as_array().unwrap().len(), 1, "{status}");
    let (parked_by, waiting) = (&status["parked"][0], &status["instances"][0]["launch_id"]);
    assert_eq!((&parked_by["tried_by"], &parked_by["guessed"]), (waiting, &json!(true)));
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_in_state("agt_b", "running");
    assert_eq!(parked(&daemon), []);
    daemon.until_in_state("agt_a", "running");
}

#[test]
fn a_login_that_fails_parks_its_provider_for_longer_each_time() {
    let daemon = Daemon::running(
        "parking: { initial: 1s, max: 1h }\nbackoff: { initial: 1ms, max: 1ms }\nstart: { limit: 2 }",
    );
    daemon.project("prj");
    give_work(&daemon, "agt", "claude", &[&print("codex_auth.jsonl"), "exit:1"]);
    // Each try has the same result, and suspends no agent.
    until("it was tried three times", || daemon.ended("agt").len() >= 3);
    let lines = until_some("three parkings are logged", || {
        let message = "account parked: no agent of this provider is started until then, or until it is resumed";
        Some(daemon.logged(message)).filter(|lines| lines.len() >= 3)
    });
    let counted: Vec<&Value> = lines.iter().map(|line| &line["n_failures"]).collect();
    assert_eq!(counted[..3], [&json!(1), &json!(2), &json!(3)]);
    assert_eq!((&lines[0]["reason"], &lines[0]["provider"]), (&"auth".into(), &"claude".into()));
}

/// The agent behaves like claude, which retries for three minutes.
#[test]
fn an_agent_whose_login_is_refused_ends_before_its_start_timeout() {
    let daemon = Daemon::running(
        "parking: { initial: 1h, max: 1h }\nstart: { timeout: 1h }\npolling_interval: 1h",
    );
    daemon.project("prj");
    give_work(&daemon, "agt", "claude", &[&print("claude_auth.jsonl"), "sleep:600"]);
    let ended = daemon.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["failure"]["class"]),
        (&json!("never_authenticated"), &json!("auth")),
        "{ended}"
    );
    until("the account is parked", || {
        parked(&daemon) == [("claude".to_owned(), "auth".to_owned())]
    });
    daemon.until_nothing_is_left();
}

#[test]
fn one_agent_tries_a_parked_account_before_the_others_follow() {
    let daemon = Daemon::running("max_concurrent: 9\nparking: { initial: 2s, max: 1h }");
    daemon.project("prj");
    give_work(&daemon, "agt_a", "claude", &[&print("claude_auth.jsonl"), "exit:1"]);
    daemon.until_ended("agt_a");
    let tries = ["append:starts", "wait-for:go", "authenticate", "sleep:600"];
    daemon.steps("agt_a", &tries);
    give_work(&daemon, "agt_b", "claude", &tries);
    give_work(&daemon, "agt_c", "claude", &tries);
    let n_starts =
        || fs::read_to_string(daemon.work().join("starts")).unwrap_or_default().lines().count();
    until("one is started", || n_starts() == 1);
    daemon.done(&["refresh"]);
    let probe = until_some("it is the one that tries", || {
        let status = daemon.status();
        status["parked"][0]["tried_by"].as_str().map(str::to_owned)
    });
    let status = daemon.status();
    assert_eq!(status["instances"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["instances"][0]["launch_id"], probe.as_str(), "{status}");
    assert!(daemon.done(&["status"]).contains(&format!("{probe} tries whether it works again")));
    fs::write(daemon.work().join("go"), "").unwrap();
    until("all run", || n_starts() == 3);
    until("nothing is parked", || parked(&daemon).is_empty());
}

#[test]
fn who_cannot_work_as_it_is_configured_waits_for_a_person_at_once() {
    let daemon = Daemon::running("backoff: { initial: 1ms, max: 1ms }");
    daemon.project("prj");
    give_work(
        &daemon,
        "agt",
        "claude",
        &["authenticate", "get-my-task", &print("claude_config.jsonl"), "exit:1"],
    );
    daemon.until_ended("agt");
    until_deferred(&daemon, "agt", "misconfigured");
    assert_eq!(daemon.ended("agt").len(), 1);
    assert_eq!(why(&daemon, "agt")["reason"], "misconfigured");
    daemon.steps("agt", &["authenticate", "sleep:600"]);
    daemon.done(&["resume", "agt", "prj"]);
    daemon.until_in_state("agt", "running");
}

#[test]
fn a_machine_with_too_little_free_starts_nothing_and_says_so_once() {
    for (gate, reason) in [("min_free_disk", "low_disk"), ("min_free_memory", "low_memory")] {
        let mut daemon =
            Daemon::running(&format!("limits: {{ {gate}: 1000 TiB }}\npolling_interval: 200ms"));
        daemon.with_one_task(&WORKS);
        let waits = until_deferred(&daemon, "agt", reason);
        let figures = format!("limits.{gate} is 1000.0 TiB");
        assert!(waits["detail"].as_str().unwrap().contains(&figures), "{waits}");
        assert_eq!(why(&daemon, "agt")["reason"], reason);
        assert!(daemon.done(&["why", "agt", "prj"]).contains(&figures));
        daemon.agent("later", "prj", &WORKS);
        daemon.task("tsk_later", "prj", "later");
        until_deferred(&daemon, "later", reason);
        assert_eq!(daemon.logged("no agent starts: free disk space or memory is too low").len(), 1);
        daemon.terminate();
        daemon.configure(&format!("limits: {{ {gate}: 1 }}"));
        daemon.start();
        daemon.until_in_state("agt", "running");
    }
}

/// The steps of an agent that notes its id and is done.
const NOTES: [&str; 5] =
    ["authenticate", "get-my-task", "run:echo $AGENT_ID >>order.txt", "report:success", "exit:0"];

/// Adds a task in progress.
fn add_with_priority(daemon: &Daemon, task: &str, agent: &str, priority: &str) {
    let add = ["task", "add", "--id", task, "--project", "prj", "--title", task];
    let more = ["--assignee", agent, "--status", "in_progress", "--priority", priority];
    daemon.done(&[&add[..], &more].concat());
}

#[test]
fn urgent_tasks_start_first_and_the_claim_gives_that_task() {
    let daemon = Daemon::running("max_concurrent: 1");
    daemon.project("prj");
    daemon.agent("first", "prj", &WORKS);
    daemon.agent("low", "prj", &NOTES);
    daemon.agent("urgent", "prj", &NOTES);
    daemon.task("tsk_first", "prj", "first");
    daemon.until_in_state("first", "running");
    add_with_priority(&daemon, "tsk_low", "low", "low");
    // The agent of the urgent task has an older one, too.
    add_with_priority(&daemon, "tsk_older", "urgent", "low");
    add_with_priority(&daemon, "tsk_urgent", "urgent", "urgent");
    until("the low task says how many are ahead", || {
        daemon.done(&["why", "low", "prj"]).contains("1 start is ahead")
    });
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("low");
    let order = fs::read_to_string(daemon.work().join("order.txt")).unwrap();
    assert!(order.starts_with("urgent\n"), "{order}");
    let shown = daemon.json(&["task", "show", "tsk_urgent"]);
    assert_eq!(shown["executions"].as_array().map(Vec::len), Some(1), "{shown}");
}

#[test]
fn a_start_that_waits_for_long_is_urgent() {
    let daemon = Daemon::running("max_concurrent: 1\nstart: { aging: 1s }");
    daemon.project("prj");
    daemon.agent("first", "prj", &WORKS);
    daemon.agent("low", "prj", &NOTES);
    daemon.agent("high", "prj", &NOTES);
    daemon.task("tsk_first", "prj", "first");
    daemon.until_in_state("first", "running");
    add_with_priority(&daemon, "tsk_low", "low", "low");
    let since = daemon.json(&["task", "show", "tsk_low"])["status_since"].clone();
    let since: jiff::Timestamp = serde_json::from_value(since).unwrap();
    until("the low task has waited for a second", || {
        jiff::Timestamp::now().duration_since(since).as_secs() >= 1
    });
    add_with_priority(&daemon, "tsk_high", "high", "high");
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("high");
    let order = fs::read_to_string(daemon.work().join("order.txt")).unwrap();
    assert_eq!(order, "low\nhigh\n");
}
