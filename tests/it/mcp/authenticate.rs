//! `authenticate`: who comes in, how, and in which words others don't.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, claim, credentials, world};
use crate::daemon::Daemon;
use crate::redacted::redacted;

fn authenticate(daemon: &Daemon, agent: &str, passkey: &str, project: &str) -> Value {
    daemon.client().call("authenticate", &credentials(agent, passkey, project))
}

/// Whoever is refused here is told to exit.
#[track_caller]
fn check(daemon: &Daemon, [agent, passkey, project]: [&str; 3], error_code: &str, error: &str) {
    let answer = authenticate(daemon, agent, passkey, project);
    check_refused(&answer, error_code, error);
    assert_eq!(answer["action"], "exit", "{answer}");
}

const INVALID: (&str, &str) = ("invalid_credentials", "Invalid agent_id or passkey");

#[test]
fn a_session_is_opened_by_passkey_and_by_ticket() {
    let daemon = Daemon::crowded("", &world(MINE));
    let expected = |expires_in: u64| {
        json!({
            "success": true, "session_token": "[session_token]", "expires_in": expires_in, "agent_name": "Ann",
            "project_name": "Project", "system_prompt": "You build things.", "purpose": "task",
            "instruction": "Call get_my_task to fetch the details of your task.",
            "working_directory": "[working_directory]",
        })
    };
    let ticket = claim(&daemon, "agt_a");
    let answer = authenticate(&daemon, "agt_a", &ticket, "prj");
    // A process of ours is behind it: the session follows that.
    assert_eq!(redacted(&answer), expected(86_400));
    assert_eq!(answer["working_directory"], daemon.work().to_str().unwrap());
    assert!(ticket.starts_with("tkt_") && answer["session_token"].as_str().unwrap().starts_with("sess_"));

    let mut answer = authenticate(&daemon, "agt_b", "key_b", "prj");
    assert_eq!((&answer["agent_name"], &answer["system_prompt"]), (&"Bob".into(), &"".into()));
    answer["agent_name"] = "Ann".into();
    answer["system_prompt"] = "You build things.".into();
    assert_eq!(redacted(&answer), expected(3600));
}

#[test]
fn an_unknown_agent_and_a_wrong_passkey_get_the_same_bytes() {
    let daemon = Daemon::crowded("", &world(""));
    let bytes = |agent: &str, passkey: &str, project: &str| {
        let mut client = daemon.client();
        let params = json!({ "name": "authenticate", "arguments": credentials(agent, passkey, project) });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        client.send(format!("{call}\n").as_bytes());
        client.receive_line()
    };
    let wrong = bytes("agt_a", "key_b", "prj");
    let hint = "use the AGENT_ID and AGENT_PASSKEY of your environment as they are";
    let answer: Value = serde_json::from_str(&wrong).unwrap();
    assert_eq!(
        answer["result"]["structuredContent"],
        json!({ "success": false, "error": INVALID.1, "error_code": INVALID.0, "hint": hint, "action": "exit" })
    );
    assert_eq!(answer["result"]["isError"], true);
    for (agent, passkey, project) in [
        ("agt_nobody", "key_b", "prj"),
        ("agt_nobody", "", "prj"),
        ("agt_a", "", "prj"),
        ("agt_a", "key_a ", "prj"),
        // Without a passkey of its own nobody comes in by one.
        ("agt_busy", "", "prj_busy"),
        // What isn't proven is told nothing of projects.
        ("agt_a", "key_b", "prj_nowhere"),
        ("agt_nobody", "key_b", "prj_nowhere"),
        ("no id at all", "key_b", "prj"),
    ] {
        assert_eq!(bytes(agent, passkey, project), wrong, "{agent} {passkey} {project}");
    }
}

#[test]
fn what_is_wrong_is_told_to_an_agent_that_has_proven_itself() {
    let daemon = Daemon::crowded("", &world(""));
    check(&daemon, ["agt_a", "key_a", "prj_nowhere"], "project_not_found", "Project not found");
    check(&daemon, ["agt_b", "key_b", "prj_2"], "not_assigned", "Agent is not assigned to this project");
    daemon.done(&["project", "set", "prj_2", "--status", "inactive"]);
    check(&daemon, ["agt_a", "key_a", "prj_2"], "inactive", "Agent or project is not active");
    daemon.done(&["agent", "set", "agt_a", "--status", "inactive"]);
    check(&daemon, ["agt_a", "key_a", "prj"], "inactive", "Agent or project is not active");
}

#[test]
fn a_second_agent_is_refused_while_the_first_runs() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut first = ByHand::authenticate(&daemon, "agt_a");
    let already = ("already_running", "Agent instance already running for this project");
    check(&daemon, ["agt_a", "key_a", "prj"], already.0, already.1);
    // Only after the passkey is proven.
    check(&daemon, ["agt_a", "key_b", "prj"], INVALID.0, INVALID.1);
    // Elsewhere, and somebody else: that is another instance.
    assert_eq!(authenticate(&daemon, "agt_a", "key_a", "prj_2")["success"], true);
    ByHand::authenticate(&daemon, "agt_b");
    assert_eq!(first.get_my_task()["has_task"], true);
    first.report("success");
    ByHand::authenticate(&daemon, "agt_a");
}

#[test]
fn a_ticket_used_again_rotates_the_token() {
    let daemon = Daemon::crowded("", &world(MINE));
    let ticket = claim(&daemon, "agt_a");
    let mut first = ByHand::with(&daemon, "agt_a", &ticket);
    assert_eq!(first.get_my_task()["has_task"], true);
    let mut second = ByHand::with(&daemon, "agt_a", &ticket);
    assert_ne!(first.token, second.token);
    check_refused(&first.get_my_task(), "invalid_session", "Invalid session token");
    check_refused(&first.report("success"), "invalid_session", "Invalid session token");
    assert_eq!(second.get_my_task()["task"]["task_id"], "tsk");
    assert_eq!(daemon.open("agt_a").len(), 1);
    // The passkey doesn't: the agent is running.
    check(&daemon, ["agt_a", "key_a", "prj"], "already_running", "Agent instance already running for this project");
}

#[test]
fn a_ticket_takes_over_what_a_passkey_opened_on_its_launch() {
    let daemon = Daemon::crowded("", &world(MINE));
    let ticket = claim(&daemon, "agt_a");
    let mut by_passkey = ByHand::authenticate(&daemon, "agt_a");
    let mut by_ticket = ByHand::with(&daemon, "agt_a", &ticket);
    check_refused(&by_passkey.get_my_task(), "invalid_session", "Invalid session token");
    assert_eq!(by_ticket.get_my_task()["has_task"], true);
}

#[test]
fn a_ticket_is_good_for_its_agent_and_its_project_only() {
    let daemon = Daemon::crowded("", &world(MINE));
    let ticket = claim(&daemon, "agt_a");
    check(&daemon, ["agt_b", &ticket, "prj"], INVALID.0, INVALID.1);
    check(&daemon, ["agt_a", &ticket, "prj_2"], INVALID.0, INVALID.1);
    check(&daemon, ["agt_nobody", &ticket, "prj"], INVALID.0, INVALID.1);
    ByHand::with(&daemon, "agt_a", &ticket);
}

#[test]
fn the_ticket_of_a_launch_that_is_being_stopped_opens_nothing() {
    let daemon = Daemon::crowded("", &world(MINE));
    let ticket = claim(&daemon, "agt_a");
    daemon.cli(&["stop", "agt_a", "prj", "--no-wait"]);
    let answer = authenticate(&daemon, "agt_a", &ticket, "prj");
    assert_eq!(
        answer,
        json!({
            "success": false, "error": "This launch has ended or is being stopped", "error_code": "launch_ended",
            "hint": "exit now; the coordinator starts you again when there is work", "action": "exit",
        })
    );
}

#[test]
fn the_seeds_wording_is_spoken_in_japanese() {
    let daemon = Daemon::crowded("language: ja", &world(MINE));
    let answer = authenticate(&daemon, "agt_a", "key_a", "prj");
    assert_eq!(answer["instruction"], "get_my_task を呼び出してタスク詳細を取得してください");
    // Errors are for programs too: the seed's own words, in English.
    check(&daemon, ["agt_a", "key_b", "prj"], INVALID.0, INVALID.1);
}
