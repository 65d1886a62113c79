//! Lines of `codex exec --json`. Usage comes at the end of a turn, as the total of the thread.
//! Problems come only in words.

use serde_json::Value;

use super::reset::refused;
use super::{MAX_TEXT, PrintedAt, called, conversation, got, one_line, one_turn, said, trouble};
use domain::OutputFact;
use domain::activity::Mark;
use domain::cli_lines::codex_total;

/// The lines do not name their thread. A process has one.
const SESSION: Mark = Mark::UNNAMED;

pub(super) fn read(kind: &str, line: &Value, at: PrintedAt<'_>) -> Option<Vec<OutputFact>> {
    Some(match kind {
        "thread.started" => conversation(&line["thread_id"]).into_iter().collect(),
        "turn.started" | "item.updated" => Vec::new(),
        "item.started" => started(&line["item"]).into_iter().collect(),
        "item.completed" => completed(&line["item"]),
        "turn.completed" => {
            vec![OutputFact::Total { session: SESSION, totals: codex_total(&line["usage"]) }]
        }
        "turn.failed" => failed(line["error"]["message"].as_str()?, at),
        "error" => failed(line["message"].as_str()?, at),
        _ => return None,
    })
}

fn started(item: &Value) -> Option<OutputFact> {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    match text("type") {
        "command_execution" => Some(called("shell", item)),
        "mcp_tool_call" => {
            Some(called(&format!("mcp__{}__{}", text("server"), text("tool")), &item["arguments"]))
        }
        "web_search" => Some(called("web search", item)),
        "file_change" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            let paths: Vec<&str> =
                changes.filter_map(|change| change["path"].as_str()).take(8).collect();
            Some(OutputFact::Did(one_line(&format!("edit: {}", paths.join(", ")), MAX_TEXT)))
        }
        _ => None,
    }
}

fn completed(item: &Value) -> Vec<OutputFact> {
    let mut facts = Vec::new();
    match item["type"].as_str() {
        // This is a warning. An error that ends a turn comes as `error`.
        Some("error") => return got(&item["message"]).into_iter().collect(),
        Some("agent_message") => facts.extend(said(item["text"].as_str().unwrap_or_default())),
        Some("command_execution") => facts.extend(got(&item["aggregated_output"])),
        Some("mcp_tool_call") => {
            facts
                .extend(got(&item["result"]["content"]).or_else(|| got(&item["error"]["message"])));
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

fn failed(message: &str, at: PrintedAt<'_>) -> Vec<OutputFact> {
    let failure = trouble::of_text(message).map(|class| refused(class, message, at));
    said(message).into_iter().chain(failure).collect()
}
