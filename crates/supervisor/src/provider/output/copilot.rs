//! Lines of `copilot --output-format json`: many events, of which few have facts. Only some
//! accounts report tokens. The `result` counts requests.

use serde_json::Value;

use super::{called, conversation, got, one_turn, said, trouble};
use domain::activity::Mark;
use domain::cli_lines::number;
use domain::{FailureClass, OutputFact, Usage};

/// The events do not name their session. A process has one.
const SESSION: Mark = Mark::UNNAMED;

/// Returns the facts of an event; `None` for events of another program.
pub(super) fn read(kind: &str, line: &Value) -> Option<Vec<OutputFact>> {
    let data = &line["data"];
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    Some(match kind {
        "session.tools_updated" => {
            said(&format!("started with {}", text("model"))).into_iter().collect()
        }
        "assistant.message" => {
            let step = OutputFact::Step {
                session: SESSION,
                step: Mark::of(text("messageId")),
                usage: one_turn(),
            };
            said(text("content")).into_iter().chain([OutputFact::Recovered, step]).collect()
        }
        "assistant.usage" => {
            let usage = Usage {
                input_tokens: number(&data["inputTokens"]),
                output_tokens: number(&data["outputTokens"]),
                cache_read_tokens: number(&data["cacheReadTokens"]),
                cache_write_tokens: number(&data["cacheWriteTokens"]),
                ..Usage::default()
            };
            let step = Mark::of(line["id"].as_str().unwrap_or_default());
            vec![OutputFact::Step { session: SESSION, step, usage }]
        }
        "tool.execution_start" => vec![called(text("toolName"), &data["arguments"])],
        "tool.execution_complete" => {
            let result = got(&data["result"]["content"]).or_else(|| got(&data["error"]["message"]));
            result.into_iter().collect()
        }
        "model.call_failure" => class_of(data).map(trouble::failed).into_iter().collect(),
        "session.error" => {
            said(text("message")).into_iter().chain(class_of(data).map(trouble::failed)).collect()
        }
        "result" => conversation(&line["sessionId"]).into_iter().collect(),
        _ if ["session.", "assistant.", "user.", "tool.", "model.", "system.", "hook."]
            .iter()
            .any(|of| kind.starts_with(of)) =>
        {
            Vec::new()
        }
        _ => return None,
    })
}

/// Returns the facts of the line that copilot prints without a login.
pub(super) fn read_text(line: &str) -> Option<Vec<OutputFact>> {
    let is_known = line == "Error: No authentication information found.";
    is_known.then(|| said(line).into_iter().chain([trouble::failed(FailureClass::Auth)]).collect())
}

fn class_of(data: &Value) -> Option<FailureClass> {
    let by_word = match data["errorType"].as_str() {
        Some("authentication" | "authorization") => Some(FailureClass::Auth),
        Some("rate_limit" | "quota") => Some(FailureClass::Quota),
        _ => None,
    };
    by_word.or_else(|| FailureClass::of_status(number(&data["statusCode"])))
}
