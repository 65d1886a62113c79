//! Lines of `codex exec --json`. Usage comes at the end of a turn, as the total of the thread.
//! Problems come only in words.

use std::time::Duration;

use jiff::fmt::strtime;
use jiff::{Span, Zoned};
use serde_json::Value;

use super::{MAX_TEXT, Now, called, got, one_line, one_turn, said, trouble};
use crate::domain::activity::Mark;
use crate::domain::cli_lines::codex_total;
use crate::domain::{Failure, FailureClass, OutputFact, Timestamp};

/// The lines do not name their thread. A process has one.
const SESSION: Mark = Mark::UNNAMED;

pub(super) fn read(kind: &str, line: &Value, now: Now) -> Option<Vec<OutputFact>> {
    Some(match kind {
        "thread.started" | "turn.started" | "item.updated" => Vec::new(),
        "item.started" => started(&line["item"]).into_iter().collect(),
        "item.completed" => completed(&line["item"]),
        "turn.completed" => {
            vec![OutputFact::Total { session: SESSION, usage: codex_total(&line["usage"]) }]
        }
        "turn.failed" => failed(line["error"]["message"].as_str()?, now),
        "error" => failed(line["message"].as_str()?, now),
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

fn failed(message: &str, now: Now) -> Vec<OutputFact> {
    let failure = trouble::of_text(message).map(|class| {
        let is_quota = class == FailureClass::Quota;
        let resets_at = now.filter(|_| is_quota).and_then(|now| named_end(message, &now()));
        OutputFact::Failed(Failure { class, resets_at })
    });
    said(message).into_iter().chain(failure).collect()
}

/// Returns the time at which a quota begins anew, if the message has one of these forms:
/// - "try again at 3:34 PM." of the same day, in the agent's time zone
/// - "try again at Nov 26th, 2026 2:04 PM."
/// - "try again in 5 days 22 hours 11 minutes.", as older releases say, or "in 11.05s."
fn named_end(message: &str, now: &Zoned) -> Option<Timestamp> {
    let (_, named) = message.split_once("ry again ")?;
    let at = if let Some(at) = named.strip_prefix("at ") {
        named_moment(at, now)?
    } else {
        let pause = named_pause(named.strip_prefix("in ")?)?;
        now.checked_add(pause).ok()?
    };
    // Codex leaves the seconds out.
    Some(Timestamp::from_millis(at.timestamp().as_millisecond()) + Duration::from_mins(1))
}

fn named_moment(named: &str, now: &Zoned) -> Option<Zoned> {
    let named = named.split_once('.').map_or(named, |(named, _)| named).trim();
    let at = if let Some((day, rest)) = named.split_once(", ") {
        let day = day.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        strtime::parse("%b %d, %Y %I:%M %p", format!("{day}, {rest}")).ok()?.to_datetime().ok()?
    } else {
        now.date().to_datetime(strtime::parse("%I:%M %p", named).ok()?.to_time().ok()?)
    };
    at.to_zoned(now.time_zone().clone()).ok()
}

/// Returns the numbers with their units, up to the end of the sentence.
fn named_pause(named: &str) -> Option<Span> {
    let named = named.split_once(". ").map_or(named, |(named, _)| named);
    let named = named.trim_end().trim_end_matches('.');
    if named == "less than a minute" {
        return Some(Span::new());
    }
    let pause: Span = named.parse().ok()?;
    (!pause.is_negative()).then_some(pause)
}
