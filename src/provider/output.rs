//! What agent CLIs print for programs, line by line, as facts: what the agent does, what it took, what is wrong with it.
//!
//! One file for each family of lines. The families are told apart by the lines themselves, not by the configuration: so an
//! agent that an earlier daemon started is understood as well, and one that is started by an entry of one's own. What isn't
//! understood is nothing, never an error: CLIs change weekly. All texts are other people's; they become one printable line.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod lines;
mod opencode;
mod trouble;

use jiff::Zoned;
use serde_json::Value;

pub use lines::Lines;

use crate::domain::printable::one_line;
use crate::domain::{OutputFact, Timestamp, Usage};

/// Longer lines are skipped. Keepers cut lines before that.
pub const MAX_LINE: usize = 128 * 1024;
/// Longest text of a fact, in characters.
const MAX_TEXT: usize = 1000;
/// The same for what came of a call, of which the beginning tells enough.
const MAX_RESULT: usize = 200;

/// Tells the time and the time zone of the agent, for lines that name a time of the day. `None` for old lines: what they name is not of
/// this day.
pub type Now = Option<fn() -> Zoned>;

/// The facts in one line of output; none in a line of no family.
pub fn read_line(line: &str, now: Now) -> Vec<OutputFact> {
    recognise(line, now).unwrap_or_default()
}

/// As [`read_line`]; `None` for a line of no family, which is to be taken as it is.
pub fn recognise(line: &str, now: Now) -> Option<Vec<OutputFact>> {
    let line = line.trim_ascii();
    if line.len() > MAX_LINE {
        return None;
    }
    if !line.starts_with('{') {
        return gemini::read_text(line).or_else(|| opencode::read_log(line));
    }
    let line: Value = serde_json::from_str(line).ok()?;
    let kind = line["type"].as_str()?;
    let has = |name: &str| line.get(name).is_some();
    match kind {
        _ if has("sessionID") => opencode::read(kind, &line),
        _ if has("data") => copilot::read(kind, &line),
        "result" if has("sessionId") => copilot::read(kind, &line),
        "system" | "assistant" | "user" | "result" | "rate_limit_event" | "stream_event"
            if has("session_id") =>
        {
            Some(claude::read(kind, &line))
        }
        "init" | "message" | "tool_use" | "tool_result" | "result" | "error"
            if has("timestamp") =>
        {
            Some(gemini::read(kind, &line))
        }
        _ => codex::read(kind, &line, now),
    }
}

/// A number that may be absent, or be written as a fraction.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_f64().map(whole)).unwrap_or(0)
}

/// Millionths of what is written as US dollars.
fn micros(dollars: &Value) -> u64 {
    dollars.as_f64().map_or(0, |dollars| whole((dollars * 1e6).round()))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what has no place becomes the nearest that has"
)]
const fn whole(number: f64) -> u64 {
    number as u64
}

fn time(value: &Value) -> Option<Timestamp> {
    serde_json::from_value(value.clone()).ok()
}

const fn one_turn() -> Usage {
    Usage {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cost_usd_micros: 0,
        turns: 1,
    }
}

/// What the agent said; nothing if that is nothing.
fn said(text: &str) -> Option<OutputFact> {
    let text = one_line(text, MAX_TEXT);
    (!text.is_empty()).then_some(OutputFact::Did(text))
}

/// What came of a call.
fn got(content: &Value) -> Option<OutputFact> {
    let text = one_line(&text_of(content), MAX_RESULT);
    (!text.is_empty()).then_some(OutputFact::Got(text))
}

/// A text, or the texts of a list of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The arguments that tell most of a call, the most telling first.
const TELLING: [&str; 15] = [
    "command",
    "cmd",
    "file_path",
    "path",
    "absolute_path",
    "filePath",
    "pattern",
    "query",
    "url",
    "title",
    "summary",
    "task_id",
    "status",
    "description",
    "prompt",
];

/// The call of a tool, as a person would note it: `Bash: cargo test`.
fn called(tool: &str, arguments: &Value) -> OutputFact {
    let tool = tool
        .strip_prefix("mcp__")
        .map_or_else(|| tool.to_owned(), |tool| tool.replacen("__", ".", 1));
    let telling = TELLING
        .into_iter()
        .find_map(|name| arguments[name].as_str())
        .filter(|text| !text.is_empty());
    let call = telling.map_or_else(|| tool.clone(), |telling| format!("{tool}: {telling}"));
    OutputFact::Did(one_line(&call, MAX_TEXT))
}

#[cfg(test)]
mod tests;
