//! The view of people and their monitoring: the states of agents, their problems, their ends, and
//! the metrics.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use machine::instance_dir;
use machine::instance_dir::record::{self, Exit};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::{kill, skip, until, until_some};

/// Returns the value of a sample by its name with labels.
fn sample(metrics: &str, name: &str) -> Option<u64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Monitoring reads these lines: a change of a name, a label or a class breaks its queries.
#[test]
fn metrics_keep_their_names_labels_and_help() {
    let daemon = Daemon::running(IN_A_FILE);
    let metrics = until_some("the coordinator has reported", || {
        Some(daemon.done(&["metrics"])).filter(|metrics| metrics.contains("coordinator_id"))
    });
    let form_of = |line: &str| match line.rsplit_once(' ') {
        Some((sample, _)) if !line.starts_with('#') => match sample.split_once("coordinator_id") {
            Some((name, _)) => format!("{name}coordinator_id=\"ID\"}} N"),
            None => format!("{sample} N"),
        },
        _ => line.to_owned(),
    };
    // The first cleanup adds this sample at some moment.
    let is_stable = |line: &&str| !line.starts_with("agent_coordinator_forgotten_total{");
    let text: Vec<String> = metrics.lines().filter(is_stable).map(form_of).collect();
    insta::assert_snapshot!("metrics", text.join("\n"));
}

#[test]
fn an_agent_stopped_by_a_signal_is_shown_and_a_killed_one_says_why() {
    let daemon = Daemon::running("backoff: { initial: 1m }");
    daemon.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = daemon.written_pid("ready");
    kill(agent, Signal::STOP);
    until("it is shown", || {
        daemon.open("agt")[0]["suspended_since"].is_number()
            || daemon.open("agt")[0]["suspended_since"].is_string()
    });
    let shown = daemon.done(&["status"]);
    assert!(shown.contains("running (stopped by a signal)"), "{shown}");
    assert_eq!(
        sample(&daemon.done(&["metrics"]), "agent_coordinator_instances_suspended"),
        Some(1)
    );
    kill(agent, Signal::CONT);
    until("it is not shown any more", || daemon.open("agt")[0]["suspended_since"].is_null());
    kill(agent, Signal::KILL);
    let ended = daemon.until_ended("agt");
    assert_eq!(ended["exit_hints"], serde_json::json!(["killed_from_outside"]));
    assert!(daemon.done(&["status"]).contains("signal 9, killed from outside"));
    assert!(daemon.cli(&["logs", "agt", "prj"]).stderr.contains("killed from outside"));
}

/// Checks the hint about the end of `agt` by this signal: in JSON, in the table, and beside its
/// output.
#[track_caller]
fn check_hint(daemon: &Daemon, signal: i32, hint: &str, in_words: &str) {
    let ended = until_some("it is told", || {
        Some(daemon.until_ended("agt")).filter(|it| it["exit_hints"].is_array())
    });
    assert_eq!(
        (&ended["signal"], &ended["exit_hints"]),
        (&signal.into(), &json!([hint])),
        "{ended}"
    );
    let shown = daemon.done(&["status"]);
    assert!(shown.contains(&format!("signal {signal}, {in_words} ")), "{shown}");
    let said = daemon.cli(&["logs", "agt", "prj"]).stderr;
    assert_eq!(said, format!("agent-coordinator: the last output of this agent: {in_words}\n"));
}

/// Returns whether a process of the tests dumps core in its working directory. Otherwise prints the
/// reason.
fn dumps_core_here() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with(['|', '/']) {
        skip("core dumps stay on this machine, or go to another program of it");
        return false;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c unlimited; kill -SEGV $$"])
        .current_dir(folder.path())
        .stderr(Stdio::null());
    let is_dumped = command.status().unwrap().core_dumped();
    if !is_dumped {
        skip("no process can dump core here");
    }
    is_dumped
}

#[test]
fn an_agent_that_dumped_core_says_so_and_one_that_did_not_does_not() {
    if !dumps_core_here() {
        return;
    }
    let daemon = Daemon::running("backoff: { initial: 1m }");
    daemon.with_one_task(&["authenticate", "run:ulimit -c unlimited", "segv"]);
    check_hint(&daemon, 11, "core_dumped", "core dumped");
    daemon.agent("other", "prj", &["authenticate", "run:ulimit -c 0", "segv"]);
    daemon.task("tsk_other", "prj", "other");
    let ended = daemon.until_ended("other");
    daemon.until_nothing_is_left();
    assert_eq!(
        (&ended["signal"], &daemon.until_ended("other")["exit_hints"]),
        (&11.into(), &Value::Null)
    );
}

/// A test with a control group of its own shows that the kernel's count gets into the record. Here
/// the record is changed by hand, because no test runs a machine out of memory.
#[test]
fn an_agent_that_was_killed_for_want_of_memory_says_so() {
    let daemon = Daemon::running("backoff: { initial: 1m }");
    daemon.with_one_task(&["authenticate", "run:kill -KILL $$"]);
    let ended = daemon.until_ended("agt");
    daemon.until_nothing_is_left();
    check_hint(&daemon, 9, "killed_from_outside", "killed from outside");
    let launch = ended["launch_id"].as_str().unwrap().parse().unwrap();
    let folder = instance_dir::find(&daemon.state(), &launch).unwrap();
    let exit: Exit = record::read(&folder).unwrap().unwrap();
    record::write(&folder, &Exit { n_oom_kills: 1, ..exit }).unwrap();
    check_hint(&daemon, 9, "out_of_memory", "out of memory");
}

#[test]
fn the_numbers_are_there_for_monitoring() {
    let mut daemon = Daemon::configured("stop: { leak_grace: 100ms }\nbackoff: { initial: 1m }");
    daemon.start();
    daemon.with_one_task(&["authenticate", "get-my-task", "fork-child", "report:success"]);
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    daemon.agent("other", "prj", &["authenticate", "write:ready", "wait-for:go", "exit:1"]);
    daemon.task("tsk_other", "prj", "other");
    daemon.written_pid("ready");
    let metrics = until_some("the leak is counted", || {
        let metrics = daemon.done(&["metrics"]);
        metrics.contains("leaked_processes_total{").then_some(metrics)
    });
    let id = fs::read_to_string(daemon.state().join("coordinator_id")).unwrap();
    let of_coordinator = |name: &str| {
        sample(&metrics, &format!("agent_coordinator_{name}{{coordinator_id=\"{}\"}}", id.trim()))
    };
    assert_eq!(
        sample(&metrics, "agent_coordinator_ends_total{outcome=\"completed\"}"),
        Some(1),
        "{metrics}"
    );
    assert_eq!(of_coordinator("starts_total"), Some(2), "{metrics}");
    assert_eq!(of_coordinator("leaked_processes_total"), Some(1), "{metrics}");
    assert_eq!(of_coordinator("found_by_poll_total"), Some(0), "{metrics}");
    assert_eq!(
        sample(&metrics, "agent_coordinator_start_process_seconds_count"),
        Some(2),
        "{metrics}"
    );
    assert_eq!(
        sample(&metrics, "agent_coordinator_start_authenticated_seconds_count"),
        Some(2),
        "{metrics}"
    );
    assert_eq!(
        sample(&metrics, "agent_coordinator_instances{state=\"running\"}"),
        Some(1),
        "{metrics}"
    );
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .fold(name, |name, suffix| name.trim_end_matches(suffix));
        assert!(metrics.contains(&format!("# TYPE {family} ")), "{line}");
    }
    daemon.kill();
    daemon.start();
    let metrics = daemon.done(&["metrics"]);
    let name = format!("agent_coordinator_adoptions_total{{coordinator_id=\"{}\"}}", id.trim());
    until("the adoption is counted", || sample(&daemon.done(&["metrics"]), &name) == Some(1));
    assert_eq!(sample(&metrics, "agent_coordinator_start_process_seconds_count"), Some(0));
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("other");
}

#[test]
fn arguments_that_a_tool_of_coordinators_ignores_are_counted() {
    let daemon = Daemon::running("");
    let name = "agent_coordinator_unknown_arguments_total{tool=\"should_start\"}";
    assert_eq!(sample(&daemon.done(&["metrics"]), name), None);
    let arguments =
        json!({ "agent_id": "agt", "project_id": "prj", "newer": 1, "newest": true, "none": null });
    assert_eq!(daemon.client().call("should_start", &arguments)["reason"], "unknown");
    assert_eq!(sample(&daemon.done(&["metrics"]), name), Some(2));
}
