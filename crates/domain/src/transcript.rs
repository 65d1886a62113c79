//! The transcript of a launch: the output of an agent CLI as entries that a person reads.
//!
//! [`entries`] takes lines of output, of which each shows its family. A line that is not understood
//! is plain text. A call of a tool and its result are lines of their own; the result becomes a part
//! of the call if both are among the lines.

mod edited;
mod families;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

pub use edited::EditedLines;

use super::printable;
use super::{Timestamp, Usage};

/// The longest text of the agent, in bytes. Longer ones are cut, as the texts below.
const MAX_TEXT: usize = 64 * 1024;
/// The longest input of a call, in bytes.
const MAX_INPUT: usize = 8 * 1024;
/// The longest result of a call, in bytes.
const MAX_RESULT: usize = 16 * 1024;
/// The longest text of successive lines that are not understood, in bytes.
const MAX_PLAIN: usize = 16 * 1024;
/// The longest line beside the name of a tool, in characters.
const MAX_TELLING: usize = 200;
/// The longest line about a call without a result, in characters.
const MAX_OPEN_CALL: usize = 160;

/// A part of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The time, if the line has one.
    pub at: Option<Timestamp>,
    /// The content.
    pub body: Body,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The agent said something, as Markdown.
    Text(String),
    /// The agent called a tool.
    Call(Call),
    /// A call whose line is not among the lines had this result.
    Result {
        /// The id of the call.
        call: String,
        /// The result.
        result: CallResult,
    },
    /// The CLI told something about itself.
    Note(String),
    /// Something failed outside a tool.
    Error(String),
    /// The CLI counted what it used.
    Total(Usage),
    /// Lines that are not understood.
    Plain(String),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id that the CLI gave the call; empty if it gave none.
    pub id: String,
    /// The name of the tool; `server.tool` for one of an MCP server.
    pub tool: String,
    /// The argument that describes the call best, as one line.
    pub telling: String,
    /// All arguments, as JSON of several lines; empty if there are none.
    pub input: String,
    /// The lines that the call changes in a file; `None` if its arguments do not have them.
    pub edited: Option<EditedLines>,
    /// The result; `None` as long as the call lasts.
    pub result: Option<CallResult>,
    /// The time from the call to its result, if the lines have times.
    pub took: Option<Duration>,
}

impl Call {
    /// Returns whether the call is over and failed.
    pub fn has_failed(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.is_error)
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The text.
    pub text: String,
    /// True if the call failed.
    pub is_error: bool,
}

/// A thing that one line says.
enum Piece {
    Is(Body),
    /// The text goes on where the text before it ended.
    More(String),
    Got {
        call: String,
        result: CallResult,
    },
}

/// Returns the entries of these lines, in their order.
pub fn entries<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut begun = BTreeMap::new();
    for line in lines {
        let Some((at, pieces)) = families::read(line) else {
            add_plain(&mut entries, line);
            continue;
        };
        for piece in pieces {
            add(&mut entries, &mut begun, at, piece);
        }
    }
    entries
}

/// Returns the last call without a result among these lines, as one line of at most 160 characters.
/// A CLI that is ended may print an error as the result of the call that it interrupts. So a failed
/// call counts, too, if nothing came after it.
pub fn last_open_call<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut is_last = true;
    entries(lines).iter().rev().find_map(|entry| {
        let Body::Call(call) = &entry.body else {
            is_last &= matches!(entry.body, Body::Note(_) | Body::Total(_) | Body::Plain(_));
            return None;
        };
        let is_open = call.result.is_none() || (is_last && call.has_failed());
        is_last = false;
        // A call without an id is never given its result.
        (is_open && !call.id.is_empty())
            .then(|| printable::one_line(&format!("{} {}", call.tool, call.telling), MAX_OPEN_CALL))
    })
}

/// Adds a piece. `begun` has the places of the calls without a result, by id.
fn add(
    entries: &mut Vec<Entry>,
    begun: &mut BTreeMap<String, usize>,
    at: Option<Timestamp>,
    piece: Piece,
) {
    let body = match piece {
        // The line of the end of a call may have the whole call again.
        Piece::Is(Body::Call(Call { id, result: Some(result), .. })) if begun.contains_key(&id) => {
            return end_call(entries, begun, &id, at, result);
        }
        Piece::Is(body) => body,
        Piece::More(more) => {
            if let Some(Entry { body: Body::Text(text), .. }) = entries.last_mut()
                && text.len() + more.len() <= MAX_TEXT
            {
                text.push_str(&more);
                return;
            }
            Body::Text(more)
        }
        Piece::Got { call, result } if begun.contains_key(&call) => {
            return end_call(entries, begun, &call, at, result);
        }
        Piece::Got { call, result } => Body::Result { call, result },
    };
    if let Body::Call(Call { id, result: None, .. }) = &body
        && !id.is_empty()
    {
        begun.insert(id.clone(), entries.len());
    }
    entries.push(Entry { at, body });
}

/// Gives the call with this id its result, which came `at` a time.
fn end_call(
    entries: &mut [Entry],
    begun: &mut BTreeMap<String, usize>,
    id: &str,
    at: Option<Timestamp>,
    result: CallResult,
) {
    let place = begun.remove(id);
    let entry = place.and_then(|place| entries.get_mut(place));
    if let Some(Entry { at: began_at, body: Body::Call(call) }) = entry {
        call.result = Some(result);
        call.took = at.zip(*began_at).map(|(at, began_at)| at.since(began_at));
    }
}

fn add_plain(entries: &mut Vec<Entry>, line: &str) {
    let line = cut(&without_escapes(line), MAX_PLAIN);
    if let Some(Entry { body: Body::Plain(text), .. }) = entries.last_mut()
        && text.len() + line.len() < MAX_PLAIN
    {
        text.push('\n');
        text.push_str(&line);
    } else if !line.trim().is_empty() {
        entries.push(Entry { at: None, body: Body::Plain(line) });
    }
}

/// Returns a line without the sequences that give a terminal colours and move its cursor.
fn without_escapes(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        rest = match escape.strip_prefix('[') {
            Some(sequence) => sequence
                .split_once(|c: char| ('@'..='~').contains(&c))
                .map_or("", |(_, after)| after),
            None => match escape.strip_prefix(']') {
                Some(title) => title.split_once('\u{7}').map_or("", |(_, after)| after),
                None => escape,
            },
        };
    }
    text.push_str(rest);
    text
}

/// Returns a text of other programs without unprintable characters and of at most `most` bytes. A
/// text that was cut ends in an ellipsis.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return printable::lines(text).into_owned();
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    printable::lines(&text[..end]).into_owned() + "…"
}

/// Returns a text of the agent, unless it is empty.
fn said(text: &str) -> Option<Piece> {
    (!text.trim().is_empty()).then(|| Piece::Is(Body::Text(cut(text, MAX_TEXT))))
}

fn note(text: &str) -> Option<Piece> {
    (!text.trim().is_empty()).then(|| Piece::Is(Body::Note(cut(text, MAX_TEXT))))
}

fn failed(text: &str) -> Option<Piece> {
    (!text.trim().is_empty()).then(|| Piece::Is(Body::Error(cut(text, MAX_TEXT))))
}

fn called(id: &str, tool: &str, input: &Value) -> Call {
    let is_empty = match input {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let json = if is_empty { String::new() } else { format!("{input:#}") };
    Call {
        id: id.to_owned(),
        tool: printable::one_line(&tool_name(tool), MAX_TELLING),
        telling: printable::one_line(telling(input).unwrap_or_default(), MAX_TELLING),
        input: cut(&json, MAX_INPUT),
        edited: EditedLines::of(input),
        result: None,
        took: None,
    }
}

fn result(content: &Value, is_error: bool) -> CallResult {
    CallResult { text: cut(text_of(content).trim_end(), MAX_RESULT), is_error }
}

/// Returns a text, or the texts of a list of blocks, each on lines of its own.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The arguments that describe a call best, the best first.
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

/// Returns the argument that describes a call best.
pub fn telling(arguments: &Value) -> Option<&str> {
    let mut telling = TELLING.into_iter().filter_map(|name| arguments[name].as_str());
    telling.next().filter(|text| !text.is_empty())
}

/// Returns the name of a tool for people. `mcp__server__tool` becomes `server.tool`.
pub fn tool_name(tool: &str) -> String {
    tool.strip_prefix("mcp__").map_or_else(|| tool.to_owned(), |tool| tool.replacen("__", ".", 1))
}

#[cfg(test)]
mod tests;
