//! A client of JSON-RPC that does not depend on the interface.

use std::collections::BTreeMap;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::DEADLINE;

/// A connection for messages to a server and its messages, in any order.
pub struct Wire {
    send: Box<dyn FnMut(&str)>,
    answers: mpsc::Receiver<String>,
    end: Option<Box<dyn FnOnce()>>,
}

impl Wire {
    pub fn new(answers: mpsc::Receiver<String>, send: impl FnMut(&str) + 'static) -> Self {
        Self { send: Box::new(send), answers, end: None }
    }

    /// Makes a connection from a stream that is read by blocking.
    pub fn of_lines(
        lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
        send: impl FnMut(&str) + 'static,
    ) -> Self {
        let (answers, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = answers.send(line);
            }
        });
        Self::new(receiver, send)
    }

    /// Sets the action at the drop of the connection.
    pub fn ending(mut self, end: impl FnOnce() + 'static) -> Self {
        self.end = Some(Box::new(end));
        self
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Success(Value),
    Refusal(Value),
    /// An error of the protocol.
    Error {
        code: i64,
        message: String,
    },
}

impl Answer {
    /// Parses an answer. Checks that it has the common form of all answers.
    #[track_caller]
    fn of(line: &str) -> Self {
        let message: Value = serde_json::from_str(line).unwrap();
        if let Some(error) = message.get("error") {
            assert!(message.get("result").is_none(), "{line}");
            return Self::Error {
                code: error["code"].as_i64().unwrap(),
                message: error["message"].as_str().unwrap().to_owned(),
            };
        }
        let result = &message["result"];
        let content = result["content"].as_array().unwrap_or_else(|| panic!("{line}"));
        assert_eq!((content.len(), &content[0]["type"]), (1, &"text".into()), "{line}");
        let text = content[0]["text"].as_str().unwrap();
        assert!(
            line.contains(&format!("\"structuredContent\":{text}")),
            "not the same bytes: {line}"
        );
        let object = result["structuredContent"].clone();
        assert!(object.is_object(), "{line}");
        if result["isError"] == true {
            assert_eq!(object["success"], false, "{line}");
            let code = object["error_code"].as_str().unwrap_or_else(|| panic!("{line}"));
            assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            assert!(
                object["error"].is_string()
                    && (object.get("hint").is_none() || object["hint"].is_string()),
                "{line}"
            );
            Self::Refusal(object)
        } else {
            assert_ne!(object["success"], false, "{line}");
            assert!(object.get("error").is_none() && object.get("error_code").is_none(), "{line}");
            Self::Success(object)
        }
    }

    #[track_caller]
    pub fn success(self) -> Value {
        match self {
            Self::Success(object) => object,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the refusal with this code.
    #[track_caller]
    pub fn refusal(self, error_code: &str) -> Value {
        match self {
            Self::Refusal(object) if object["error_code"] == error_code => object,
            other => panic!("not refused with {error_code}: {other:?}"),
        }
    }
}

/// One connection.
pub struct Client {
    wire: Wire,
    n_requests: u64,
    /// Answers that arrived while the test waited for another one.
    early: BTreeMap<u64, String>,
    /// The messages that are not answers.
    notices: Vec<Value>,
}

impl Client {
    pub fn new(wire: Wire) -> Self {
        Self { wire, n_requests: 0, early: BTreeMap::new(), notices: Vec::new() }
    }

    /// Sends a line unchanged.
    pub fn send(&mut self, line: &str) {
        (self.wire.send)(&format!("{line}\n"));
    }

    /// Returns the next message of any kind.
    #[track_caller]
    pub fn receive(&mut self) -> String {
        self.wire.answers.recv_timeout(DEADLINE).expect("an answer")
    }

    /// Sends a request and doesn't wait for its answer.
    pub fn begin_request(&mut self, method: &str, params: &Value) -> u64 {
        self.n_requests += 1;
        let request =
            json!({ "jsonrpc": "2.0", "id": self.n_requests, "method": method, "params": params });
        self.send(&request.to_string());
        self.n_requests
    }

    /// Waits for the answer to an earlier request and returns it unchanged.
    #[track_caller]
    pub fn answer_line(&mut self, id: u64) -> String {
        loop {
            if let Some(line) = self.early.remove(&id) {
                return line;
            }
            let line = self.receive();
            self.sort(line);
        }
    }

    #[track_caller]
    fn sort(&mut self, line: String) {
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        if message["method"].is_string() && message["id"].is_null() {
            self.notices.push(message);
            return;
        }
        self.early.insert(
            message["id"].as_u64().unwrap_or_else(|| panic!("nobody asked for {line}")),
            line,
        );
    }

    /// Returns the messages before the answers so far that are not answers.
    pub fn notices(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.notices)
    }

    /// Returns whether the answer has come.
    pub fn has_answer(&mut self, id: u64) -> bool {
        while let Ok(line) = self.wire.answers.try_recv() {
            self.sort(line);
        }
        self.early.contains_key(&id)
    }

    #[track_caller]
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin_request(method, params);
        serde_json::from_str(&self.answer_line(id)).unwrap()
    }

    pub fn begin(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.begin_request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    #[track_caller]
    pub fn answer(&mut self, id: u64) -> Answer {
        Answer::of(&self.answer_line(id))
    }

    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let id = self.begin(tool, arguments);
        self.answer(id)
    }
}

/// A client that sends its credentials with each call.
pub struct Caller {
    pub client: Client,
    identity: Value,
}

impl Caller {
    pub fn new(client: Client, identity: &Value) -> Self {
        Self { client, identity: json!({}) }.with(identity)
    }

    /// Adds this to its credentials.
    pub fn with(mut self, more: &Value) -> Self {
        merge(&mut self.identity, more);
        self
    }

    /// Returns its credential of this name.
    pub fn shows(&self, name: &str) -> &str {
        self.identity[name].as_str().unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "written with json! at each call")]
    pub fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        let arguments = self.arguments(&arguments);
        self.client.begin(tool, &arguments)
    }

    /// Begins a call with progress messages.
    pub fn begin_attended(&mut self, tool: &str, arguments: &Value, progress_token: &str) -> u64 {
        let meta = json!({ "progressToken": progress_token });
        let params = json!({ "name": tool, "arguments": self.arguments(arguments), "_meta": meta });
        self.client.begin_request("tools/call", &params)
    }

    /// Returns these arguments with its credentials.
    pub fn arguments(&self, more: &Value) -> Value {
        let mut all = self.identity.clone();
        merge(&mut all, more);
        all
    }

    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let id = self.begin(tool, arguments);
        self.client.answer(id)
    }

    /// Makes a call that must succeed.
    #[track_caller]
    pub fn done(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).success()
    }
}

fn merge(into: &mut Value, more: &Value) {
    for (name, value) in more.as_object().unwrap() {
        into[name] = value.clone();
    }
}
