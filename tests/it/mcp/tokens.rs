//! Session tokens. They are bound to a launch, its project and its processes, and become useless
//! afterwards.

use std::fs;

use serde_json::{Value, json};

use super::{ByHand, MINE, check_refused, claim, world};
use crate::daemon::Daemon;
use crate::support::until_some;

#[track_caller]
fn check_revoked(daemon: &Daemon, token: &str, error_code: &str) {
    let before = daemon.json(&["task", "show", "tsk"]);
    for (tool, more) in [
        ("get_my_task", json!({})),
        ("update_task_status", json!({ "task_id": "tsk", "status": "blocked" })),
        ("report_completed", json!({ "result": "failed" })),
        ("logout", json!({})),
    ] {
        let mut arguments = more;
        arguments["session_token"] = token.into();
        let answer = daemon.client().call(tool, &arguments);
        assert_eq!(
            (&answer["success"], &answer["error_code"]),
            (&false.into(), &error_code.into()),
            "{tool}: {answer}"
        );
    }
    assert_eq!(daemon.json(&["task", "show", "tsk"]), before);
}

/// Returns the token that an agent wrote.
fn token_of(daemon: &Daemon, agent: &str) -> String {
    let file = daemon.work().join(format!("{agent}.token"));
    until_some("the agent has its token", || {
        fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'))
    })
    .trim_end()
    .to_owned()
}

/// Returns the step with which an agent writes its token.
fn write_token(agent: &str) -> String {
    format!(
        "run:printf '%s\\n' \"$AGENT_SESSION_TOKEN\" >{agent}.draft && mv {agent}.draft {agent}.token"
    )
}

#[test]
fn the_end_of_its_process_revokes_a_token() {
    let daemon = Daemon::running("backoff: { initial: 1h, max: 1h }");
    daemon.with_one_task(&[
        "authenticate",
        &write_token("agt"),
        "get-my-task",
        "wait-for:go",
        "exit:0",
    ]);
    let token = token_of(&daemon, "agt");
    assert_eq!(
        daemon.client().call("get_my_task", &json!({ "session_token": token }))["has_task"],
        true
    );
    fs::write(daemon.work().join("go"), "").unwrap();
    daemon.until_ended("agt");
    check_revoked(&daemon, &token, "session_ended");
}

#[test]
fn a_token_that_was_replaced_opens_nothing_even_after_the_report_of_its_successor() {
    let daemon = Daemon::crowded("", &world(MINE));
    let ticket = claim(&daemon, "agt_a");
    let first = ByHand::with(&daemon, "agt_a", &ticket);
    let mut second = ByHand::with(&daemon, "agt_a", &ticket);
    check_revoked(&daemon, &first.token, "invalid_session");
    second.get_my_task();
    assert_eq!(second.report("blocked")["success"], true);
    check_revoked(&daemon, &first.token, "invalid_session");
    // It may repeat its own report, and do nothing else.
    assert_eq!(second.report("success")["success"], true);
    check_refused(&second.get_my_task(), "session_ended", "Invalid session: it has ended");
    assert_eq!(daemon.task_status("tsk"), "blocked");
}

#[test]
fn a_token_is_good_for_its_own_project_only() {
    let daemon = Daemon::crowded("", &world(MINE));
    let mut ann = ByHand::authenticate(&daemon, "agt_a");
    ann.get_my_task();
    let elsewhere = daemon.json(&["task", "show", "tsk_elsewhere"]);
    check_refused(&ann.set("tsk_elsewhere", "in_progress"), "task_not_found", "Task not found");
    let began = ann.call("report_execution_start", json!({ "task_id": "tsk_elsewhere" }));
    check_refused(&began, "task_not_found", "Task not found");
    assert_eq!(ann.get_my_task()["task"]["task_id"], "tsk");
    assert_eq!(daemon.json(&["task", "show", "tsk_elsewhere"]), elsewhere);
}

#[test]
fn the_token_of_an_agent_is_of_no_use_to_another() {
    let daemon = Daemon::running("");
    let call = |arguments: &str| format!("\"$AGENT_COORDINATOR\" call {arguments}");
    let with_anns = r#"{\"session_token\":\"$(cat agt_a.token)\"}"#;
    let report = r#"{\"result\":\"failed\",\"session_token\":\"$(cat agt_a.token)\"}"#;
    daemon.project("prj");
    daemon.agent(
        "agt_a",
        "prj",
        &["authenticate", &write_token("agt_a"), "get-my-task", "wait-for:go", "report:success"],
    );
    daemon.agent(
        "agt_b",
        "prj",
        &[
            "authenticate",
            "wait-for:agt_a.token",
            &format!(
                "run:{} >stolen.draft 2>&1; mv stolen.draft stolen",
                call(&format!("get_my_task \"{with_anns}\""))
            ),
            &format!(
                "run:{} >report.draft 2>&1; mv report.draft report",
                call(&format!("report_completed \"{report}\""))
            ),
            "get-my-task",
            "report:success",
        ],
    );
    daemon.task("tsk", "prj", "agt_a");
    daemon.task("tsk_b", "prj", "agt_b");
    for file in ["stolen", "report"] {
        let path = daemon.work().join(file);
        let said = until_some("Bob has tried", || fs::read_to_string(&path).ok());
        assert!(said.contains("invalid_session") && !said.contains("a title"), "{file}: {said}");
    }
    assert_eq!(daemon.task_status("tsk"), "in_progress");
    assert_eq!(daemon.logged("an agent presented the session token of another agent").len(), 2);
    // The token is valid for its owner.
    fs::write(daemon.work().join("go"), "").unwrap();
    let ended: Value = daemon.until_ended("agt_a");
    assert_eq!(ended["outcome"], "completed", "{ended}");
}
