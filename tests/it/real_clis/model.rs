//! A model that follows a script, behind the two streaming APIs that the CLIs speak: just enough of each for tool calls.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::script::{Conversation, Script, Step};

/// Answers on a loopback port until it is dropped.
pub struct Model {
    pub port: u16,
    /// The requests so far, each as its CLI sent it.
    pub seen: Arc<Mutex<Vec<Value>>>,
    /// Its tasks end with it.
    _runtime: Runtime,
}

struct Shared {
    script: Script,
    seen: Arc<Mutex<Vec<Value>>>,
    /// Called while a CLI waits for its answer.
    look: Box<dyn Fn() + Send + Sync>,
}

impl Model {
    pub fn start(script: Script, look: impl Fn() + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<Value>>>::default();
        let shared = Arc::new(Shared { script, seen: seen.clone(), look: Box::new(look) });
        let router = Router::new().route("/v1/messages", post(messages)).route("/v1/responses", post(responses));
        let router = router.layer(DefaultBodyLimit::disable()).with_state(shared);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { port, seen, _runtime: runtime }
    }
}

impl Shared {
    fn next(&self, request: Value, read: fn(&Value) -> Conversation) -> (Step, usize) {
        (self.look)();
        let conversation = read(&request);
        self.seen.lock().unwrap().push(request);
        (self.script.next(&conversation), conversation.results.len())
    }
}

fn stream(events: &[Value]) -> Response {
    let mut text = String::new();
    for event in events {
        write!(text, "event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).unwrap();
    }
    ([(CONTENT_TYPE, "text/event-stream")], text).into_response()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text, or the texts of a list of blocks.
fn text_of(content: &Value) -> String {
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => items(content).filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
    }
}

/// Anthropic's Messages.
async fn messages(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    let read = |request: &Value| {
        let messages = || items(&request["messages"]);
        let blocks = messages().flat_map(|message| items(&message["content"]));
        let results = blocks.filter(|block| block["type"] == "tool_result");
        let tools =
            items(&request["tools"]).filter_map(|tool| tool["name"].as_str()?.strip_prefix("mcp__coordinator__"));
        Conversation {
            text: messages().map(|message| text_of(&message["content"])).collect(),
            results: results.map(|result| text_of(&result["content"])).collect(),
            tools: tools.map(str::to_owned).collect(),
        }
    };
    let (step, n) = shared.next(request, read);
    let call = |name: String, input: Value| {
        let block = json!({ "type": "tool_use", "id": format!("toolu_{n}"), "name": name, "input": {} });
        (block, json!({ "type": "input_json_delta", "partial_json": input.to_string() }), "tool_use")
    };
    let (block, delta, reason) = match step {
        Step::Coordinator(tool, arguments) => call(format!("mcp__coordinator__{tool}"), arguments),
        Step::Write(path, content) => call("Write".to_owned(), json!({ "file_path": path, "content": content })),
        Step::Run(command) => call("Bash".to_owned(), json!({ "command": command, "description": "run it" })),
        Step::Say(text) => {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }), "end_turn")
        }
    };
    let message = json!({
        "id": format!("msg_{n}"), "type": "message", "role": "assistant", "model": "scripted", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    let end = json!({ "stop_reason": reason, "stop_sequence": null });
    stream(&[
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ])
}

/// OpenAI's Responses.
async fn responses(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    let read = |request: &Value| {
        let input = || items(&request["input"]);
        let results = input().filter(|item| item["type"] == "function_call_output");
        let coordinator = items(&request["tools"]).filter(|tool| tool["name"] == "mcp__coordinator");
        let tools = coordinator.flat_map(|space| items(&space["tools"])).filter_map(|tool| tool["name"].as_str());
        Conversation {
            text: input().map(|item| text_of(&item["content"])).collect(),
            results: results.map(|result| text_of(&result["output"])).collect(),
            tools: tools.map(str::to_owned).collect(),
        }
    };
    let (step, n) = shared.next(request, read);
    let call = |namespace: Option<&str>, name: &str, arguments: &Value| {
        let mut item = json!({
            "type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"),
            "name": name, "arguments": arguments.to_string(), "status": "completed",
        });
        if let Some(namespace) = namespace {
            item["namespace"] = namespace.into();
        }
        item
    };
    let run = |command: String| call(None, "exec_command", &json!({ "cmd": command }));
    let item = match step {
        Step::Coordinator(tool, arguments) => call(Some("mcp__coordinator"), tool, &arguments),
        Step::Write(path, content) => {
            let path = path.display();
            run(format!("apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {path}\n+{content}*** End Patch\nEOF"))
        }
        Step::Run(command) => run(command),
        Step::Say(text) => json!({
            "type": "message", "id": format!("msg_{n}"), "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        }),
    };
    let id = format!("resp_{n}");
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": null, "output_tokens": 1, "output_tokens_details": null,
        "total_tokens": 2,
    });
    stream(&[
        json!({ "type": "response.created", "response": { "id": id } }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": { "id": id, "usage": usage } }),
    ])
}
