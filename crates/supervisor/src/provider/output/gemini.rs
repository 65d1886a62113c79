//! Lines of `gemini -o stream-json`. Usage comes only with the `result`. Retries are reported in
//! words, on standard error.

use std::time::Duration;

use serde_json::Value;

use super::{called, conversation, got, one_turn, said, trouble};
use domain::activity::Mark;
use domain::cli_lines::{gemini_total, time};
use domain::{FailureClass, OutputFact};

/// Only the first line names the session. A process has one.
const SESSION: Mark = Mark::UNNAMED;

pub(super) fn read(kind: &str, line: &Value) -> Vec<OutputFact> {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    match kind {
        "init" => {
            let begun = said(&format!("started with {}", text("model")));
            begun.into_iter().chain(conversation(&line["session_id"])).collect()
        }
        "message" if text("role") == "assistant" => {
            said(text("content")).into_iter().chain([OutputFact::Recovered]).collect()
        }
        "tool_use" => {
            let step = OutputFact::Step {
                session: SESSION,
                step: Mark::of(text("tool_id")),
                usage: one_turn(),
            };
            vec![called(text("tool_name"), &line["parameters"]), OutputFact::Recovered, step]
        }
        "tool_result" => got(&line["output"]).into_iter().collect(),
        "error" => said(text("message")).into_iter().collect(),
        "result" => read_result(line),
        _ => Vec::new(),
    }
}

/// Returns the facts of a line about a failed attempt, or about a login that is missing.
pub(super) fn read_text(line: &str) -> Option<Vec<OutputFact>> {
    if line.starts_with("Error authenticating: FatalAuthenticationError") {
        let told = said(line);
        return Some(told.into_iter().chain([trouble::failed(FailureClass::Auth)]).collect());
    }
    let rest = line.strip_prefix("Attempt ")?;
    let (_, status) = rest.split_once(" failed with status ")?;
    let status = status.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let told = said(&format!("attempt failed with status {status}"));
    Some(told.into_iter().chain(FailureClass::of_status(status).map(trouble::failed)).collect())
}

fn read_result(line: &Value) -> Vec<OutputFact> {
    let totals = gemini_total(&line["stats"]);
    let mut facts = vec![OutputFact::Total { session: SESSION, totals }];
    if line["status"] == "success" {
        // The last answer of the agent asked for no tool.
        facts.push(OutputFact::Step {
            session: SESSION,
            step: Mark::of("result"),
            usage: one_turn(),
        });
    } else {
        let message = line["error"]["message"].as_str().unwrap_or_default();
        facts.extend(said(message));
        let class = trouble::of_text(message);
        facts.extend(
            class.map(|class| {
                trouble::failed_for(class, wait_in(message), time(&line["timestamp"]))
            }),
        );
    }
    facts
}

/// Returns the pause in "Suggested retry after 3600s."
fn wait_in(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("retry after ")?;
    let (seconds, _) = rest.split_once('s')?;
    seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}
