//! F-33: a server that is down, slow or broken, or sends garbage, stops no loop and affects no
//! running agent.

use std::fs;

use super::proxy::{Mode, Proxy};
use super::{LISTENING, with_token};
use crate::daemon::{Daemon, LEAVES_A_REPORT};
use crate::support::{is_gone, until};

/// The settings for an agent that runs during all failures, and one that does a task after each. A
/// poll notices a hanging server before the question for news does, which is held for half a
/// minute.
const SETTINGS: &str =
    "agents: { agt: { passkey: x }, short: { passkey: x } }\npolling_interval: 1s";

const DELIVERED: &str = "delivered the report that the agent has left";

#[track_caller]
fn check_outlived(modes: &[Mode]) {
    let server = Daemon::serving(LISTENING);
    let address = server.status()["http"]["address"].as_str().unwrap().parse().unwrap();
    let proxy = Proxy::to(address);
    let mut coordinator = Daemon::supervising(&proxy.url(), &with_token(&server, SETTINGS));
    coordinator.start();
    server.with_one_task(&[
        "alone:one",
        "authenticate",
        "get-my-task",
        "write:ready",
        "wait-for:go",
        "report:success",
    ]);
    server.agent("short", "prj", &["authenticate", "get-my-task", "report:success"]);
    let agent = server.written_pid("ready");
    for mode in modes {
        proxy.set(*mode);
        until(&format!("{mode:?} is noticed"), || coordinator.status()["health"] == "cut_off");
        assert!(!is_gone(agent), "{mode:?}");
        assert_eq!(coordinator.status()["instances"][0]["pid"], agent, "{mode:?}");
        let task = format!("tsk_{mode:?}");
        server.task(&task, "prj", "short");
        proxy.set(Mode::Pass);
        until(&format!("work goes on after {mode:?}"), || server.task_status(&task) == "done");
        assert_eq!(coordinator.status()["health"], "ok");
    }
    std::fs::write(server.work().join("go"), "").unwrap();
    until("the work is done", || server.task_status("tsk") == "done");
    assert_eq!(server.until_ended("agt")["outcome"], "completed");
    assert!(!server.work().join("one.twin").exists());
    coordinator.until_nothing_is_left();
}

#[test]
fn a_server_that_closes_or_fails_is_outlived() {
    check_outlived(&[Mode::Close, Mode::Fail]);
}

#[test]
fn a_garbled_server_is_outlived() {
    check_outlived(&[Mode::Garbage, Mode::OtherJson, Mode::Half]);
}

#[test]
fn a_server_that_never_answers_is_outlived() {
    check_outlived(&[Mode::Hang]);
}

#[test]
fn a_server_that_never_stops_answering_is_outlived() {
    check_outlived(&[Mode::Huge]);
}

/// Checks an agent that ends while its server is away, with these settings of both.
#[track_caller]
fn check_ended_while_away(of_server: &str, of_coordinator: &str, reason: &str) {
    let server = Daemon::serving(&format!("{LISTENING}\n{of_server}"));
    let address = server.status()["http"]["address"].as_str().unwrap().parse().unwrap();
    let proxy = Proxy::to(address);
    let settings = format!("{SETTINGS}\n{of_coordinator}");
    let mut coordinator = Daemon::supervising(&proxy.url(), &with_token(&server, &settings));
    coordinator.start();
    server.with_one_task(&["authenticate", "write:ready", "sleep:600"]);
    let agent = server.written_pid("ready");
    until("it is known to have authenticated", || {
        coordinator.status()["instances"][0]["state"] == "running"
    });
    proxy.set(Mode::Close);
    until("nobody answers", || coordinator.status()["health"] == "cut_off");
    until("its time is over", || is_gone(agent));
    assert_eq!(coordinator.status()["health"], "cut_off");
    proxy.set(Mode::Pass);
    let ended = server.until_ended("agt");
    assert_eq!(
        (&ended["outcome"], &ended["reason"]),
        (&"timed_out".into(), &reason.into()),
        "{ended}"
    );
}

#[test]
fn who_runs_for_too_long_is_ended_although_the_server_is_away() {
    check_ended_while_away("", "run: { max_runtime: 3s }", "run_maximum");
}

#[test]
fn a_session_past_its_maximum_is_ended_although_the_server_is_away() {
    check_ended_while_away(
        "session: { default_timeout: 1s, max_timeout: 3s }",
        "",
        "session_maximum",
    );
}

#[test]
fn a_slow_server_is_asked_one_thing_at_a_time() {
    let settings = SETTINGS.replace("1s", "100ms");
    let (server, proxy, coordinator, agent) = with_an_agent_and(&settings);
    proxy.set(Mode::Slow);
    until("several answers were slow", || proxy.slow().1 >= 6);
    // These are the question for news, the requests meanwhile, and the rest of the earlier
    // connections.
    let (most, _) = proxy.slow();
    assert!(most <= 4, "{most} at a time");
    assert!(!is_gone(agent));
    assert_eq!(coordinator.status()["instances"][0]["pid"], agent);
    server.agent("short", "prj", &["exit:7"]);
    server.task("tsk_short", "prj", "short");
    assert_eq!(server.until_ended("short")["exit_code"], 7);
    assert!(!is_gone(agent));
}

/// Returns a coordinator with a running agent, connected through a proxy.
fn with_an_agent(settings: &str) -> (Daemon, Proxy, Daemon, i32) {
    with_an_agent_and(&format!("{SETTINGS}\n{settings}"))
}

fn with_an_agent_and(settings: &str) -> (Daemon, Proxy, Daemon, i32) {
    with_an_agent_that(&["sleep:600"], settings)
}

/// Returns the same with an agent that does these steps when it has its task.
fn with_an_agent_that(steps: &[&str], settings: &str) -> (Daemon, Proxy, Daemon, i32) {
    let server = Daemon::serving(LISTENING);
    let proxy = Proxy::to(server.status()["http"]["address"].as_str().unwrap().parse().unwrap());
    let mut coordinator = Daemon::supervising(&proxy.url(), &with_token(&server, settings));
    coordinator.start();
    server.with_one_task(&[&["authenticate", "get-my-task", "write:ready"], steps].concat());
    let agent = server.written_pid("ready");
    (server, proxy, coordinator, agent)
}

#[test]
fn a_report_that_an_agent_has_left_is_delivered_before_its_end() {
    let steps = ["wait-for:go", LEAVES_A_REPORT];
    let (server, proxy, coordinator, agent) = with_an_agent_that(&steps, SETTINGS);
    proxy.set(Mode::Close);
    fs::write(server.work().join("go"), "").unwrap();
    until("it has ended", || is_gone(agent));
    proxy.set(Mode::Pass);
    assert_eq!(server.until_ended("agt")["outcome"], "completed");
    assert_eq!((server.task_status("tsk").as_str(), server.ended("agt").len()), ("done", 1));
    assert_eq!(coordinator.logged(DELIVERED).len(), 1, "{}", coordinator.log());
}

#[test]
fn a_report_that_an_agent_has_left_is_not_delivered_if_the_server_refuses_it() {
    let report = LEAVES_A_REPORT.replace("$AGENT_SESSION_TOKEN", "sess_other");
    let (server, _proxy, coordinator, _) = with_an_agent_that(&[report.as_str()], SETTINGS);
    assert_ne!(server.until_ended("agt")["outcome"], "completed");
    let refused = coordinator
        .logged("the server refused the report that the agent has left; it is not repeated");
    assert_eq!(refused[0]["reason"], "Invalid session token", "{refused:?}");
    assert_eq!(refused[0]["code"], "invalid_session", "{refused:?}");
    assert!(coordinator.logged(DELIVERED).is_empty(), "{}", coordinator.log());
}

#[test]
fn agents_are_stopped_though_the_server_hangs() {
    let (_server, proxy, mut coordinator, agent) = with_an_agent("");
    proxy.set(Mode::Hang);
    assert!(coordinator.terminate().success());
    assert!(is_gone(agent));
    until("nothing of it lives", || coordinator.processes().is_empty());
}

#[test]
fn a_coordinator_that_keeps_its_agents_does_not_wait_for_a_server_that_hangs() {
    let (_server, proxy, mut coordinator, agent) = with_an_agent("shutdown: { sigterm: keep }");
    proxy.set(Mode::Hang);
    assert!(coordinator.terminate().success());
    assert!(!is_gone(agent));
    assert!(
        coordinator
            .logged("a step of the shutdown exceeded its deadline; continuing without it")
            .is_empty(),
        "{}",
        coordinator.log()
    );
}
