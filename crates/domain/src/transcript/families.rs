//! The lines of each family of agent CLIs. A line of a known family that tells a reader nothing has
//! no pieces; a line of no family is `None`.

use serde_json::Value;

use super::{Body, Call, Piece, called, failed, note, result, said, text_of};
use crate::Timestamp;
use crate::activity::Totals;
use crate::cli_lines::{self, Family};

/// Returns the time of a line and the things that it says.
pub(super) fn read(line: &str) -> Option<(Option<Timestamp>, Vec<Piece>)> {
    let line = line.trim_ascii();
    if !line.starts_with('{') {
        return None;
    }
    let line: Value = serde_json::from_str(line).ok()?;
    let kind = line["type"].as_str()?;
    let pieces = match Family::of(kind, &line) {
        Family::Claude => Some(claude(kind, &line)),
        Family::Copilot => copilot(kind, &line),
        Family::Gemini => Some(gemini(kind, &line)),
        Family::Opencode => opencode(kind, &line),
        Family::Codex => codex(kind, &line),
    };
    Some((time(&line["timestamp"]), pieces?))
}

fn time(value: &Value) -> Option<Timestamp> {
    let millis = value.as_i64().map(Timestamp::from_millis);
    millis.or_else(|| serde_json::from_value(value.clone()).ok())
}

/// Reads a line of claude, or of qwen.
fn claude(kind: &str, line: &Value) -> Vec<Piece> {
    let blocks = || line["message"]["content"].as_array().into_iter().flatten();
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    match kind {
        "assistant" if line["message"]["content"].is_string() => {
            said(&text_of(&line["message"]["content"])).into_iter().collect()
        }
        "assistant" => {
            let is_error = line["is_api_error_message"] == true;
            let tell = if is_error { failed } else { said };
            let piece = |block: &Value| match block["type"].as_str() {
                Some("text") => tell(block["text"].as_str().unwrap_or_default()),
                Some("tool_use") => {
                    let name = block["name"].as_str().unwrap_or("tool");
                    let id = block["id"].as_str().unwrap_or_default();
                    Some(Piece::Is(Body::Call(called(id, name, &block["input"]))))
                }
                _ => None,
            };
            blocks().filter_map(piece).collect()
        }
        "user" => {
            let results = blocks().filter(|block| block["type"] == "tool_result");
            let piece = |block: &Value| Piece::Got {
                call: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
                result: result(&block["content"], block["is_error"] == true),
            };
            results.map(piece).collect()
        }
        "system" => match text("subtype") {
            "init" => note(text("model")).into_iter().collect(),
            "api_retry" => {
                let what = format!("attempt {} failed: {}", line["attempt"], text("error"));
                failed(&what).into_iter().collect()
            }
            "permission_denied" => failed(text("message")).into_iter().collect(),
            _ => Vec::new(),
        },
        "result" => {
            // The text of a result without an error was the last answer.
            let error = line["result"].as_str().or_else(|| line["error"]["message"].as_str());
            let error = error.filter(|_| line["is_error"] == true).and_then(failed);
            error.into_iter().chain(total(cli_lines::claude_totals(line))).collect()
        }
        _ => Vec::new(),
    }
}

/// Reads a line of codex; `None` for a line of another program.
fn codex(kind: &str, line: &Value) -> Option<Vec<Piece>> {
    let item = &line["item"];
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    Some(match kind {
        "thread.started" | "turn.started" | "item.updated" => Vec::new(),
        "item.started" => codex_call(item, false).into_iter().collect(),
        "item.completed" => match text("type") {
            "agent_message" => said(text("text")).into_iter().collect(),
            "error" => note(text("message")).into_iter().collect(),
            _ => codex_call(item, true).into_iter().collect(),
        },
        "turn.completed" => total(cli_lines::codex_total(&line["usage"])).into_iter().collect(),
        "turn.failed" => failed(line["error"]["message"].as_str()?).into_iter().collect(),
        "error" => failed(line["message"].as_str()?).into_iter().collect(),
        _ => return None,
    })
}

/// Returns the call of an item, with its result if it is over.
fn codex_call(item: &Value, is_over: bool) -> Option<Piece> {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let id = text("id");
    let of = |name: &str, input: &Value| called(id, name, input);
    let only = |name: &str| serde_json::json!({ name: item[name] });
    let (call, output) = match text("type") {
        "command_execution" => (of("shell", &only("command")), &item["aggregated_output"]),
        "mcp_tool_call" => {
            let name = format!("mcp__{}__{}", text("server"), text("tool"));
            let content = &item["result"]["content"];
            let output = if content.is_null() { &item["error"]["message"] } else { content };
            (of(&name, &item["arguments"]), output)
        }
        "web_search" => (of("web search", &only("query")), &Value::Null),
        "file_change" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            let paths: Vec<&str> = changes.filter_map(|change| change["path"].as_str()).collect();
            let input = serde_json::json!({ "path": paths.join(", ") });
            (Call { input: String::new(), ..of("edit", &input) }, &Value::Null)
        }
        _ => return None,
    };
    let is_bad = text("status") == "failed"
        || !item["error"].is_null()
        || item["exit_code"].as_i64().is_some_and(|code| code != 0);
    let result = is_over.then(|| result(output, is_bad));
    Some(Piece::Is(Body::Call(Call { result, ..call })))
}

/// Reads a line of gemini.
fn gemini(kind: &str, line: &Value) -> Vec<Piece> {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let piece = match kind {
        "init" => note(text("model")),
        "message" if text("role") == "assistant" && line["delta"] == true => {
            Some(Piece::More(super::cut(text("content"), super::MAX_TEXT)))
        }
        "message" if text("role") == "assistant" => said(text("content")),
        "tool_use" => {
            let call = called(text("tool_id"), text("tool_name"), &line["parameters"]);
            Some(Piece::Is(Body::Call(call)))
        }
        "tool_result" => {
            let is_error = text("status") == "error";
            let output =
                if line["output"].is_null() { &line["error"]["message"] } else { &line["output"] };
            let result = result(output, is_error);
            Some(Piece::Got { call: text("tool_id").to_owned(), result })
        }
        "error" => failed(text("message")),
        "result" => {
            let error = line["error"]["message"].as_str().and_then(failed);
            let total = total(cli_lines::gemini_total(&line["stats"]));
            return error.into_iter().chain(total).collect();
        }
        _ => None,
    };
    piece.into_iter().collect()
}

/// Reads a line of opencode; `None` for a line of another program. Each step has its own usage, so
/// there is no total.
fn opencode(kind: &str, line: &Value) -> Option<Vec<Piece>> {
    let part = &line["part"];
    let piece = match kind {
        "step_start" | "reasoning" | "step_finish" => None,
        "text" => said(part["text"].as_str().unwrap_or_default()),
        "tool_use" => {
            let state = &part["state"];
            let name = part["tool"].as_str().unwrap_or("tool");
            let call = called(part["callID"].as_str().unwrap_or_default(), name, &state["input"]);
            let is_error = state["status"] == "error";
            let output = if is_error { &state["error"] } else { &state["output"] };
            let result = Some(result(output, is_error));
            let of = |name: &str| time(&state["time"][name]);
            let took = of("end").zip(of("start")).map(|(end, start)| end.since(start));
            Some(Piece::Is(Body::Call(Call { result, took, ..call })))
        }
        "error" => {
            let name = line["error"]["name"].as_str().unwrap_or_default();
            failed(line["error"]["data"]["message"].as_str().unwrap_or(name))
        }
        _ => return None,
    };
    Some(piece.into_iter().collect())
}

/// Reads an event of copilot; `None` for an event of another program.
fn copilot(kind: &str, line: &Value) -> Option<Vec<Piece>> {
    let data = &line["data"];
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    let piece = match kind {
        "session.tools_updated" => note(text("model")),
        "assistant.message" => said(text("content")),
        "tool.execution_start" => {
            let call = called(text("toolCallId"), text("toolName"), &data["arguments"]);
            Some(Piece::Is(Body::Call(call)))
        }
        "tool.execution_complete" => {
            let content = &data["result"]["content"];
            let output = if content.is_null() { &data["error"]["message"] } else { content };
            let result = result(output, data["success"] == false);
            Some(Piece::Got { call: text("toolCallId").to_owned(), result })
        }
        "session.error" => failed(text("message")),
        "result" => None,
        _ if ["session.", "assistant.", "user.", "tool.", "model.", "system.", "hook."]
            .iter()
            .any(|of| kind.starts_with(of)) =>
        {
            None
        }
        _ => return None,
    };
    Some(piece.into_iter().collect())
}

/// Returns a total, unless nothing was used.
fn total(totals: Totals) -> Option<Piece> {
    let usage = totals.of_new_conversation();
    (usage.tokens() > 0).then_some(Piece::Is(Body::Total(usage)))
}
