//! Calls that wait, and clients that give up: the ways to say so in HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Answer, JSON, Web, request_head};
use crate::control::send_to;
use crate::daemon::Daemon;
use crate::mcp::{credentials, world};
use crate::support::until;

const TOKEN: &str = "coord_of_this_test";
const BOTH: &str = "Accept: application/json, text/event-stream\r\n";

fn daemon() -> Daemon {
    Daemon::running(&format!(
        "{}coordinator_token: {TOKEN}\nlog: {{ level: debug }}\n",
        super::LISTENING
    ))
}

/// Returns a call that waits for news that do not come.
fn wait(daemon: &Daemon, timeout_seconds: u64, meta: &Value) -> String {
    let who = json!({ "coordinator_id": "crd", "coordinator_token": TOKEN });
    let seen = Web::to(daemon).call("wait_for_work", &who)["seen"].clone();
    let mut arguments = json!({ "seen": seen, "timeout_seconds": timeout_seconds });
    arguments.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
    let params = json!({ "name": "wait_for_work", "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string()
}

/// Sends a request without waiting for its answer.
fn begin(web: &mut Web, headers: &str, body: &str) {
    web.send(request_head(&format!("{JSON}{headers}"), body.len()));
    web.send(body);
}

fn until_dropped(daemon: &Daemon) {
    until("the call is dropped", || daemon.log().contains("tool call dropped"));
}

/// Makes a call, leaves it when it has begun, and waits until it is dropped.
fn leave_until_dropped(daemon: &Daemon, headers: &str, body: &str, leave: impl FnOnce(Web)) {
    let n_begun = || daemon.log().matches("tool call begun").count();
    let n_before = n_begun();
    let mut web = Web::to(daemon);
    begin(&mut web, headers, body);
    // A call whose client leaves before it has begun never begins.
    until("the call has begun", || n_begun() > n_before);
    leave(web);
    until_dropped(daemon);
}

/// Does a handshake and returns the headers that a client repeats.
fn shake_hands(daemon: &Daemon) -> String {
    let client = json!({ "name": "a test", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let answer = Web::to(daemon).request(BOTH, "initialize", &hello);
    let id = answer.header("mcp-session-id").unwrap();
    assert_eq!(id.len(), 32, "{id}");
    format!("{BOTH}MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {id}\r\n")
}

fn cancel(daemon: &Daemon, headers: &str, id: u64) -> Answer {
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    Web::to(daemon).post(&format!("{JSON}{headers}"), cancel.to_string().as_bytes()).unwrap()
}

#[test]
fn a_call_is_cancelled_by_the_client_that_made_it_and_by_no_other() {
    let daemon = daemon();
    let (one, two) = (shake_hands(&daemon), shake_hands(&daemon));
    assert_ne!(one, two);
    let mut web = Web::to(&daemon);
    begin(&mut web, &one, &wait(&daemon, 55, &json!({})));
    // The order of two connections is not defined. The effect on the call shows whether it has
    // arrived.
    for (headers, id) in [(two.as_str(), 7), (BOTH, 7), (one.as_str(), 8)] {
        assert_eq!(cancel(&daemon, headers, id).status, 202);
    }
    until("the call is cancelled", || {
        assert_eq!(cancel(&daemon, &one, 7).status, 202);
        daemon.log().contains("tool call dropped")
    });
    // There is no answer, and the connection goes on.
    let answer = web.receive().unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    web.check_well();
    assert_eq!(daemon.log().matches("tool call dropped").count(), 1);
}

#[test]
fn a_cancelled_call_ends_its_stream_without_an_answer() {
    let daemon = daemon();
    let one = shake_hands(&daemon);
    let mut web = Web::to(&daemon);
    begin(&mut web, &one, &wait(&daemon, 55, &json!({ "progressToken": 1 })));
    until("the stream has begun", || {
        web.more().unwrap();
        String::from_utf8_lossy(&web.rest).contains("notifications/progress")
    });
    cancel(&daemon, &one, 7);
    let answer = web.receive().unwrap();
    assert_eq!(answer.messages().len(), 1, "{answer:?}");
    until_dropped(&daemon);
    web.check_well();
}

#[test]
fn a_closed_connection_is_a_cancelled_call_in_every_revision() {
    let newest =
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: wait_for_work\r\n";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listening = "Accept: text/event-stream\r\n".to_owned();
    for (headers, meta) in
        [(format!("{BOTH}{newest}"), meta), (listening, json!({})), (String::new(), json!({}))]
    {
        let daemon = daemon();
        let body = wait(&daemon, 55, &meta);
        leave_until_dropped(&daemon, &headers, &body, drop);
    }
}

#[test]
fn a_client_that_ends_its_side_has_left() {
    let daemon = daemon();
    let body = wait(&daemon, 55, &json!({}));
    leave_until_dropped(&daemon, "", &body, |mut web| {
        web.half_close();
        assert!(web.receive().is_none());
    });
}

#[test]
fn a_message_does_not_go_to_a_poll_whose_connection_is_closed() {
    let settings = format!("{}polling_interval: 1h\nlog: {{ level: debug }}\n", super::LISTENING);
    let daemon = Daemon::crowded(&settings, &world(""));
    let ask = |path: &str, body: &Value| {
        let response = send_to(
            &daemon.state().join("control.sock"),
            "POST",
            path,
            body.to_string().as_bytes(),
        );
        assert!((200..300).contains(&response.status), "{path}: {}", response.body);
    };
    ask("/projects/prj/chat/start", &json!({ "agentId": "agt_a" }));
    let mut ann = Web::to(&daemon);
    let token =
        ann.call("authenticate", &credentials("agt_a", "key_a", "prj"))["session_token"].clone();
    let params = json!({ "name": "get_next_action", "arguments": { "session_token": token } });
    let poll =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let mut web = Web::to(&daemon);
    begin(&mut web, "", &poll);
    let pending = ann.call("get_pending_messages", &json!({ "session_token": token }));
    assert_eq!(pending["pending_messages"], json!([]), "{pending}");
    let closed = Instant::now();
    drop(web);
    until_dropped(&daemon);
    ask("/projects/prj/agents/agt_a/chat/messages", &json!({ "content": "hello" }));
    let next = ann.call("get_next_action", &json!({ "session_token": token }));
    assert_eq!(next["action"], "get_pending_messages", "{next}");
    // The agent would count as present for 2 s after a poll, and would get the message again only
    // after 5 s.
    assert!(closed.elapsed() < Duration::from_secs(1), "{:?}", closed.elapsed());
}

#[test]
fn what_is_sent_during_a_wait_is_answered_after_it() {
    let daemon = daemon();
    let mut web = Web::to(&daemon);
    begin(&mut web, "", &wait(&daemon, 1, &json!({})));
    let long = json!({ "jsonrpc": "2.0", "id": 8, "method": "ping", "x": "x".repeat(100_000) })
        .to_string();
    begin(&mut web, "", &long);
    begin(&mut web, "", super::HEALTH);
    let ids: Vec<Value> = (0..3).map(|_| web.receive().unwrap().json()["id"].clone()).collect();
    assert_eq!(ids, [7, 8, 1]);
    web.check_well();
}

#[test]
fn who_takes_one_object_gets_one_object() {
    let daemon = daemon();
    let body = wait(&daemon, 3, &json!({ "progressToken": "x" }));
    let mut web = Web::to(&daemon);
    for accept in ["Accept: application/json\r\n", "Accept: */*\r\n", ""] {
        begin(&mut web, accept, &body);
    }
    for _ in 0..3 {
        let answer = web.receive().unwrap();
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
        assert_eq!(answer.json()["result"]["structuredContent"]["success"], true, "{answer:?}");
    }
}
