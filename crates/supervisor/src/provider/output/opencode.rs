//! Lines of `opencode run --format json`. Each step reports its own usage.

use std::time::Duration;

use serde_json::Value;

use super::{called, got, said, trouble};
use domain::activity::Mark;
use domain::cli_lines::{micros, number};
use domain::{FailureClass, OutputFact, Timestamp, Usage};

pub(super) fn read(kind: &str, line: &Value) -> Option<Vec<OutputFact>> {
    let part = &line["part"];
    Some(match kind {
        "step_start" | "reasoning" => Vec::new(),
        "text" => said(part["text"].as_str().unwrap_or_default()).into_iter().collect(),
        "tool_use" => {
            let call = called(part["tool"].as_str().unwrap_or("a tool"), &part["state"]["input"]);
            let result = got(&part["state"]["output"]).or_else(|| got(&part["state"]["error"]));
            std::iter::once(call).chain(result).collect()
        }
        "step_finish" => {
            let session = Mark::of(line["sessionID"].as_str().unwrap_or_default());
            let step = Mark::of(part["id"].as_str().unwrap_or_default());
            vec![OutputFact::Recovered, OutputFact::Step { session, step, usage: usage(part) }]
        }
        "error" => read_error(line),
        _ => return None,
    })
}

/// Reads a line of its log (`OPENCODE_PRINT_LOGS`). Only the log reports a failed attempt that
/// opencode will repeat, and why it ends without an attempt.
pub(super) fn read_log(line: &str) -> Option<Vec<OutputFact>> {
    let is_error = line.starts_with("timestamp=") && line.contains(" level=ERROR ");
    let failed = line.split_once(" message=failed ").filter(|_| is_error);
    if let Some((_, error)) = failed.and_then(|(_, rest)| rest.split_once(r#" error=""#)) {
        let class = match error.split(':').next()? {
            "ProviderNoProvidersError" => FailureClass::Auth,
            "ProviderModelNotFoundError" if names_model_itself(error) => FailureClass::Auth,
            "ProviderModelNotFoundError" => FailureClass::Config,
            _ => return None,
        };
        return Some(
            said(error.split('"').next()?).into_iter().chain([trouble::failed(class)]).collect(),
        );
    }
    // Another model makes the title of the session. Its failures do not stop the agent.
    if !is_error || !line.contains(r#" message="stream error" "#) || line.contains(" small=true ") {
        return None;
    }
    let (_, error) = line.split_once(r#" error.error=""#)?;
    let error = error.trim_end_matches('"');
    Some(said(error).into_iter().chain(trouble::of_text(error).map(trouble::failed)).collect())
}

/// Returns whether opencode proposes the very model that it did not find: it knows the model, and
/// has no login for the provider.
fn names_model_itself(error: &str) -> bool {
    let model = error.split_once("not found: ").and_then(|(_, rest)| rest.split_once('/'));
    let parts = model.and_then(|(_, rest)| rest.split_once(". Did you mean: "));
    parts.is_some_and(|(model, proposed)| proposed.split([',', '?']).next() == Some(model))
}

fn usage(part: &Value) -> Usage {
    let tokens = &part["tokens"];
    Usage {
        input_tokens: number(&tokens["input"]),
        output_tokens: number(&tokens["output"]).saturating_add(number(&tokens["reasoning"])),
        cache_read_tokens: number(&tokens["cache"]["read"]),
        cache_write_tokens: number(&tokens["cache"]["write"]),
        cost_usd_micros: micros(&part["cost"]),
        turns: 1,
        ..Usage::default()
    }
}

fn read_error(line: &Value) -> Vec<OutputFact> {
    let error = &line["error"];
    let name = error["name"].as_str().unwrap_or_default();
    let message = error["data"]["message"].as_str().unwrap_or(name);
    let class = match name {
        "ProviderAuthError" => Some(FailureClass::Auth),
        "ProviderModelNotFoundError" => Some(FailureClass::Config),
        _ => FailureClass::of_status(number(&error["data"]["statusCode"]))
            .or_else(|| trouble::of_text(message)),
    };
    let wait = error["data"]["responseHeaders"]["retry-after"]
        .as_str()
        .and_then(|seconds| seconds.parse().ok());
    let at = line["timestamp"].as_i64().map(Timestamp::from_millis);
    let trouble = class.map(|class| trouble::failed_for(class, wait.map(Duration::from_secs), at));
    said(message).into_iter().chain(trouble).collect()
}
