//! OpenAI's chat completions. qwen, opencode and copilot use them, each with tools of its own.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::super::script::{Conversation, Step};
use super::{Shared, items, stream, text_of};

/// The tool calls of a CLI for the steps of the script.
struct Dialect {
    /// The prefix of the names of the coordinator's tools.
    prefix: &'static str,
    write: fn(&str, &str) -> (&'static str, Value),
    run: fn(&str) -> (&'static str, Value),
}

const DIALECTS: [Dialect; 3] = [
    // qwen
    Dialect {
        prefix: "mcp__coordinator__",
        write: |path, content| ("write_file", json!({ "file_path": path, "content": content })),
        run: |command| {
            (
                "run_shell_command",
                json!({ "command": command, "description": "run it", "is_background": false }),
            )
        },
    },
    // opencode
    Dialect {
        prefix: "coordinator_",
        write: |path, content| ("write", json!({ "filePath": path, "content": content })),
        run: |command| ("bash", json!({ "command": command, "description": "run it" })),
    },
    // copilot
    Dialect {
        prefix: "coordinator-",
        write: |path, content| ("create", json!({ "path": path, "file_text": content })),
        run: |command| ("bash", json!({ "command": command, "description": "run it" })),
    },
];

fn tools(request: &Value) -> impl Iterator<Item = &str> {
    items(&request["tools"]).filter_map(|tool| tool["function"]["name"].as_str())
}

/// Returns the dialect whose tools are offered, or any if none are.
fn dialect(request: &Value) -> &'static Dialect {
    let is_used = |dialect: &&Dialect| tools(request).any(|name| name.starts_with(dialect.prefix));
    DIALECTS.iter().find(is_used).unwrap_or(&DIALECTS[0])
}

pub async fn answer(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    let Dialect { prefix, write, run } = dialect(&request);
    let read = |request: &Value| {
        let messages = || items(&request["messages"]);
        let results = messages().filter(|message| message["role"] == "tool");
        let prefix = dialect(request).prefix;
        Conversation {
            text: messages().map(|message| text_of(&message["content"])).collect(),
            results: results.map(|result| text_of(&result["content"])).collect(),
            tools: tools(request)
                .filter_map(|name| name.strip_prefix(prefix))
                .map(str::to_owned)
                .collect(),
        }
    };
    let (step, n) = shared.next(request, read).await;
    let call = |name: &str, arguments: &Value| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let call = json!({ "index": 0, "id": format!("call_{n}"), "type": "function", "function": function });
        (json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
    };
    let (delta, reason) = match step {
        Step::Coordinator(tool, arguments) => call(&format!("{prefix}{tool}"), &arguments),
        Step::Write(path, content) => {
            let (name, arguments) = write(&path.to_string_lossy(), content);
            call(name, &arguments)
        }
        Step::Run(command) => {
            let (name, arguments) = run(&command);
            call(name, &arguments)
        }
        Step::Say(text) => (json!({ "role": "assistant", "content": text }), "stop"),
    };
    let chunk = |choices: Value| {
        json!({
            "id": format!("chatcmpl_{n}"), "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": choices,
        })
    };
    let mut last = chunk(json!([{ "index": 0, "delta": {}, "finish_reason": reason }]));
    last["usage"] = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    stream(&[chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }])), last])
}
