//! Google's generateContent, which gemini uses.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::super::script::{Conversation, Step};
use super::{Shared, items, stream, text_of};

pub async fn answer(
    State(shared): State<Arc<Shared>>,
    Path(call): Path<String>,
    Json(request): Json<Value>,
) -> Response {
    if !call.ends_with(":streamGenerateContent") {
        // For side questions, such as the choice of a model, every answer will do.
        return Json(chunk(&json!({ "text": "{}" }))).into_response();
    }
    let read = |request: &Value| {
        let parts = || items(&request["contents"]).flat_map(|content| items(&content["parts"]));
        let results = parts().filter(|part| part["functionResponse"].is_object());
        let declared =
            items(&request["tools"]).flat_map(|tools| items(&tools["functionDeclarations"]));
        let tools =
            declared.filter_map(|tool| tool["name"].as_str()?.strip_prefix("mcp_coordinator_"));
        Conversation {
            text: items(&request["contents"]).map(|content| text_of(&content["parts"])).collect(),
            results: results.map(|part| part["functionResponse"]["response"].to_string()).collect(),
            tools: tools.map(str::to_owned).collect(),
        }
    };
    let (step, n) = shared.next(request, read).await;
    let call = |name: String, arguments: Value| json!({ "functionCall": { "id": format!("call_{n}"), "name": name, "args": arguments } });
    let part = match step {
        Step::Coordinator(tool, arguments) => call(format!("mcp_coordinator_{tool}"), arguments),
        Step::Write(path, content) => {
            call("write_file".to_owned(), json!({ "file_path": path, "content": content }))
        }
        Step::Run(command) => call(
            "run_shell_command".to_owned(),
            json!({ "command": command, "description": "run it" }),
        ),
        Step::Say(text) => json!({ "text": text }),
    };
    stream(&[chunk(&part)])
}

fn chunk(part: &Value) -> Value {
    json!({
        "candidates": [{ "index": 0, "finishReason": "STOP", "content": { "role": "model", "parts": [part] } }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
        "modelVersion": "scripted",
    })
}
