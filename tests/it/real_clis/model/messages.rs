//! Anthropic's Messages, which claude uses.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::super::script::{Conversation, Step};
use super::{Shared, items, stream, text_of};

pub async fn answer(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    let read = |request: &Value| {
        let messages = || items(&request["messages"]);
        let blocks = messages().flat_map(|message| items(&message["content"]));
        let results = blocks.filter(|block| block["type"] == "tool_result");
        let tools = items(&request["tools"])
            .filter_map(|tool| tool["name"].as_str()?.strip_prefix("mcp__coordinator__"));
        Conversation {
            text: messages().map(|message| text_of(&message["content"])).collect(),
            results: results.map(|result| text_of(&result["content"])).collect(),
            tools: tools.map(str::to_owned).collect(),
        }
    };
    let (step, n) = shared.next(request, read).await;
    let call = |name: String, input: Value| {
        let block =
            json!({ "type": "tool_use", "id": format!("toolu_{n}"), "name": name, "input": {} });
        (
            block,
            json!({ "type": "input_json_delta", "partial_json": input.to_string() }),
            "tool_use",
        )
    };
    let (block, delta, reason) = match step {
        Step::Coordinator(tool, arguments) => call(format!("mcp__coordinator__{tool}"), arguments),
        Step::Write(path, content) => {
            call("Write".to_owned(), json!({ "file_path": path, "content": content }))
        }
        Step::Run(command) => {
            call("Bash".to_owned(), json!({ "command": command, "description": "run it" }))
        }
        Step::Say(text) => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": text }),
            "end_turn",
        ),
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
