//! Chats with the real daemon: the agents that they start and end, and the safety of the messages.
//! No message is lost, doubled or reordered.
#![allow(clippy::unwrap_used, reason = "a test")]

mod command;
mod losses;
mod mirror;
mod opening;
mod purposes;
mod seed;

use serde_json::{Value, json};

use crate::control::send_to;
use crate::daemon::{Client, Daemon};
use crate::mcp::{credentials, world};
use crate::support::{until, until_some};

const MESSAGES: &str = "/projects/prj/agents/agt_a/chat/messages";
const START: &str = "/projects/prj/chat/start";
const END: &str = "/projects/prj/chat/end";

/// Sends a person's request. Returns the status and the answer.
fn ask(daemon: &Daemon, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let response = send_to(&daemon.state().join("control.sock"), method, path, body.as_bytes());
    (response.status, serde_json::from_str(&response.body).unwrap_or(Value::Null))
}

/// Sends a person's request that must be granted, and returns the answer.
#[track_caller]
fn asked(daemon: &Daemon, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(daemon, method, path, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}\n{}", daemon.log());
    answer
}

#[track_caller]
fn start(daemon: &Daemon) -> Value {
    asked(daemon, "POST", START, &json!({ "agentId": "agt_a" }))
}

#[track_caller]
fn end(daemon: &Daemon) -> Value {
    asked(daemon, "POST", END, &json!({ "agentId": "agt_a" }))
}

/// Sends a message and returns its id.
#[track_caller]
fn say(daemon: &Daemon, content: &str) -> String {
    let said = asked(daemon, "POST", MESSAGES, &json!({ "content": content }));
    said["id"].as_str().unwrap().to_owned()
}

/// Returns all messages, as (sender, content).
fn said(daemon: &Daemon) -> Vec<(String, String)> {
    let found = asked(daemon, "GET", &format!("{MESSAGES}?limit=200"), &Value::Null);
    assert!(found["nextCursor"].is_null(), "{found}");
    let text = |message: &Value, key: &str| message[key].as_str().unwrap().to_owned();
    let messages = found["messages"].as_array().unwrap().iter();
    messages.map(|message| (text(message, "senderId"), text(message, "content"))).collect()
}

/// Returns the numbers of Ann's open sessions in a project, for a chat and for a task.
fn sessions(daemon: &Daemon) -> (u64, u64) {
    let open = asked(daemon, "GET", "/projects/prj/agent-sessions", &Value::Null)["agentSessions"]
        ["agt_a"]
        .clone();
    (open["chat"].as_u64().unwrap_or(0), open["task"].as_u64().unwrap_or(0))
}

#[track_caller]
fn until_listening(daemon: &Daemon) {
    until("an agent listens", || sessions(daemon).0 == 1);
}

/// Returns whether Ann's chat is wanted, as a coordinator sees it.
fn is_wanted(daemon: &Daemon) -> bool {
    let view = daemon.client().call("wait_for_work", &json!({ "coordinator_id": "crd_look" }));
    let startable = view["startable"].as_array().unwrap();
    startable
        .iter()
        .any(|candidate| candidate["agent_id"] == "agt_a" && candidate["purpose"] == "chat")
}

/// Returns a daemon that starts nothing itself, with Ann and Bob of [`world`].
fn quiet(settings: &str) -> Daemon {
    Daemon::crowded(&format!("polling_interval: 1h\n{settings}"), &world(""))
}

/// Returns a daemon that starts Ann, who takes these steps.
fn lively(settings: &str, steps: &[&str]) -> Daemon {
    let backoff = if settings.contains("backoff") { "" } else { "backoff: { initial: 10ms }\n" };
    let daemon = Daemon::running(&format!("polling_interval: 1h\n{backoff}{settings}"));
    daemon.steps("agt_a", steps);
    daemon.apply(&world(""));
    daemon
}

/// An agent in a chat, whose part the test takes.
struct Talker {
    client: Client,
    token: String,
}

impl Talker {
    /// Authenticates as Ann with her passkey. The chat must be wanted.
    #[track_caller]
    fn by_hand(daemon: &Daemon) -> Self {
        Self::with(daemon, "key_a")
    }

    /// Authenticates with a passkey or a ticket.
    #[track_caller]
    fn with(daemon: &Daemon, passkey: &str) -> Self {
        let mut client = daemon.client();
        let answer = client.call("authenticate", &credentials("agt_a", passkey, "prj"));
        assert_eq!(answer["purpose"], "chat", "{answer}");
        Self { client, token: answer["session_token"].as_str().unwrap().to_owned() }
    }

    /// Opens a chat and authenticates as Ann in it.
    #[track_caller]
    fn in_chat(daemon: &Daemon) -> Self {
        start(daemon);
        Self::by_hand(daemon)
    }

    fn call(&mut self, tool: &str, mut arguments: Value) -> Value {
        arguments["session_token"] = self.token.as_str().into();
        self.client.call(tool, &arguments)
    }

    /// Returns the present action.
    fn next(&mut self) -> Value {
        self.call("get_next_action", json!({ "timeout_seconds": 0 }))
    }

    /// Returns the messages that it has not answered.
    fn pending(&mut self) -> Vec<String> {
        contents(&self.call("get_pending_messages", json!({}))["pending_messages"])
    }

    fn respond(&mut self, content: &str) -> Value {
        let answer = self.call("respond_chat", json!({ "content": content }));
        assert_eq!(answer["success"], true, "{answer}");
        answer
    }

    /// Asks for the next action on a connection of its own, which is returned.
    fn poll_apart(&self, daemon: &Daemon) -> Client {
        let mut client = daemon.client();
        let arguments = json!({ "session_token": self.token });
        let params = json!({ "name": "get_next_action", "arguments": arguments });
        let request =
            json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        client.send(format!("{request}\n").as_bytes());
        client
    }
}

fn contents(messages: &Value) -> Vec<String> {
    let messages = messages.as_array().unwrap_or_else(|| panic!("{messages}"));
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// Waits for the end of Ann's newest launch and returns it.
#[track_caller]
fn until_ended(daemon: &Daemon) -> Value {
    until_some("a launch has ended", || daemon.ended("agt_a").into_iter().next())
}
