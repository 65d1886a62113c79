//! The three-step loop of the older system (R-004-6), against a server that offers nothing else.

use std::fs;

use serde_json::json;

use super::seed_server::{Form, MANY_AGENTS, SeedServer};
use crate::daemon::Daemon;
use crate::support::{is_gone, until, until_some};

/// The coordinator polls often, because such a server announces nothing.
const SETTINGS: &str = "agents: { agt: { passkey: a-passkey } }\npolling_interval: 100ms";

const ASKING_FAILED: &str = "could not ask the server; running agents go on, will ask again";

/// Returns the reason for which the status of a coordinator defers the start of this agent.
fn reason_of(coordinator: &Daemon, agent: &str) -> String {
    let status = coordinator.status();
    let deferred = status["deferred"].as_array().unwrap();
    let of_agent = deferred.iter().find(|deferred| deferred["agent_id"] == agent);
    of_agent.map_or_else(String::new, |it| it["reason"].as_str().unwrap().to_owned())
}

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
    until("it waits before it is started again", || reason_of(&coordinator, "agt") == "backoff");
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

#[test]
fn questions_that_fail_for_their_pairs_keep_no_other_agent_from_starting() {
    let bed = Daemon::configured("");
    let server = SeedServer::start(&bed.work());
    // The loop goes on by itself with the pairs for which a cycle had no time.
    let mut coordinator = Daemon::supervising(
        &server.address(),
        "agents: { agt: { passkey: x }, bad: { passkey: x }, gone: { passkey: x }, \
         stuck: { passkey: x } }\npolling_interval: 1h",
    );
    bed.steps("agt", &["write:ready", "sleep:600"]);
    server.want(&["agt"]);
    coordinator.start();
    let agent = bed.written_pid("ready");
    assert!(!is_gone(agent));
    for (agent, problem) in [
        ("bad", "a bad pair"),
        ("gone", "without answering"),
        ("stuck", "no answer to should_start"),
    ] {
        let said = coordinator.logged(&format!("could not check {agent}/prj; will ask again"));
        let [said] = said.as_slice() else { panic!("one warning: {said:?}") };
        let fields = (&said["level"], &said["agent_id"], &said["project_id"]);
        assert_eq!(fields, (&"warn".into(), &agent.into(), &"prj".into()));
        assert!(said["error"].as_str().unwrap().contains(problem), "{said}");
        assert_eq!(reason_of(&coordinator, agent), "backoff");
        assert!(coordinator.done(&["why", agent, "prj"]).contains(problem));
    }
    assert_eq!(coordinator.status()["health"], "ok");
}

#[test]
fn a_server_that_answers_one_question_at_a_time_is_asked_one_at_a_time() {
    let bed = Daemon::configured("");
    let server = SeedServer::of_form(&bed.work(), Form::OneAtATime);
    let passkeys = MANY_AGENTS.map(|agent| format!("{agent}: {{ passkey: x }}")).join(", ");
    // One cycle starts them all: no poll gives another chance.
    let settings = format!("agents: {{ {passkeys} }}\nmax_concurrent: 14\npolling_interval: 1h");
    let mut coordinator = Daemon::supervising(&server.address(), &settings);
    for agent in MANY_AGENTS {
        bed.steps(agent, &[&format!("write:{agent}.ready"), "sleep:600"]);
    }
    server.want(&MANY_AGENTS);
    coordinator.start();
    let agents = MANY_AGENTS.map(|agent| bed.written_pid(&format!("{agent}.ready")));
    assert!(agents.iter().all(|agent| !is_gone(*agent)));
    assert_eq!(server.n_early(), 0, "no question waits behind another");
    assert_eq!(coordinator.logged(ASKING_FAILED).len(), 0);
    assert_eq!(coordinator.status()["health"], "ok");
}

#[test]
fn a_pair_that_ends_the_server_keeps_no_other_agent_from_starting() {
    let bed = Daemon::configured("");
    let server = SeedServer::of_form(&bed.work(), Form::Fragile);
    let settings = SETTINGS.replace("agents: {", "agents: { gone: { passkey: x },");
    let mut coordinator = Daemon::supervising(&server.address(), &settings);
    bed.steps("agt", &["write:ready", "sleep:600"]);
    server.want(&["agt"]);
    coordinator.start();
    bed.written_pid("ready");
    let said = coordinator.logged("could not check gone/prj; will ask again");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_server_that_gives_no_work_is_told_with_each_reason() {
    let bed = Daemon::configured("");
    let server = SeedServer::of_form(&bed.work(), Form::Bare);
    let mut coordinator = Daemon::supervising(&server.address(), SETTINGS);
    server.be("degraded");
    coordinator.start();
    let check_told = |reason: &str, n_warnings: usize| {
        until(&format!("{reason} is told"), || {
            let problem = coordinator.status()["server"]["problem"].clone();
            problem.as_str().is_some_and(|problem| problem.contains(reason))
        });
        let status = coordinator.done(&["status"]);
        assert!(status.contains("no agent can start") && status.contains(reason), "{status}");
        assert_eq!(coordinator.status()["health"], "cut_off");
        let said = coordinator.cli(&["why", "agt", "prj"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stderr.contains("no agent can start"), "{said:?}");
        assert!(said.stderr.contains(reason), "{said:?}");
        let n_asked = server.calls("health_check").len();
        until("some more cycles", || server.calls("health_check").len() > n_asked + 3);
        let warnings = coordinator.logged(ASKING_FAILED);
        assert_eq!(warnings.len(), n_warnings, "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning["level"] == "warn"), "{warnings:?}");
    };
    check_told("the server says that it is `degraded`", 1);
    server.refuse_list(true);
    server.be("ok");
    check_told("the list is locked", 2);

    bed.steps("agt", &["write:ready", "exit:0"]);
    server.want(&["agt"]);
    server.refuse_list(false);
    bed.written_pid("ready");
    server.want(&[]);
    until("nothing is wrong", || coordinator.status()["health"] == "ok");
    until("it says why", || reason_of(&coordinator, "stranger") == "no_passkey");
    let why = coordinator.done(&["why", "stranger", "prj"]);
    assert!(why.contains("no_passkey"), "{why}");
    coordinator.until_nothing_is_left();
}
