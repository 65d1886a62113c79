//! The tools of an agent in a chat.

use serde_json::{Value, json};

use super::bed::Bed;
use super::client::Caller;
use crate::mcp::world;
use crate::redacted::redacted;

const MESSAGES: &str = "/projects/prj/agents/agt_a/chat/messages";

/// Returns Ann in a chat.
fn in_chat(bed: &Bed) -> Caller {
    bed.apply(&world(""));
    bed.operate("POST", "/projects/prj/chat/start", &json!({ "agentId": "agt_a" }));
    bed.agent("agt_a")
}

/// Sends a message as a person and returns its id.
fn say(bed: &Bed, content: &str) -> Value {
    bed.operate("POST", MESSAGES, &json!({ "content": content }))["id"].clone()
}

fn message(id: &Value, sender: &str, content: &str) -> Value {
    let mut message =
        json!({ "id": id, "sender_id": sender, "content": content, "created_at": "[created_at]" });
    if sender == "user" {
        message["author"] = format!("local:{}", nix::unistd::Uid::effective()).into();
    }
    message
}

pub fn an_agent_in_a_chat_answers_what_was_said(bed: &Bed) {
    let mut ann = in_chat(bed);
    let wait = ann.done("get_next_action", json!({ "timeout_seconds": 0 }));
    assert_eq!(
        (&wait["action"], &wait["wait_seconds"]),
        (&"wait_for_messages".into(), &0.into()),
        "{wait}"
    );
    // The answer contains a turn, so that the agent makes no two identical calls.
    for turn in 1..4 {
        let wait = ann.done("get_next_action", json!({ "timeout_seconds": 0, "turn": turn }));
        assert_eq!(
            (&wait["action"], &wait["turn"]),
            (&"wait_for_messages".into(), &(turn + 1).into()),
            "{wait}"
        );
        assert!(wait["hint"].as_str().unwrap().contains("with the turn of this answer"), "{wait}");
    }
    assert_eq!(wait["turn"], 1);
    let one = say(bed, "What is the progress?");
    let expected = json!({
        "success": true, "action": "get_pending_messages", "messages": [message(&one, "user", "What is the progress?")],
        "instruction": "There are messages for you. Read them (they are in this answer, and get_pending_messages returns \
                        them again), reply with respond_chat, then call get_next_action.",
    });
    assert_eq!(redacted(&ann.done("get_next_action", json!({}))), expected);
    let expected = json!({
        "success": true, "pending_messages": [message(&one, "user", "What is the progress?")], "context_messages": [],
        "instruction": "Reply with respond_chat, then call get_next_action.",
    });
    assert_eq!(redacted(&ann.done("get_pending_messages", json!({}))), expected);
    let answer = ann.done("respond_chat", json!({ "content": "Nearly done." }));
    let two = answer["message_id"].clone();
    let instruction = "Your answer is delivered. Call get_next_action.";
    assert_eq!(answer, json!({ "success": true, "message_id": two, "instruction": instruction }));
    // The hidden message that opened the chat is not shown.
    let expected = json!({
        "success": true, "pending_messages": [], "instruction": "There are no messages for you. Call get_next_action.",
        "context_messages": [message(&one, "user", "What is the progress?"), message(&two, "agt_a", "Nearly done.")],
    });
    assert_eq!(redacted(&ann.done("get_pending_messages", json!({}))), expected);
    ann.done("logout", json!({}));
    ann.call("respond_chat", json!({ "content": "x" })).refusal("session_ended");
}

pub fn a_tool_of_the_other_purpose_says_what_to_call(bed: &Bed) {
    let mut ann = in_chat(bed);
    let words = "This tool is not for a chat session: call logout";
    let expected = json!({ "success": false, "error": words, "error_code": "wrong_purpose" });
    assert_eq!(
        ann.call("report_completed", json!({ "result": "success" })).refusal("wrong_purpose"),
        expected
    );
    ann.call("get_my_task", json!({})).refusal("wrong_purpose");
    let refusal =
        bed.agent("agt_b").call("get_pending_messages", json!({})).refusal("wrong_purpose");
    assert_eq!(refusal["error"], "This tool is not for a task session: call get_my_task");
}

pub fn a_held_poll_ends_with_the_message(bed: &Bed) {
    let mut ann = in_chat(bed);
    let id = ann.begin("get_next_action", json!({}));
    // Another call is answered at once meanwhile.
    assert_eq!(ann.done("health_check", json!({}))["status"], "ok");
    say(bed, "one");
    assert_eq!(ann.client.answer(id).success()["messages"][0]["content"], "one");
}

pub fn a_poll_that_is_given_up_loses_no_message(bed: &Bed) {
    let mut ann = in_chat(bed);
    let id = ann.begin("get_next_action", json!({}));
    let given_up = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    ann.client.send(&given_up.to_string());
    say(bed, "one");
    let token = json!({ "session_token": ann.shows("session_token") });
    // This client closes its connection without cancelling.
    let mut gone = Caller::new(bed.client(), &token);
    gone.begin("get_next_action", json!({}));
    drop(gone);
    let next = Caller::new(bed.client(), &token).done("get_next_action", json!({}));
    assert_eq!(next["messages"][0]["content"], "one");
}

pub fn whoever_waits_for_messages_is_told_to_come_back_when_the_server_stops(bed: &mut Bed) {
    let mut ann = in_chat(bed);
    let id = ann.begin("get_next_action", json!({}));
    assert_eq!(ann.done("health_check", json!({}))["status"], "ok");
    bed.begin_to_stop();
    let next = ann.client.answer(id).success();
    assert_eq!(
        (&next["action"], &next["wait_seconds"]),
        (&"wait_for_messages".into(), &5.into()),
        "{next}"
    );
    assert!(bed.has_ended_well());
}
