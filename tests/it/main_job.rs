//! The main work with the real binary: an agent is started, works, reports, and ends.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use domain::Timestamp;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{DEADLINE, is_gone, until};

#[test]
fn a_task_set_in_progress_starts_its_agent_and_its_report_ends_the_task() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["write:started", "authenticate", "get-my-task", "report:success"]);
    let ended = daemon.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&"completed".into(), &0.into()));
    assert_eq!(daemon.task_status("tsk"), "done");
    assert!(is_gone(daemon.written_pid("started")));
    assert!(daemon.open("agt").is_empty());
    let launch = ended["launch_id"].as_str().unwrap();
    let lines = daemon.log().lines().filter(|line| line.contains(launch)).count();
    assert!(lines >= 4, "one launch can be followed by its id:\n{}", daemon.log());
}

#[test]
fn ends_are_told_apart() {
    let daemon = Daemon::running("run: { linger: 0 }\nstart: { timeout: 1s }\nmax_concurrent: 9");
    daemon.project("prj");
    let cases: [(&str, &[&str], &str, &str); 6] = [
        ("agt_success", &["authenticate", "get-my-task", "report:success"], "completed", "done"),
        ("agt_failed", &["authenticate", "get-my-task", "report:failed"], "failed", "blocked"),
        ("agt_blocked", &["authenticate", "get-my-task", "report:blocked"], "blocked", "blocked"),
        ("agt_silent", &["authenticate", "get-my-task"], "exited_without_report", "in_progress"),
        ("agt_stranger", &["exit:1"], "never_authenticated", "in_progress"),
        ("agt_late", &["sleep:600"], "never_authenticated", "in_progress"),
    ];
    for (agent, steps, _, _) in cases {
        daemon.agent(agent, "prj", steps);
        daemon.task(&format!("tsk_{agent}"), "prj", agent);
    }
    for (agent, _, outcome, status) in cases {
        assert_eq!(daemon.until_ended(agent)["outcome"], outcome, "{agent}");
        assert_eq!(daemon.task_status(&format!("tsk_{agent}")), status, "{agent}");
    }
}

#[test]
fn an_agent_that_reports_and_lingers_is_ended() {
    let daemon = Daemon::running("run: { linger: 100ms }");
    daemon.with_one_task(&["authenticate", "get-my-task", "report:success", "sleep:600"]);
    let ended = daemon.until_ended("agt");
    assert_eq!((&ended["outcome"], &ended["signal"]), (&"completed".into(), &15.into()));
}

#[test]
fn what_can_not_be_started_says_what_and_why() {
    let daemon = Daemon::running("ai_providers: { claude: { cli_command: no-such-program } }");
    daemon.with_one_task(&[]);
    let fault = daemon.until_faulty("agt");
    assert!(fault.contains("no-such-program"), "{fault}");
    assert_eq!(daemon.task_status("tsk"), "in_progress");
}

#[test]
fn a_missing_working_directory_is_named() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&[]);
    daemon.done(&["project", "set", "prj", "--directory", "/no/such/folder"]);
    let fault = daemon.until_faulty("agt");
    assert!(fault.contains("/no/such/folder` does not exist"), "{fault}");
}

#[test]
fn a_stop_holds_the_pair_until_it_is_resumed() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "sleep:600"]);
    daemon.until_in_state("agt", "running");
    let said = daemon.done(&["stop", "agt", "prj"]);
    assert!(said.contains("stopped"), "{said}");
    assert_eq!(daemon.until_ended("agt")["reason"], "person");
    assert_eq!(daemon.status()["deferred"][0]["reason"], "held");
    daemon.done(&["resume", "agt", "prj"]);
    daemon.until_in_state("agt", "running");
}

#[test]
fn stop_all_pauses() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "sleep:600"]);
    daemon.until_in_state("agt", "running");
    daemon.done(&["stop", "--all"]);
    assert!(daemon.open("agt").is_empty());
    assert_eq!(
        (&daemon.status()["paused"], &daemon.status()["deferred"][0]["reason"]),
        (&true.into(), &"paused".into())
    );
    daemon.done(&["resume"]);
    daemon.until_in_state("agt", "running");
}

#[test]
fn a_pause_and_a_stop_of_all_outlive_the_daemon_until_they_are_over() {
    let mut daemon = Daemon::running("");
    let restart = |daemon: &mut Daemon| {
        daemon.kill();
        daemon.start();
    };
    let is_paused = |daemon: &Daemon| {
        let status = daemon.status();
        status["paused"] == true && status["deferred"][0]["reason"] == "paused"
    };
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        "write:ready",
        "wait-for:go",
        "report:success",
    ]);
    daemon.written_pid("ready");
    daemon.done(&["pause"]);
    daemon.agent("later", "prj", &["authenticate", "write:started", "sleep:600"]);
    daemon.task("tsk_later", "prj", "later");
    restart(&mut daemon);
    until("what comes later waits", || is_paused(&daemon));
    fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed", "who was at work goes on");
    assert!(daemon.open("later").is_empty() && !daemon.work().join("started").exists());
    daemon.done(&["resume"]);
    daemon.written_pid("started");
    daemon.done(&["stop", "--all"]);
    restart(&mut daemon);
    until("it waits again", || is_paused(&daemon));
    assert_eq!((daemon.open("later").len(), daemon.ended("later").len()), (0, 1));
    daemon.done(&["resume"]);
    daemon.until_in_state("later", "running");
    restart(&mut daemon);
    assert_eq!(daemon.status()["paused"], false, "what is over doesn't come back");
}

#[test]
fn a_quick_crash_loop_slows_down_also_by_a_daemon_that_comes_later() {
    let mut daemon = Daemon::running("backoff: { initial: 1m }");
    daemon.with_one_task(&["exit:1"]);
    daemon.until_ended("agt");
    let until_put_off = |daemon: &Daemon| {
        until("the start is put off", || daemon.status()["deferred"][0]["reason"] == "backoff");
        daemon.status()["deferred"][0]["until"].clone()
    };
    let until_when = until_put_off(&daemon);
    assert!(until_when.is_string(), "{until_when}");
    daemon.kill();
    daemon.start();
    assert_eq!(until_put_off(&daemon), until_when, "neither sooner nor later");
    assert_eq!((daemon.ended("agt").len(), daemon.open("agt").len()), (1, 0));
}

#[test]
fn each_crash_is_followed_by_a_longer_wait() {
    let daemon = Daemon::running("backoff: { initial: 100ms, max: 1h }\nstart: { limit: 0 }");
    daemon.with_one_task(&["exit:1"]);
    until("it has crashed often enough", || daemon.ended("agt").len() >= 4);
    let mut crashes = daemon.ended("agt");
    crashes.reverse();
    let time = |launch: &Value, what: &str| {
        serde_json::from_value::<Timestamp>(launch[what].clone()).unwrap()
    };
    let mut least = Duration::from_millis(100);
    for (before, after) in crashes.iter().zip(&crashes[1..]) {
        // A busy machine may be late, but the start must not be early.
        let waited = time(after, "claimed_at").since(time(before, "ended_at"));
        assert!(waited >= least, "{waited:?} instead of {least:?}: {crashes:?}");
        least *= 2;
    }
}

#[test]
fn a_quick_crash_loop_is_suspended_until_a_person_resumes_it() {
    let mut daemon = Daemon::running("backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 3 }");
    daemon.with_one_task(&["exit:1"]);
    until("it is suspended", || daemon.status()["deferred"][0]["reason"] == "suspended");
    assert_eq!(daemon.ended("agt").len(), 3);
    daemon.kill();
    daemon.start();
    until("it is still suspended", || daemon.status()["deferred"][0]["reason"] == "suspended");
    daemon.done(&["resume", "agt", "prj"]);
    until("it is suspended once more", || daemon.ended("agt").len() == 6);
    assert_eq!(daemon.status()["deferred"][0]["reason"], "suspended");
}

#[test]
fn no_work_is_found_by_the_poll_alone() {
    let daemon = Daemon::running(
        "polling_interval: 100ms\nbackoff: { initial: 10ms, max: 20ms }\nstart: { limit: 0 }",
    );
    daemon.with_one_task(&["exit:1"]);
    until("it was started several times", || daemon.ended("agt").len() > 4);
    assert_eq!(daemon.status()["counters"]["found_by_poll_only"], 0);
}

#[test]
fn the_service_manager_is_told_when_it_serves_and_when_it_ends() {
    let mut daemon = Daemon::configured("");
    let socket = daemon.work().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    // Other status messages come in between.
    let until_told = |what: &str| loop {
        let mut message = [0; 512];
        let n_received = manager.recv(&mut message).unwrap();
        if str::from_utf8(&message[..n_received]).unwrap().lines().any(|line| line == what) {
            return;
        }
    };
    let mut command = daemon.command();
    command.env("NOTIFY_SOCKET", &socket);
    daemon.spawn_as(command);
    until_told("READY=1");
    daemon.with_one_task(&["env:seen"]);
    until("the agent has said what it was given", || daemon.work().join("seen").exists());
    let seen = fs::read_to_string(daemon.work().join("seen")).unwrap();
    assert!(!seen.contains("NOTIFY_SOCKET"), "{seen}");
    assert!(daemon.terminate().success());
    until_told("STOPPING=1");
}

#[test]
fn an_agent_whose_task_is_taken_away_before_it_asks_may_exit() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "write:there", "wait-for:go", "get-my-task"]);
    daemon.written_pid("there");
    daemon.done(&["task", "set", "tsk", "--status", "blocked"]);
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("agt");
    let why = daemon.json(&["why", "agt", "prj", "--purpose", "task"])[0].clone();
    assert_eq!((&why["reason"], &why["n_failures"]), (&"no_work".into(), &0.into()), "{why}");
}

#[test]
fn a_report_without_a_look_at_the_task_counts_for_it() {
    let daemon = Daemon::running("");
    daemon.with_one_task(&["authenticate", "report:success"]);
    daemon.until_ended("agt");
    let started = daemon.logged("agent started");
    assert_eq!(started[0]["working_directory"].as_str(), daemon.work().to_str());
    let task = daemon.json(&["task", "show", "tsk"]);
    assert_eq!(
        (&task["status"], &task["executions"][0]["summary"]),
        (&"done".into(), &"a summary".into())
    );
}

#[test]
fn an_agents_call_outlives_a_restart_of_the_daemon() {
    let mut daemon = Daemon::running("shutdown: { sigterm: keep }");
    daemon.with_one_task(&[
        "authenticate",
        "get-my-task",
        "write:works",
        "wait-for:go",
        "report:success",
    ]);
    daemon.written_pid("works");
    assert!(daemon.terminate().success());
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.start();
    assert_eq!(daemon.until_ended("agt")["outcome"], "completed");
    assert_eq!(daemon.ended("agt").len(), 1);
}

#[test]
fn a_store_has_one_daemon() {
    let first = Daemon::running("store: { url: 'sqlite:state/state.db' }");
    let mut second = Daemon::configured(&format!(
        "store: {{ url: \"sqlite:{}/state.db\" }}",
        first.state().display()
    ));
    second.spawn();
    assert_eq!(second.wait().code(), Some(1));
    assert!(
        second.log().contains(&format!("another daemon (pid {})", first.pid())),
        "{}",
        second.log()
    );
}
