//! OpenAI's Responses, which codex uses.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::super::script::{Conversation, Step};
use super::{Shared, items, stream, text_of};

pub async fn answer(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    let read = |request: &Value| {
        let input = || items(&request["input"]);
        let results = input().filter(|item| item["type"] == "function_call_output");
        let coordinator =
            items(&request["tools"]).filter(|tool| tool["name"] == "mcp__coordinator");
        let tools = coordinator
            .flat_map(|space| items(&space["tools"]))
            .filter_map(|tool| tool["name"].as_str());
        Conversation {
            text: input().map(|item| text_of(&item["content"])).collect(),
            results: results.map(|result| text_of(&result["output"])).collect(),
            tools: tools.map(str::to_owned).collect(),
        }
    };
    let (step, n) = shared.next(request, read).await;
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
            run(format!(
                "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {path}\n+{content}*** End Patch\nEOF"
            ))
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
