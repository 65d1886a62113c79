//! The identity of callers: the rights of a token, and the limits without one.

use serde_json::{Value, json};

use super::bed::{Bed, TOKEN};
use super::client::{Answer, Caller, Client};
use crate::mcp::{MINE, world};

/// Returns every tool of coordinators, with valid arguments that change nothing.
fn coordinator_tools() -> Vec<(&'static str, Value)> {
    let pair = json!({ "agent_id": "agt_b", "project_id": "prj" });
    let launch = |more: Value| {
        let mut arguments = json!({ "launch_id": "lch_x" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    vec![
        ("list_active_projects_with_agents", json!({})),
        ("should_start", pair.clone()),
        ("get_agent_action", pair),
        ("wait_for_work", json!({})),
        ("list_stop_requests", json!({})),
        ("report_process_started", launch(json!({ "pid": 7 }))),
        ("report_process_stopping", launch(json!({ "reason": "shutdown" }))),
        ("report_process_exit", launch(json!({}))),
        ("report_activity", launch(json!({ "turns": 1 }))),
        ("report_status", json!({ "max_concurrent": 1 })),
        ("list_managed_agents", json!({})),
        ("invalidate_session", json!({ "agent_id": "agt_a", "project_id": "prj" })),
        ("register_execution_log_file", json!({ "log_file_path": "/log" })),
    ]
}

/// Returns the answer of each tool to `client`, which sends `identity`. The calls are sent at the
/// same time, because the answers to wrong tokens are delayed more and more.
fn ask_all(
    client: Client,
    tools: Vec<(&'static str, Value)>,
    identity: &Value,
) -> Vec<(&'static str, Answer)> {
    let mut caller = Caller::new(client, identity);
    let asked: Vec<_> =
        tools.into_iter().map(|(tool, arguments)| (tool, caller.begin(tool, arguments))).collect();
    asked.into_iter().map(|(tool, id)| (tool, caller.client.answer(id))).collect()
}

#[track_caller]
fn check_refused(answer: Answer) {
    let expected = json!({
        "success": false, "error": "This tool is for coordinators", "error_code": "coordinator_only",
        "hint": "agents call get_my_task and report_completed",
    });
    assert_eq!(answer.refusal("coordinator_only"), expected);
}

#[track_caller]
fn check_all_taken(bed: &Bed, identity: &Value) {
    for (tool, answer) in ask_all(bed.client(), coordinator_tools(), identity) {
        if tool.starts_with("report_process") || tool == "report_activity" {
            answer.refusal("launch_not_found");
        } else {
            answer.success();
        }
    }
}

pub fn a_coordinator_shows_its_token_where_nobody_sees_its_process(bed: &Bed) {
    bed.with_a_task();
    check_all_taken(bed, &json!({ "coordinator_id": "crd_x", "coordinator_token": TOKEN }));
    let list = |identity: Value| bed.client().call("list_active_projects_with_agents", &identity);
    if bed.endpoint.knows_its_peer() {
        check_all_taken(bed, &json!({ "coordinator_id": "crd_x" }));
    } else {
        check_refused(list(json!({ "coordinator_id": "crd_x" })));
    }
    // A caller with a wrong token does not get the rights of its process.
    check_refused(list(json!({ "coordinator_token": "coord_wrong" })));
    // Every caller may learn that the server is running.
    assert_eq!(bed.client().call("health_check", &json!({})).success()["status"], "ok");
}

pub fn an_agent_s_token_opens_no_tool_of_coordinators(bed: &Bed) {
    bed.with_a_task();
    let as_agent = json!({ "session_token": TOKEN, "coordinator_token": TOKEN });
    bed.client().call("get_my_task", &as_agent).refusal("invalid_session");
    let agent = bed.agent("agt_a");
    let token = agent.shows("session_token");
    let identity =
        json!({ "coordinator_id": "crd_x", "coordinator_token": token, "session_token": token });
    for (_, answer) in ask_all(bed.client(), coordinator_tools(), &identity) {
        check_refused(answer);
    }
}

pub fn a_session_token_has_two_names(bed: &Bed) {
    bed.with_a_task();
    let agent = bed.agent("agt_a");
    let token = agent.shows("session_token");
    let with = |arguments: Value| bed.client().call("get_my_task", &arguments);
    assert_eq!(with(json!({ "token": token })).success()["task"]["task_id"], "tsk");
    assert_eq!(with(json!({ "session_token": null, "token": token })).success()["success"], true);
    with(json!({ "session_token": "sess_x", "token": token })).refusal("invalid_session");
    let report = json!({ "token": token, "result": "success" });
    assert_eq!(bed.client().call("report_completed", &report).success()["success"], true);
}

pub fn a_token_that_is_none_is_refused_by_every_tool(bed: &Bed) {
    bed.with_a_task();
    let tools = [
        ("get_my_task", json!({})),
        ("update_task_status", json!({ "task_id": "tsk", "status": "done" })),
        ("report_completed", json!({ "result": "success" })),
        ("logout", json!({})),
        ("get_pending_tasks", json!({})),
        ("report_execution_start", json!({ "task_id": "tsk" })),
        ("report_execution_complete", json!({ "exit_code": 0 })),
    ];
    let long = "x".repeat(10_000);
    let (mut client, mut asked) = (bed.client(), Vec::new());
    for token in ["", "sess_", "key_a", "tkt_x", &long] {
        for (tool, more) in &tools {
            let mut arguments = more.clone();
            arguments["session_token"] = token.into();
            asked.push(client.begin(tool, &arguments));
        }
    }
    for id in asked {
        match client.answer(id) {
            // Over the network, the server checks only a few guesses of one host at a time.
            Answer::Refusal(guess) if guess["error_code"] == "too_many_attempts" => {
                assert!(!bed.endpoint.knows_its_peer());
            }
            other => assert_eq!(other.refusal("invalid_session")["error"], "Invalid session token"),
        }
    }
    assert_eq!(bed.task("tsk")["status"], "in_progress");
}

pub fn a_session_reaches_its_own_work_only(bed: &Bed) {
    let bobs = "  tsk_bobs: { project: prj, title: t, assignee: agt_b, status: in_progress }\n";
    bed.apply(&world(&format!("{MINE}{bobs}")));
    let (mut ann, mut bob) = (bed.agent("agt_a"), bed.agent("agt_b"));
    assert_eq!(ann.done("get_my_task", json!({}))["task"]["task_id"], "tsk");
    assert_eq!(bob.done("get_my_task", json!({}))["task"]["task_id"], "tsk_bobs");
    let mut set =
        |task: &str| bob.call("update_task_status", json!({ "task_id": task, "status": "done" }));
    set("tsk").refusal("not_your_task");
    // A task of another project is not even acknowledged.
    set("tsk_elsewhere").refusal("task_not_found");
    set("tsk_nowhere").refusal("task_not_found");
    // Bob's token identifies Bob, whatever the other arguments say.
    bob.call("report_completed", json!({ "result": "failed", "agent_id": "agt_a" }))
        .refusal("invalid_arguments");
    bob.done("report_completed", json!({ "result": "failed", "agent_id": "agt_b" }));
    let statuses = (bed.task("tsk")["status"].clone(), bed.task("tsk_bobs")["status"].clone());
    assert_eq!(statuses, ("in_progress".into(), "blocked".into()));
    ann.done("report_completed", json!({ "result": "success" }));
}
