//! The transcripts that agent CLIs keep of their conversations: where one lies, and the facts in
//! it.
//!
//! A transcript has the usage of each answer of the model as soon as the answer is complete, also
//! that of a process which is killed. A later process that continues the conversation appends to
//! it. opencode keeps a database instead, which is not read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    claude_answer, claude_models, codex_usage, micros, number, time, without_cached_input,
};
use crate::activity::{Mark, Totals};
use crate::{FailureClass, OutputFact, Timestamp, Usage};

/// A CLI that keeps transcripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeper {
    Claude,
    Codex,
    Copilot,
    Gemini,
    Qwen,
}

/// A line of a transcript.
#[derive(Debug, Default)]
struct Line {
    /// The conversation of this line and of those after it, if the line names one.
    conversation: Option<String>,
    at: Option<Timestamp>,
    /// A step, a total of the whole conversation, or what became of a request.
    fact: Option<OutputFact>,
}

impl Keeper {
    /// Returns the names that lead from the folder of the CLI to the transcript of a conversation.
    /// A star stands for any text.
    pub fn names(self, conversation: &str) -> Vec<String> {
        let id = conversation;
        let path = match self {
            Self::Claude => format!("projects/*/{id}.jsonl"),
            Self::Codex => format!("sessions/*/*/*/rollout-*-{id}.jsonl"),
            Self::Copilot => format!("session-state/{id}/events.jsonl"),
            Self::Gemini => {
                format!("tmp/*/chats/session-*-{}.jsonl", id.get(..8).unwrap_or(id))
            }
            Self::Qwen => format!("projects/*/chats/{id}.jsonl"),
        };
        path.split('/').map(str::to_owned).collect()
    }

    /// Returns whether the transcript tells of waits that the output does not tell.
    pub const fn tells_waits(self) -> bool {
        matches!(self, Self::Qwen)
    }

    /// Returns texts. Each line with a fact has one of them, and so has each line with only the
    /// name of the conversation. Most lines have none, and are not parsed.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Claude => &[r#""usage""#, "cost-state"],
            Self::Codex => &["token_usage_record", "session_meta"],
            Self::Copilot => &["session.usage_record", "session.start"],
            Self::Gemini => &[r#""tokens""#, r#""sessionId""#],
            Self::Qwen => &["ui_telemetry"],
        }
    }

    fn read(self, line: &str) -> Line {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return Line::default();
        };
        let (conversation, fact) = match self {
            Self::Claude => (line["sessionId"].as_str(), claude(&line)),
            Self::Codex => codex(&line),
            Self::Copilot => copilot(&line),
            Self::Gemini => gemini(&line),
            Self::Qwen => (line["sessionId"].as_str(), qwen(&line)),
        };
        let at = time(&line["timestamp"]).or_else(|| time(&line["startTime"]));
        Line { conversation: conversation.map(str::to_owned), at, fact }
    }
}

/// Each block of an answer is a line with the usage of the whole answer.
fn claude(line: &Value) -> Option<OutputFact> {
    let message = &line["message"];
    match line["type"].as_str()? {
        // The CLI makes answers up if there was none.
        "assistant" if message["model"] != "<synthetic>" => {
            answer(message["id"].as_str()?, claude_answer(&message["usage"]))
        }
        "cost-state" => {
            let cost_usd_micros = micros(&line["totalCostUSD"]);
            let whole = Usage { cost_usd_micros, ..claude_models(&line["modelUsage"]) };
            let totals = Totals { whole, ..Totals::default() };
            Some(OutputFact::Total { session: Mark::UNNAMED, totals })
        }
        _ => None,
    }
}

fn codex(line: &Value) -> (Option<&str>, Option<OutputFact>) {
    let payload = &line["payload"];
    match line["type"].as_str() {
        Some("session_meta") => (payload["id"].as_str(), None),
        Some("token_usage_record") => {
            // Some servers give the same id more than once.
            let step = format!("{} {}", payload["response_id"], line["timestamp"]);
            (payload["thread_id"].as_str(), answer(&step, codex_usage(&payload["usage"])))
        }
        _ => (None, None),
    }
}

fn copilot(line: &Value) -> (Option<&str>, Option<OutputFact>) {
    let data = &line["data"];
    let usage = &data["usage"];
    match line["type"].as_str() {
        Some("session.start") => (data["sessionId"].as_str(), None),
        Some("session.usage_record") => {
            let usage = without_cached_input(Usage {
                input_tokens: number(&usage["inputTokens"]),
                output_tokens: number(&usage["outputTokens"]),
                cache_read_tokens: number(&usage["cacheReadTokens"]),
                cache_write_tokens: number(&usage["cacheWriteTokens"]),
                ..Usage::default()
            });
            (None, line["id"].as_str().and_then(|id| answer(id, usage)))
        }
        _ => (None, None),
    }
}

/// An answer is a line, and once more a line when the results of its calls are known. Only the
/// first line of a process names the conversation.
fn gemini(line: &Value) -> (Option<&str>, Option<OutputFact>) {
    let tokens = &line["tokens"];
    let usage = without_cached_input(Usage {
        input_tokens: number(&tokens["input"]),
        output_tokens: number(&tokens["output"]).saturating_add(number(&tokens["thoughts"])),
        cache_read_tokens: number(&tokens["cached"]),
        ..Usage::default()
    });
    let step = line["id"].as_str().filter(|_| line["type"] == "gemini" && tokens.is_object());
    (line["sessionId"].as_str(), step.and_then(|id| answer(id, usage)))
}

/// There are also events of hidden requests, such as the one that asks for memories to keep.
fn qwen(line: &Value) -> Option<OutputFact> {
    let event = &line["systemPayload"]["uiEvent"];
    if line["subtype"] != "ui_telemetry" {
        return None;
    }
    match event["event.name"].as_str()? {
        "qwen-code.api_response" => {}
        // It prints its other failures.
        "qwen-code.api_error" => {
            let class = FailureClass::of_status(number(&event["status_code"]))?;
            return (class == FailureClass::Quota).then(|| OutputFact::Failed(class.into()));
        }
        _ => return None,
    }
    let input_tokens = number(&event["input_token_count"]);
    let written = number(&event["total_token_count"]).saturating_sub(input_tokens);
    let usage = without_cached_input(Usage {
        input_tokens,
        output_tokens: number(&event["output_token_count"]).max(written),
        cache_read_tokens: number(&event["cached_content_token_count"]),
        ..Usage::default()
    });
    // Some servers give the same response id more than once.
    answer(line["uuid"].as_str()?, usage).or(Some(OutputFact::Recovered))
}

fn answer(id: &str, usage: Usage) -> Option<OutputFact> {
    let usage = Usage { turns: 1, ..usage };
    let is_used = usage.tokens() > 0;
    let step = Mark::of(id);
    is_used.then_some(OutputFact::Step { session: Mark::UNNAMED, step, usage })
}

/// Reads the lines of a transcript in their order, and returns the facts of one process.
#[derive(Debug)]
pub struct KeptReader {
    keeper: Keeper,
    conversation: String,
    /// The lines are of another conversation.
    is_other: bool,
    part: Part,
    /// There is a part before the process.
    has_before: bool,
    /// The usage of the conversation before the process, as the CLI tells it.
    before: Usage,
}

/// The part of the transcript that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The part before the process, until [`KeptReader::begin`] is called.
    Before,
    /// The part before the first line that is as new as the process.
    Since(Timestamp),
    OfProcess,
}

impl KeptReader {
    /// Reads a transcript. The caller tells by [`KeptReader::begin`] where the part of the process
    /// begins.
    pub fn new(keeper: Keeper, conversation: String) -> Self {
        let part = Part::Before;
        let before = Usage::default();
        Self { keeper, conversation, is_other: false, part, has_before: false, before }
    }

    /// Reads a transcript. The part of the process begins with the first line that is not older
    /// than `began_at`.
    pub fn since(keeper: Keeper, conversation: String, began_at: Timestamp) -> Self {
        Self { part: Part::Since(began_at), ..Self::new(keeper, conversation) }
    }

    /// Says that all further lines are of the process, and that there were others.
    pub fn begin(&mut self) {
        self.part = Part::OfProcess;
        self.has_before = true;
    }

    /// Returns whether the part before the process has anything that counts.
    pub const fn needs_part_before(&self) -> bool {
        matches!(self.keeper, Keeper::Claude)
    }

    /// Returns the usage of the conversation before the process, if it is known.
    pub fn used_before(&self) -> Option<Usage> {
        let is_known = !self.has_before || self.needs_part_before();
        (self.part == Part::OfProcess && is_known).then_some(self.before)
    }

    /// Returns the fact in a line, if it is one of the process. Lines of other conversations and
    /// lines that are not understood have none.
    pub fn hear(&mut self, line: &str) -> Option<OutputFact> {
        let is_dated = matches!(self.part, Part::Since(_));
        if !is_dated && !self.keeper.words().iter().any(|word| line.contains(word)) {
            return None;
        }
        let Line { conversation, at, fact } = self.keeper.read(line);
        if let Some(conversation) = conversation {
            self.is_other = conversation != self.conversation;
        }
        if self.is_other {
            return None;
        }
        if let (Part::Since(began_at), Some(at)) = (self.part, at)
            && at >= began_at
        {
            self.part = Part::OfProcess;
        }
        match (self.part, fact) {
            (Part::OfProcess, fact) => return fact,
            (_, Some(OutputFact::Total { totals, .. })) => {
                self.before = self.before.at_least(totals.whole);
            }
            _ => {}
        }
        self.has_before |= at.is_some();
        None
    }
}

/// Returns whether a text may be the id of a conversation. It becomes an argument and a part of the
/// name of a file.
pub fn is_conversation(id: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (8..=64).contains(&id.len()) && !id.starts_with('-') && id.chars().all(is_valid)
}

/// The conversation for which the arguments of a CLI ask.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asked {
    /// The id, if the arguments have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The arguments ask for a conversation that exists.
    #[serde(default)]
    pub is_resumed: bool,
}

impl Asked {
    /// Reads arguments in the forms of all CLIs.
    pub fn by(arguments: &[String]) -> Self {
        let mut asked = Self::default();
        let mut arguments = arguments.iter().map(String::as_str).peekable();
        while let Some(argument) = arguments.next() {
            let (option, value) = match argument.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (argument, arguments.peek().copied()),
            };
            let is_resumed = matches!(option, "--resume" | "-r" | "resume" | "--continue" | "fork");
            asked.is_resumed |= is_resumed;
            if (is_resumed || option == "--session-id")
                && let Some(value) = value.filter(|value| is_conversation(value))
            {
                asked.conversation = Some(value.to_owned());
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests;
