//! The tools of agents, from `authenticate` to the end of a session.

use serde_json::{Value, json};

use super::bed::Bed;
use super::client::{Answer, Client};
use crate::mcp::{MINE, credentials, world};
use crate::redacted::redacted;

const COMPLETED: &str = "The task is completed. Your session ends here: exit now.";

/// Returns the ticket with which a coordinator starts Ann.
fn ticket(bed: &Bed) -> String {
    let yes = bed
        .coordinator("crd_one")
        .done("should_start", json!({ "agent_id": "agt_a", "project_id": "prj" }));
    yes["launch_ticket"].as_str().unwrap_or_else(|| panic!("{yes}")).to_owned()
}

fn authenticate(bed: &Bed, agent: &str, passkey: &str, project: &str) -> Answer {
    bed.client().call("authenticate", &credentials(agent, passkey, project))
}

fn opened(expires_in: u64) -> Value {
    json!({
        "success": true, "session_token": "[session_token]", "expires_in": expires_in, "agent_name": "Ann",
        "project_name": "Project", "system_prompt": "You build things.", "purpose": "task",
        "instruction": "Call get_my_task to fetch the details of your task.",
        "working_directory": "[working_directory]",
    })
}

pub fn an_agent_does_its_task(bed: &Bed) {
    bed.with_a_task();
    let ticket = ticket(bed);
    assert!(ticket.starts_with("tkt_"), "{ticket}");
    let answer = authenticate(bed, "agt_a", &ticket, "prj").success();
    // The session belongs to a coordinator's process, so its lifetime depends on that.
    assert_eq!(redacted(&answer), opened(86_400));
    assert_eq!(answer["working_directory"], bed.work().to_str().unwrap());
    assert!(answer["session_token"].as_str().unwrap().starts_with("sess_"));

    let mut agent = bed.agent_with("agt_a", &ticket);
    let answer = agent.done("get_my_task", json!({}));
    let task = json!({
        "task_id": "tsk", "short_id": "PROJECT-1", "title": "Login page", "description": "Build the form.",
        "attempt": 1, "working_directory": "[working_directory]", "context": {}, "handoff": {},
    });
    let instruction = "When the task is finished, call report_completed.";
    let expected =
        json!({ "success": true, "has_task": true, "task": task, "instruction": instruction });
    assert_eq!(redacted(&answer), expected);
    assert_eq!(redacted(&agent.done("get_my_task", json!({}))), expected);

    let moved = |before: &str, after: &str| {
        json!({
            "id": "tsk", "short_id": "PROJECT-1", "title": "Login page", "previous_status": before,
            "new_status": after,
        })
    };
    let mut set = |status: &str| {
        agent.done("update_task_status", json!({ "task_id": "tsk", "status": status }))
    };
    assert_eq!(set("blocked"), json!({ "success": true, "task": moved("in_progress", "blocked") }));
    assert_eq!(
        set("in_progress"),
        json!({ "success": true, "task": moved("blocked", "in_progress") })
    );
    let all_done = "All tasks assigned to you are finished. Call report_completed.";
    assert_eq!(
        set("done"),
        json!({ "success": true, "task": moved("in_progress", "done"), "instruction": all_done })
    );

    let completed = json!({ "success": true, "instruction": COMPLETED });
    let report = |result: &str| json!({ "result": result, "summary": "a summary", "next_steps": "the next steps" });
    assert_eq!(agent.done("report_completed", report("success")), completed);
    // The answer may have been lost. A repeated call gets the same answer, whatever its arguments
    // are.
    assert_eq!(agent.done("report_completed", report("success")), completed);
    assert_eq!(agent.done("report_completed", report("failed")), completed);
    assert_eq!(bed.task("tsk")["status"], "done");

    agent.call("get_my_task", json!({})).refusal("session_ended");
    agent
        .call("update_task_status", json!({ "task_id": "tsk", "status": "todo" }))
        .refusal("session_ended");
    assert_eq!(
        authenticate(bed, "agt_a", &ticket, "prj").refusal("launch_ended"),
        json!({
            "success": false, "error": "This launch has ended or is being stopped", "error_code": "launch_ended",
            "hint": "exit now; the coordinator starts you again when there is work", "action": "exit",
        })
    );
}

pub fn a_passkey_opens_a_session_too(bed: &Bed) {
    bed.with_a_task();
    assert_eq!(redacted(&authenticate(bed, "agt_a", "key_a", "prj").success()), opened(3600));
    let mut bob = bed.agent("agt_b");
    bed.operate("PATCH", "/tasks/tsk", &json!({ "assigneeId": "agt_b" }));
    bob.done("get_my_task", json!({}));
    let recorded = json!({ "success": true, "instruction": "Your report is recorded. Your session ends here: exit now." });
    assert_eq!(
        bob.done("report_completed", json!({ "result": "blocked", "summary": "no network" })),
        recorded
    );
    let task = bed.task("tsk");
    assert_eq!(
        (&task["status"], &task["blockedReason"]),
        (&"blocked".into(), &"no network".into()),
        "{task}"
    );
}

pub fn who_is_refused_at_the_door_is_told_to_exit(bed: &Bed) {
    bed.with_a_task();
    let check = |[agent, passkey, project]: [&str; 3], code: &str, error: &str| {
        let refusal = authenticate(bed, agent, passkey, project).refusal(code);
        assert_eq!(
            (&refusal["error"], &refusal["action"]),
            (&error.into(), &"exit".into()),
            "{refusal}"
        );
    };
    check(["agt_a", "key_b", "prj"], "invalid_credentials", "Invalid agent_id or passkey");
    check(["agt_a", "key_a", "prj_nowhere"], "project_not_found", "Project not found");
    check(["agt_b", "key_b", "prj_2"], "not_assigned", "Agent is not assigned to this project");
    bed.operate("PATCH", "/projects/prj_2", &json!({ "status": "inactive" }));
    check(["agt_a", "key_a", "prj_2"], "inactive", "Agent or project is not active");
    bed.agent("agt_a");
    check(
        ["agt_a", "key_a", "prj"],
        "already_running",
        "Agent instance already running for this project",
    );
    // This answer needs a correct passkey.
    check(["agt_a", "key_b", "prj"], "invalid_credentials", "Invalid agent_id or passkey");
    bed.operate("PATCH", "/agents/agt_b", &json!({ "status": "inactive" }));
    check(["agt_b", "key_b", "prj"], "inactive", "Agent or project is not active");
}

pub fn an_unknown_agent_and_a_wrong_passkey_get_the_same_answer(bed: &Bed) {
    bed.with_a_task();
    let mut client = bed.client();
    let ask = |client: &mut Client, [agent, passkey, project]: [&str; 3]| {
        client.begin("authenticate", &credentials(agent, passkey, project))
    };
    let anonymous = |client: &mut Client, id: u64| {
        client.answer_line(id).replacen(&format!("\"id\":{id}"), "", 1)
    };
    let id = ask(&mut client, ["agt_a", "key_b", "prj"]);
    let wrong = anonymous(&mut client, id);
    let hint = "use the AGENT_ID and AGENT_PASSKEY of your environment as they are";
    assert_eq!(
        bed.client()
            .call("authenticate", &credentials("agt_x", "", "prj"))
            .refusal("invalid_credentials"),
        json!({
            "success": false, "error": "Invalid agent_id or passkey", "error_code": "invalid_credentials", "hint": hint,
            "action": "exit",
        })
    );
    bed.apply("agents: { agt_keyless: {} }\nprojects: { prj: { working_directory: work, agents: [agt_keyless] } }");
    let others = [
        ["agt_nobody", "key_b", "prj"],
        ["agt_nobody", "", "prj"],
        ["agt_b", "", "prj"],
        ["agt_a", "key_a ", "prj"],
        ["no id at all", "key_b", "prj"],
        // An agent without a passkey can't authenticate with one.
        ["agt_keyless", "", "prj"],
        // A caller without proof learns nothing about projects.
        ["agt_b", "key_a", "prj_nowhere"],
        ["agt_nowhere", "key_b", "prj_nowhere"],
    ];
    // They are sent at the same time, because their answers are delayed more and more.
    let asked: Vec<_> = others.into_iter().map(|other| (other, ask(&mut client, other))).collect();
    for (other, id) in asked {
        assert_eq!(anonymous(&mut client, id), wrong, "{other:?}");
    }
}

pub fn a_ticket_used_again_rotates_the_token(bed: &Bed) {
    bed.with_a_task();
    let ticket = ticket(bed);
    let (mut first, mut second) =
        (bed.agent_with("agt_a", &ticket), bed.agent_with("agt_a", &ticket));
    assert_ne!(first.shows("session_token"), second.shows("session_token"));
    first.call("get_my_task", json!({})).refusal("invalid_session");
    first.call("report_completed", json!({ "result": "success" })).refusal("invalid_session");
    assert_eq!(second.done("get_my_task", json!({}))["task"]["task_id"], "tsk");
    // The passkey does not, because the agent is running.
    authenticate(bed, "agt_a", "key_a", "prj").refusal("already_running");
    // Other agents can't use the ticket.
    authenticate(bed, "agt_nobody", &ticket, "prj").refusal("invalid_credentials");
    authenticate(bed, "agt_b", &ticket, "prj").refusal("invalid_credentials");
    authenticate(bed, "agt_a", &ticket, "prj_2").refusal("invalid_credentials");
}

pub fn only_success_is_refused_while_subtasks_are_open(bed: &Bed) {
    let part =
        "  tsk_part: { project: prj, parent: tsk, title: t, assignee: agt_b, status: todo }\n";
    bed.apply(&world(&format!("{MINE}{part}")));
    let mut agent = bed.agent("agt_a");
    agent.done("get_my_task", json!({}));
    let success = json!({ "result": "success" });
    assert_eq!(
        agent.call("report_completed", success.clone()).refusal("subtasks_open"),
        json!({
            "success": false, "error": "Task tsk has subtasks that are not finished: tsk_part",
            "error_code": "subtasks_open", "hint": "finish or cancel the subtasks first",
        })
    );
    // The session goes on.
    agent.done("update_task_status", json!({ "task_id": "tsk_part", "status": "cancelled" }));
    assert_eq!(agent.done("report_completed", success)["instruction"], COMPLETED);

    for (task, status) in [("tsk", "todo"), ("tsk_part", "todo"), ("tsk", "in_progress")] {
        bed.set_task(task, status);
    }
    bed.agent("agt_a").done("report_completed", json!({ "result": "failed" }));
    assert_eq!(
        (&bed.task("tsk")["status"], &bed.task("tsk_part")["status"]),
        (&"blocked".into(), &"blocked".into())
    );
}

pub fn a_logout_ends_the_session_without_a_report(bed: &Bed) {
    bed.with_a_task();
    let mut agent = bed.agent("agt_a");
    agent.done("get_my_task", json!({}));
    let gone = json!({ "success": true, "instruction": "Your session has ended: exit now." });
    assert_eq!(agent.done("logout", json!({})), gone);
    agent.call("logout", json!({})).refusal("session_ended");
    agent.call("report_completed", json!({ "result": "success" })).refusal("session_ended");
    assert_eq!(bed.status()["ended"][0]["outcome"], "exited_without_report");
    assert_eq!(bed.task("tsk")["status"], "in_progress");
}
