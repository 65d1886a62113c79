//! The limit of sessions that a client may open for one agent in one project.

use serde_json::{Value, json};

use super::{ByHand, credentials, should_start, world};
use crate::daemon::Daemon;

const TASKS: &str = "  tsk_1: { project: prj, title: t, assignee: agt_b, status: in_progress }
  tsk_2: { project: prj, title: t, assignee: agt_b, status: in_progress }
";

/// Opens a session, or returns the error of the refusal.
fn authenticate(
    daemon: &Daemon,
    agent: &str,
    passkey: &str,
    project: &str,
) -> Result<ByHand, Value> {
    let mut client = daemon.client();
    let answer = client.call("authenticate", &credentials(agent, passkey, project));
    match answer["session_token"].as_str() {
        Some(token) => Ok(ByHand { client, token: token.to_owned() }),
        None => Err(answer),
    }
}

#[test]
fn a_client_that_authenticates_and_logs_out_in_a_loop_is_told_to_wait() {
    let daemon = Daemon::crowded("", &world(""));
    let mut refused = Vec::new();
    for _ in 0..90 {
        match authenticate(&daemon, "agt_a", "key_a", "prj") {
            Ok(mut session) => assert_eq!(session.call("logout", json!({}))["success"], true),
            Err(answer) => refused.push(answer),
        }
    }
    // The limit is thirty, and one for each two seconds that this takes.
    assert!(refused.len() > 30, "{} of 90 were refused", refused.len());
    let expected = json!({
        "success": false,
        "error": "Too many sessions of agent agt_a were opened in project prj in a short time",
        "error_code": "too_many_sessions",
        "hint": "use the session_token that you have, or wait 2 seconds and call again",
    });
    assert!(refused.iter().all(|answer| *answer == expected), "{refused:?}");
    let logged = daemon.logged("tool call refused");
    assert_eq!(
        logged.iter().filter(|line| line["reason"] == "too_many_sessions").count(),
        1,
        "{logged:?}"
    );
    // Other agents, and the same agent in another project, are not limited.
    authenticate(&daemon, "agt_b", "key_b", "prj").unwrap();
    authenticate(&daemon, "agt_a", "key_a", "prj_2").unwrap();
}

#[test]
fn the_first_session_of_a_launch_is_never_refused() {
    let daemon = Daemon::crowded("", &world(TASKS));
    let claim = || {
        let claimed = should_start(&daemon, "agt_b", Some("crd_test"));
        let text =
            |name: &str| claimed[name].as_str().unwrap_or_else(|| panic!("{claimed}")).to_owned();
        (text("launch_id"), text("launch_ticket"))
    };
    let (launch, ticket) = claim();
    // Failures do not count.
    for passkey in ["key_a", "tkt_x", "key_a"] {
        assert_eq!(
            authenticate(&daemon, "agt_b", passkey, "prj").err().unwrap()["error_code"],
            "invalid_credentials"
        );
    }
    let opened: Vec<_> =
        (0..60).map_while(|_| authenticate(&daemon, "agt_b", &ticket, "prj").ok()).collect();
    assert!((31..60).contains(&opened.len()), "{} of 60 were opened", opened.len());
    let mut newest = opened.into_iter().last().unwrap();
    assert_eq!(newest.get_my_task()["success"], true, "the session of before goes on");
    assert_eq!(newest.report("success")["success"], true);
    let exit = json!({ "launch_id": launch, "coordinator_id": "crd_test", "exit_code": 0 });
    assert_eq!(daemon.client().call("report_process_exit", &exit)["success"], true);
    let (_, ticket) = claim();
    authenticate(&daemon, "agt_b", &ticket, "prj").unwrap();
}
