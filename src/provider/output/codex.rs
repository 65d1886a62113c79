//! Lines of `codex exec --json`. Usage is told at the end of a turn, as the total of the thread; troubles only in words.

use serde_json::Value;

use super::{MAX_TEXT, called, got, number, one_line, one_turn, said, trouble};
use crate::domain::activity::Mark;
use crate::domain::{OutputFact, Usage};

/// The lines don't say of which thread they are. A process has one.
const SESSION: Mark = Mark::UNNAMED;

pub(super) fn read(kind: &str, line: &Value) -> Option<Vec<OutputFact>> {
    Some(match kind {
        "thread.started" | "turn.started" | "item.updated" => Vec::new(),
        "item.started" => started(&line["item"]).into_iter().collect(),
        "item.completed" => completed(&line["item"]),
        "turn.completed" => vec![OutputFact::Total { session: SESSION, usage: tokens(&line["usage"]) }],
        "turn.failed" => failed(line["error"]["message"].as_str()?),
        "error" => failed(line["message"].as_str()?),
        _ => return None,
    })
}

fn started(item: &Value) -> Option<OutputFact> {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    match text("type") {
        "command_execution" => Some(called("shell", item)),
        "mcp_tool_call" => Some(called(&format!("mcp__{}__{}", text("server"), text("tool")), &item["arguments"])),
        "web_search" => Some(called("web search", item)),
        "file_change" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            let paths: Vec<&str> = changes.filter_map(|change| change["path"].as_str()).take(8).collect();
            Some(OutputFact::Did(one_line(&format!("edit: {}", paths.join(", ")), MAX_TEXT)))
        }
        _ => None,
    }
}

fn completed(item: &Value) -> Vec<OutputFact> {
    let mut facts = Vec::new();
    match item["type"].as_str() {
        // A warning: what ends a turn comes as `error`.
        Some("error") => return got(&item["message"]).into_iter().collect(),
        Some("agent_message") => facts.extend(said(item["text"].as_str().unwrap_or_default())),
        Some("command_execution") => facts.extend(got(&item["aggregated_output"])),
        Some("mcp_tool_call") => {
            facts.extend(got(&item["result"]["content"]).or_else(|| got(&item["error"]["message"])));
        }
        Some("file_change" | "web_search") => {}
        _ => return facts,
    }
    facts.push(OutputFact::Recovered);
    if let Some(id) = item["id"].as_str() {
        facts.push(OutputFact::Step { session: SESSION, step: Mark::of(id), usage: one_turn() });
    }
    facts
}

fn failed(message: &str) -> Vec<OutputFact> {
    said(message).into_iter().chain(trouble::of_text(message).map(trouble::failed)).collect()
}

fn tokens(usage: &Value) -> Usage {
    let cache_read_tokens = number(&usage["cached_input_tokens"]);
    let cache_write_tokens = number(&usage["cache_write_input_tokens"]);
    Usage {
        input_tokens: number(&usage["input_tokens"])
            .saturating_sub(cache_read_tokens.saturating_add(cache_write_tokens)),
        output_tokens: number(&usage["output_tokens"]),
        cache_read_tokens,
        cache_write_tokens,
        ..Usage::default()
    }
}
