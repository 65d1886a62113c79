//! `authenticate`: accepted callers, and the texts of the refusals.

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, claim, credentials, world};
use crate::daemon::Daemon;

fn authenticate(daemon: &Daemon, agent: &str, passkey: &str, project: &str) -> Value {
    daemon.client().call("authenticate", &credentials(agent, passkey, project))
}

/// Checks a refusal, which tells the caller to exit.
#[track_caller]
fn check(daemon: &Daemon, [agent, passkey, project]: [&str; 3], error_code: &str, error: &str) {
    let answer = authenticate(daemon, agent, passkey, project);
    check_refused(&answer, error_code, error);
    assert_eq!(answer["action"], "exit", "{answer}");
}

const INVALID: (&str, &str) = ("invalid_credentials", "Invalid agent_id or passkey");

#[test]
fn a_second_agent_is_refused_while_the_first_runs() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut first = ByHand::authenticate(&daemon, "agt_a");
    let already = ("already_running", "Agent instance already running for this project");
    check(&daemon, ["agt_a", "key_a", "prj"], already.0, already.1);
    // This answer needs a correct passkey.
    check(&daemon, ["agt_a", "key_b", "prj"], INVALID.0, INVALID.1);
    // The same agent in another project, and another agent, are other instances.
    assert_eq!(authenticate(&daemon, "agt_a", "key_a", "prj_2")["success"], true);
    ByHand::authenticate(&daemon, "agt_b");
    assert_eq!(first.get_my_task()["has_task"], true);
    first.report("success");
    ByHand::authenticate(&daemon, "agt_a");
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

/// Checks C-22.
#[test]
fn the_seeds_wording_is_spoken_in_japanese() {
    let daemon = Daemon::crowded("language: ja", &world(MINE));
    let answer = authenticate(&daemon, "agt_a", "key_a", "prj");
    assert_eq!(answer["instruction"], "get_my_task を呼び出してタスク詳細を取得してください");
    // Errors are for programs too, so they are always in English.
    check(&daemon, ["agt_a", "key_b", "prj"], INVALID.0, INVALID.1);
}
