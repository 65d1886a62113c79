//! The three-step loop of the older system (R-004-6), against a server that offers nothing else.

use std::fs;

use serde_json::json;

use super::seed_server::SeedServer;
use crate::daemon::Daemon;
use crate::support::{is_gone, until, until_some};

/// The coordinator polls often, because such a server announces nothing.
const SETTINGS: &str = "agents: { agt: { passkey: a-passkey } }\npolling_interval: 100ms";

#[test]
fn an_agent_is_started_once_with_its_passkey_and_its_end_is_told() {
    let bed = Daemon::configured("");
    let server = SeedServer::start(&bed.work());
    let mut coordinator = Daemon::supervising(&server.address(), SETTINGS);
    coordinator.start();
    let says = r#"print:{"type":"result","session_id":"s","num_turns":3}"#;
    bed.steps(
        "agt",
        &["alone:one", "env:environment", says, "write:ready", "wait-for:go", "exit:0"],
    );
    server.want(&["agt", "stranger"]);
    let agent = bed.written_pid("ready");
    // The server still answers "true", because its agent has not authenticated.
    let n_asked = server.calls("health_check").len();
    until("some more cycles", || server.calls("health_check").len() > n_asked + 5);
    assert!(!is_gone(agent) && !bed.work().join("one.twin").exists());
    let environment = fs::read_to_string(bed.work().join("environment")).unwrap();
    assert!(environment.contains("AGENT_PASSKEY=a-passkey"), "{environment}");
    // The coordinator has no passkey for the other agent, so it does not ask about it.
    assert!(
        server
            .calls("should_start")
            .iter()
            .all(|arguments| *arguments == json!({ "agent_id": "agt", "project_id": "prj" }))
    );

    server.want(&[]);
    fs::write(bed.work().join("go"), "").unwrap();
    let told =
        until_some("the end is told", || server.calls("report_process_exit").first().cloned());
    assert_eq!(told, json!({ "agent_id": "agt", "project_id": "prj", "exit_code": 0 }));
    // Such a server does not accept reports of the usage.
    assert!(server.calls("report_activity").is_empty());
    coordinator.until_nothing_is_left();
}

#[test]
fn an_agent_outlives_its_coordinator_and_a_failing_one_is_held_back() {
    let bed = Daemon::configured("");
    let server = SeedServer::start(&bed.work());
    let mut coordinator = Daemon::supervising(
        &server.address(),
        &format!("{SETTINGS}\nbackoff: {{ initial: 1h, max: 1h }}"),
    );
    coordinator.start();
    bed.steps("agt", &["alone:one", "write:ready", "wait-for:go", "exit:5"]);
    server.want(&["agt"]);
    let agent = bed.written_pid("ready");
    coordinator.kill();
    coordinator.start();
    assert_eq!(coordinator.logged("checked the instances of earlier daemons")[0]["adopted"], 1);
    let n_asked = server.calls("health_check").len();
    until("some more cycles", || server.calls("health_check").len() > n_asked + 5);
    assert!(!is_gone(agent));
    fs::write(bed.work().join("go"), "").unwrap();
    until("it waits before it is started again", || {
        coordinator.status()["deferred"][0]["reason"] == "backoff"
    });
    assert_eq!(server.calls("report_process_exit")[0]["exit_code"], 5);
    assert!(!bed.work().join("one.twin").exists());
    coordinator.until_nothing_is_left();
}

#[test]
fn what_another_server_means_by_a_word_ends_nobody() {
    let bed = Daemon::configured("");
    let server = SeedServer::start(&bed.work());
    // For a server without `coordinator_incarnation`, no start of a coordinator is later than
    // another.
    server.refuse(Some("superseded"));
    let mut coordinator = Daemon::supervising(&server.address(), SETTINGS);
    coordinator.start();
    until("it was refused again and again", || server.calls("should_start").len() > 5);
    bed.steps("agt", &["write:ready", "exit:0"]);
    server.refuse(None);
    server.want(&["agt"]);
    bed.written_pid("ready");
    server.want(&[]);
    coordinator.until_nothing_is_left();
}
