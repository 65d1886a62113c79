//! Lines of `claude --output-format stream-json`, and of qwen, which prints the same form.
//!
//! Each block of an answer is a line of its own with the usage of the whole answer. So the usage is
//! counted once, by the answer's id. The `result` has the totals of this process, and those of the
//! whole conversation.

use serde_json::Value;

use super::reset::refused;
use super::{PrintedAt, called, conversation, got, one_line, said, text_of, trouble};
use domain::activity::Mark;
use domain::cli_lines::{claude_answer, claude_totals, number};
use domain::{Failure, FailureClass, OutputFact, Timestamp, Usage};

pub(super) fn read(kind: &str, line: &Value, at: PrintedAt<'_>) -> Vec<OutputFact> {
    let session = Mark::of(line["session_id"].as_str().unwrap_or_default());
    match kind {
        "system" => read_system(line),
        "assistant" => read_answer(session, line, at),
        "user" => blocks(&line["message"]["content"], "tool_result")
            .filter_map(|block| got(&block["content"]))
            .collect(),
        "result" => read_result(session, line, at),
        "rate_limit_event" => read_limit(&line["rate_limit_info"]).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn read_system(line: &Value) -> Vec<OutputFact> {
    match line["subtype"].as_str() {
        Some("init") => {
            let model = line["model"].as_str().unwrap_or_default();
            let servers = line["mcp_servers"].as_array().into_iter().flatten();
            // Without the tools of a requested server, the agent goes on, and ends without any
            // work.
            let broken = servers.filter(|server| {
                matches!(server["status"].as_str(), Some("failed" | "needs-auth"))
            });
            let broken = broken.filter_map(|server| server["name"].as_str());
            let told = broken.flat_map(|name| {
                let what = format!("MCP server {name} is not reached");
                [
                    trouble::failed(FailureClass::Config),
                    OutputFact::Did(one_line(&what, super::MAX_TEXT)),
                ]
            });
            let begun = said(&format!("started with {model}"));
            begun.into_iter().chain(conversation(&line["session_id"])).chain(told).collect()
        }
        Some("api_retry") => {
            let attempt = number(&line["attempt"]);
            let error = line["error"].as_str().unwrap_or("an error");
            let told = said(&format!("attempt {attempt} failed: {error}"));
            // After the first refusal, claude may renew a login that has expired. It retries for
            // three minutes in any case.
            let is_final = attempt >= 2 && class_of_word(error) == Some(FailureClass::Auth);
            let failed = class_of(line, "error_status").map(trouble::failed);
            told.into_iter()
                .chain(failed)
                .chain(is_final.then_some(OutputFact::LoginRefused))
                .collect()
        }
        Some("permission_denied") => {
            said(&format!("not allowed: {}", line["message"].as_str().unwrap_or_default()))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn read_answer(session: Mark, line: &Value, at: PrintedAt<'_>) -> Vec<OutputFact> {
    let message = &line["message"];
    let content = message["content"].as_array().into_iter().flatten();
    let mut facts: Vec<OutputFact> = content
        .filter_map(|block| match block["type"].as_str() {
            Some("text") => said(block["text"].as_str().unwrap_or_default()),
            Some("tool_use") => {
                Some(called(block["name"].as_str().unwrap_or("a tool"), &block["input"]))
            }
            _ => None,
        })
        .collect();
    // The CLI made this answer up, because there was none.
    if line["is_api_error_message"] == true || message["model"] == "<synthetic>" {
        let text = text_of(&message["content"]);
        let class = class_of(line, "api_error_status").or_else(|| class_of_text(&text));
        facts.extend(class.map(|class| refused(class, &text, at)));
        return facts;
    }
    // This is qwen's form.
    if let Some(error) = text_of(&message["content"]).strip_prefix("[API Error: ") {
        facts.extend(trouble::of_text(error).map(|class| refused(class, error, at)));
        return facts;
    }
    facts.push(OutputFact::Recovered);
    if let Some(id) = message["id"].as_str() {
        let usage = claude_answer(&message["usage"]);
        // qwen prints each block with an id of its own. Only the last one has the usage.
        let usage = Usage { turns: u64::from(usage.tokens() > 0), ..usage };
        facts.push(OutputFact::Step { session, step: Mark::of(id), usage });
    }
    facts
}

fn read_result(session: Mark, line: &Value, at: PrintedAt<'_>) -> Vec<OutputFact> {
    let mut facts = vec![OutputFact::Total { session, totals: claude_totals(line) }];
    // The CLI also says "success" when the service refused.
    if line["is_error"] == true {
        let text = line["result"].as_str().or_else(|| line["error"]["message"].as_str());
        let text = text.or_else(|| line["subtype"].as_str()).unwrap_or_default();
        facts.extend(said(text));
        let class = FailureClass::of_status(number(&line["api_error_status"]));
        let class = class.or_else(|| class_of_text(text));
        facts.extend(class.map(|class| refused(class, text, at)));
    }
    facts
}

/// Returns the trouble of a refusal. Warnings come in the same form, and are not trouble.
fn read_limit(limit: &Value) -> Option<OutputFact> {
    let resets_at = limit["resetsAt"]
        .as_i64()
        .map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000)));
    (limit["status"] == "rejected")
        .then_some(OutputFact::Failed(Failure { class: FailureClass::Quota, resets_at }))
}

/// Returns the class of the word for the error, which is more precise than the status, or else of
/// the status.
fn class_of(line: &Value, status: &str) -> Option<FailureClass> {
    class_of_word(line["error"].as_str()?)
        .or_else(|| FailureClass::of_status(number(&line[status])))
}

/// Returns the class of a text that the CLI made, if it comes from the service, or is about a limit
/// or a login.
fn class_of_text(text: &str) -> Option<FailureClass> {
    // These are texts of qwen before its first request.
    const NO_LOGIN: [&str; 3] = [
        "No auth type is selected",
        "Missing API key for ",
        "Qwen OAuth free tier was discontinued",
    ];
    if is_limit(text) {
        return Some(FailureClass::Quota);
    }
    if NO_LOGIN.iter().any(|start| text.starts_with(start)) {
        return Some(FailureClass::Auth);
    }
    trouble::of_text(text).filter(|_| text.contains("API Error"))
}

/// Returns whether a text says that a limit of the account was reached, in one of claude's forms:
/// "You've hit your limit", "… your weekly limit", "5-hour limit reached".
fn is_limit(text: &str) -> bool {
    let text = text.to_lowercase();
    let hit = text.split_once("hit your ").is_some_and(|(_, rest)| rest.contains("limit"));
    // A context has a limit, too, and never resets.
    let reached = text.contains("limit reached") && text.contains("resets ");
    hit || reached || text.contains("out of extra usage")
}

/// Returns the facts of a limit in plain text, which `claude -p` prints without a form of output.
pub(super) fn read_text(line: &str, at: PrintedAt<'_>) -> Option<Vec<OutputFact>> {
    let is_told = line.starts_with("You") && line.contains("resets ") && is_limit(line);
    let told = || said(line).into_iter().chain([refused(FailureClass::Quota, line, at)]);
    is_told.then(|| told().collect())
}

fn class_of_word(error: &str) -> Option<FailureClass> {
    match error {
        "authentication_failed"
        | "oauth_org_not_allowed"
        | "account_on_hold"
        | "verification_required"
        | "cloud_credential_error" => Some(FailureClass::Auth),
        "billing_error" | "rate_limit" => Some(FailureClass::Quota),
        "overloaded" | "server_error" => Some(FailureClass::Overload),
        "invalid_request" | "model_not_found" => Some(FailureClass::Config),
        _ => None,
    }
}

fn blocks<'a>(content: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    content.as_array().into_iter().flatten().filter(move |block| block["type"] == kind)
}
