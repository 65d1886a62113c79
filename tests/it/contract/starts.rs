//! `should_start` and `get_agent_action`: the answer "true" reserves the start.

use serde_json::{Value, json};

use super::bed::Bed;
use crate::mcp::credentials;
use crate::redacted::redacted;

fn pair() -> Value {
    json!({ "agent_id": "agt_a", "project_id": "prj" })
}

fn no(reason: &str) -> Value {
    json!({ "should_start": false, "reason": reason })
}

pub fn a_yes_reserves_the_start_for_who_asked(bed: &Bed) {
    bed.with_a_task();
    let (mut one, mut two) = (bed.coordinator("crd_one"), bed.coordinator("crd_two"));
    let yes = one.done("should_start", pair());
    let expected = json!({
        "should_start": true, "reason": "ready", "ai_type": "claude", "purpose": "task", "launch_id": "[launch_id]",
        "start_deadline": "[start_deadline]", "launch_ticket": "[launch_ticket]",
    });
    assert_eq!(redacted(&yes), expected);
    yes["start_deadline"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(yes["launch_ticket"].as_str().unwrap().starts_with("tkt_"));

    assert_eq!(two.done("should_start", pair()), no("starting"));
    assert_eq!(bed.nameless_coordinator().done("should_start", pair()), no("starting"));
    // The first answer may have been lost. An agent that was started with it keeps its ticket.
    assert_eq!(one.done("should_start", pair()), yes);
    assert_eq!(bed.coordinator("crd_one").done("should_start", pair()), yes);

    one.done("report_process_started", json!({ "launch_id": yes["launch_id"], "pid": 4242 }));
    assert_eq!(one.done("should_start", pair()), no("starting"));
    let agent = credentials("agt_a", yes["launch_ticket"].as_str().unwrap(), "prj");
    bed.client().call("authenticate", &agent).success();
    assert_eq!(one.done("should_start", pair()), no("running"));
}

pub fn a_ticket_is_only_for_a_coordinator_that_says_its_name(bed: &Bed) {
    bed.with_a_task();
    let yes = bed.nameless_coordinator().done("should_start", pair());
    let expected = json!({
        "should_start": true, "reason": "ready", "ai_type": "claude", "purpose": "task", "launch_id": "[launch_id]",
        "start_deadline": "[start_deadline]",
    });
    assert_eq!(redacted(&yes), expected);
    // A coordinator of the older system starts the agent with its passkey, which uses the
    // reservation.
    bed.agent("agt_a");
    assert_eq!(bed.launch(&yes["launch_id"])["state"], "running");
}

pub fn a_no_says_why(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let mut check = |agent: &str, project: &str, reason: &str| {
        let arguments = json!({ "agent_id": agent, "project_id": project });
        assert_eq!(coordinator.done("should_start", arguments.clone()), no(reason));
        let hold = json!({ "action": "hold", "reason": reason, "purpose": "task" });
        assert_eq!(coordinator.done("get_agent_action", arguments), hold);
    };
    check("agt_x", "prj", "unknown");
    check("agt_a", "prj_x", "unknown");
    check("agt_b", "prj_2", "not_assigned");
    check("agt_a", "prj_2", "no_work");
    bed.operate("POST", "/stop", &json!({ "agentId": "agt_a", "projectId": "prj" }));
    check("agt_a", "prj", "held");
    bed.operate("POST", "/resume", &json!({ "agentId": "agt_a", "projectId": "prj" }));
    bed.operate("POST", "/stop", &json!({ "all": true }));
    check("agt_a", "prj", "paused");
    bed.operate("PATCH", "/projects/prj", &json!({ "status": "inactive" }));
    check("agt_a", "prj", "inactive");
}

pub fn an_action_is_the_same_decision_in_one_word(bed: &Bed) {
    bed.with_a_task();
    let mut coordinator = bed.coordinator("crd_one");
    let start = coordinator.done("get_agent_action", pair());
    let expected = json!({
        "action": "start", "reason": "ready", "purpose": "task", "launch_id": "[launch_id]", "provider": "claude",
        "start_deadline": "[start_deadline]", "launch_ticket": "[launch_ticket]",
    });
    assert_eq!(redacted(&start), expected);
    let hold = |reason: &str| json!({ "action": "hold", "reason": reason, "purpose": "task" });
    assert_eq!(bed.coordinator("crd_two").done("get_agent_action", pair()), hold("starting"));
    assert_eq!(coordinator.done("get_agent_action", pair()), start);
    // There is one reservation, in whichever form it is requested.
    assert_eq!(coordinator.done("should_start", pair())["launch_ticket"], start["launch_ticket"]);

    let mut agent = bed.agent_with("agt_a", start["launch_ticket"].as_str().unwrap());
    assert_eq!(coordinator.done("get_agent_action", pair()), hold("running"));
    agent.done("get_my_task", json!({}));
    agent.done("report_completed", json!({ "result": "success" }));
    // It has some time to end by itself.
    assert_eq!(coordinator.done("get_agent_action", pair()), hold("stopping"));
    bed.operate("POST", "/stop", &json!({ "agentId": "agt_a", "projectId": "prj" }));
    let stop = json!({ "action": "stop", "reason": "reported", "purpose": "task", "launch_id": start["launch_id"] });
    assert_eq!(coordinator.done("get_agent_action", pair()), stop);
}
