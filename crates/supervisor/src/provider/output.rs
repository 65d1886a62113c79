//! Facts from the output of agent CLIs, line by line: the actions of the agent, its usage, and its
//! problems.
//!
//! There is one file for each family of lines. The lines themselves show their family, not the
//! configuration. So the agent of an earlier daemon is understood as well, and an agent of a custom
//! entry. Lines that are not understood have no facts and are never an error, because CLIs change
//! weekly. Of plain text, which any program prints, the line itself is the fact. All texts come
//! from other programs; they become one printable line.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod lines;
mod opencode;
mod reset;
mod trouble;

use jiff::Zoned;
use serde_json::Value;

pub use lines::Lines;

use domain::cli_lines::Family;
use domain::cli_lines::kept::is_conversation;
use domain::printable::one_line;
use domain::transcript::{telling, tool_name};
use domain::{OutputFact, Usage};

/// Longer lines of output are skipped. Shims cut lines before that.
pub const MAX_LINE: usize = 128 * 1024;
/// The longest text of a fact, in characters.
const MAX_TEXT: usize = 1000;
/// The longest text of a result or of a plain line, whose beginning says enough.
const MAX_RESULT: usize = 200;

/// The time at which a line was printed, in the time zone of the agent, for lines that name a time
/// of the day. `None` if it is not known.
pub type PrintedAt<'a> = Option<&'a Zoned>;

/// Returns the facts in one line of output.
pub fn read_line(line: &str, at: PrintedAt<'_>) -> Vec<OutputFact> {
    recognise(line, at).unwrap_or_else(|| printed(line).into_iter().collect())
}

/// Returns a line of plain text as it is. Lines without a letter or a digit, JSON and bytes that
/// are not text tell people nothing.
fn printed(line: &str) -> Option<OutputFact> {
    let is_text = line.len() <= MAX_LINE
        && !line.trim_ascii_start().starts_with('{')
        && line.contains(char::is_alphanumeric)
        && !line.contains(char::REPLACEMENT_CHARACTER);
    is_text.then(|| OutputFact::Printed(one_line(line, MAX_RESULT)))
}

/// Returns the facts like [`read_line`]; `None` for a line of no family, which is plain text.
pub fn recognise(line: &str, at: PrintedAt<'_>) -> Option<Vec<OutputFact>> {
    let line = line.trim_ascii();
    if line.len() > MAX_LINE {
        return None;
    }
    if !line.starts_with('{') {
        let text = gemini::read_text(line).or_else(|| opencode::read_log(line));
        return text.or_else(|| copilot::read_text(line)).or_else(|| claude::read_text(line, at));
    }
    let line: Value = serde_json::from_str(line).ok()?;
    let kind = line["type"].as_str()?;
    match Family::of(kind, &line) {
        Family::Claude => Some(claude::read(kind, &line, at)),
        Family::Copilot => copilot::read(kind, &line),
        Family::Gemini => Some(gemini::read(kind, &line)),
        Family::Opencode => opencode::read(kind, &line),
        Family::Codex => codex::read(kind, &line, at),
    }
}

fn one_turn() -> Usage {
    Usage { turns: 1, ..Usage::default() }
}

/// Returns the name of the conversation, if it can be one.
fn conversation(id: &Value) -> Option<OutputFact> {
    let id = id.as_str().filter(|id| is_conversation(id))?;
    Some(OutputFact::Conversation(id.to_owned()))
}

/// Returns the text that the agent said, unless it is empty.
fn said(text: &str) -> Option<OutputFact> {
    let text = one_line(text, MAX_TEXT);
    (!text.is_empty()).then_some(OutputFact::Did(text))
}

/// Returns the result of a call.
fn got(content: &Value) -> Option<OutputFact> {
    let text = one_line(&text_of(content), MAX_RESULT);
    (!text.is_empty()).then_some(OutputFact::Got(text))
}

/// Returns a text, or the texts of a list of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// Returns the call of a tool in a form for people: `Bash: cargo test`.
fn called(tool: &str, arguments: &Value) -> OutputFact {
    let tool = tool_name(tool);
    let telling = telling(arguments);
    let call = telling.map_or_else(|| tool.clone(), |telling| format!("{tool}: {telling}"));
    OutputFact::Did(one_line(&call, MAX_TEXT))
}

#[cfg(test)]
mod tests;
