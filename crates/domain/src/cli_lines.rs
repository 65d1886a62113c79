//! The lines of JSON that agent CLIs print: the family of a line, and the usage in it.
//!
//! `provider::output` reads facts from these lines, and [`super::transcript`] entries for people.

use serde_json::Value;

pub mod kept;

use super::activity::Totals;
use super::{Timestamp, Usage};

/// CLIs that print lines of the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// claude, and qwen.
    Claude,
    Copilot,
    Gemini,
    Opencode,
    /// codex, or a program that is not known. The kind of the line decides.
    Codex,
}

impl Family {
    /// Returns the family of a line of the kind `kind`, which is its `type`.
    pub fn of(kind: &str, line: &Value) -> Self {
        let has = |name: &str| line.get(name).is_some();
        match kind {
            _ if has("sessionID") => Self::Opencode,
            _ if has("data") => Self::Copilot,
            "result" if has("sessionId") => Self::Copilot,
            "system" | "assistant" | "user" | "result" | "rate_limit_event" | "stream_event"
                if has("session_id") =>
            {
                Self::Claude
            }
            "init" | "message" | "tool_use" | "tool_result" | "result" | "error"
                if has("timestamp") =>
            {
                Self::Gemini
            }
            _ => Self::Codex,
        }
    }
}

/// Returns the usage of an answer of claude or qwen.
pub fn claude_answer(usage: &Value) -> Usage {
    let cache_read_tokens = number(&usage["cache_read_input_tokens"]);
    // A CLI that reports a total (qwen) counts tokens from the cache as input, too.
    let cached = if usage["total_tokens"].is_null() { 0 } else { cache_read_tokens };
    Usage {
        input_tokens: number(&usage["input_tokens"]).saturating_sub(cached),
        output_tokens: number(&usage["output_tokens"]),
        cache_read_tokens,
        cache_write_tokens: number(&usage["cache_creation_input_tokens"]),
        ..Usage::default()
    }
}

/// Returns the totals in a `result` of claude or qwen.
///
/// claude tells the usage of its main model in this process. Of the whole conversation, it tells
/// the cost and the sums over all models. Newer versions also tell the sums over all models since
/// the last result, which are those of this process. qwen tells the usage of the whole
/// conversation.
pub fn claude_totals(line: &Value) -> Totals {
    let usage = claude_answer(&line["usage"]);
    let is_qwen = !line["usage"]["total_tokens"].is_null();
    let (process, whole) =
        if is_qwen { (Usage::default(), usage) } else { (usage, Usage::default()) };
    let models = claude_models(&line["model_usage_since_last_result"]);
    Totals {
        process: Usage { turns: number(&line["num_turns"]), ..process.at_least(models) },
        whole: Usage {
            cost_usd_micros: micros(&line["total_cost_usd"]),
            ..whole.at_least(claude_models(&line["modelUsage"]))
        },
    }
}

/// Returns the sum over the models in a `modelUsage` of claude, with its cost.
fn claude_models(usage: &Value) -> Usage {
    let models = usage.as_object().into_iter().flat_map(|models| models.values());
    models.fold(Usage::default(), |sum, model| {
        sum.plus(Usage {
            input_tokens: number(&model["inputTokens"]),
            output_tokens: number(&model["outputTokens"]),
            cache_read_tokens: number(&model["cacheReadInputTokens"]),
            cache_write_tokens: number(&model["cacheCreationInputTokens"]),
            cost_usd_micros: micros(&model["costUSD"]),
            ..Usage::default()
        })
    })
}

/// Returns the total of a thread of codex, which is the whole conversation.
pub fn codex_total(usage: &Value) -> Totals {
    Totals { whole: codex_usage(usage), ..Totals::default() }
}

/// Returns the usage in the form of codex.
fn codex_usage(usage: &Value) -> Usage {
    without_cached_input(Usage {
        input_tokens: number(&usage["input_tokens"]),
        output_tokens: number(&usage["output_tokens"]),
        cache_read_tokens: number(&usage["cached_input_tokens"]),
        cache_write_tokens: number(&usage["cache_write_input_tokens"]),
        ..Usage::default()
    })
}

/// Takes the tokens of the cache out of the input, for a CLI that counts them there, too.
const fn without_cached_input(usage: Usage) -> Usage {
    let cached = usage.cache_read_tokens.saturating_add(usage.cache_write_tokens);
    Usage { input_tokens: usage.input_tokens.saturating_sub(cached), ..usage }
}

/// Returns the total of this process in the `stats` of gemini. Its output lacks the reasoning, so
/// that is taken from the sum of all tokens.
pub fn gemini_total(stats: &Value) -> Totals {
    let input_tokens = number(&stats["input_tokens"]);
    let written = number(&stats["total_tokens"]).saturating_sub(input_tokens);
    let process = without_cached_input(Usage {
        input_tokens,
        output_tokens: number(&stats["output_tokens"]).max(written),
        cache_read_tokens: number(&stats["cached"]),
        ..Usage::default()
    });
    Totals { process, ..Totals::default() }
}

/// Returns a time in RFC 3339.
pub fn time(value: &Value) -> Option<Timestamp> {
    serde_json::from_value(value.clone()).ok()
}

/// Returns a number that may be absent, or be written as a fraction.
pub fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_f64().map(whole)).unwrap_or(0)
}

/// Returns the millionths of an amount in US dollars.
pub fn micros(dollars: &Value) -> u64 {
    dollars.as_f64().map_or(0, |dollars| whole((dollars * 1e6).round()))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number out of range becomes the nearest one in range"
)]
const fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_of_the_cache_are_counted_once() {
        let codex = json!({ "input_tokens": 100, "cached_input_tokens": 60,
            "cache_write_input_tokens": 10, "output_tokens": 5 });
        let usage = codex_total(&codex).whole;
        assert_eq!((usage.input_tokens, usage.cache_write_tokens, usage.tokens()), (30, 10, 105));
        let gemini = json!({ "input_tokens": 100, "cached": 60, "output_tokens": 5 });
        assert_eq!(gemini_total(&gemini).process.tokens(), 105);
        let reasoned = json!({ "input_tokens": 2000, "cached": 600, "output_tokens": 60,
            "total_tokens": 2100 });
        assert_eq!(gemini_total(&reasoned).process.output_tokens, 100);
        let claude = json!({ "input_tokens": 100, "cache_read_input_tokens": 60 });
        assert_eq!(claude_answer(&claude).tokens(), 160);
        let qwen = json!({ "input_tokens": 100, "cache_read_input_tokens": 60, "total_tokens": 1 });
        assert_eq!(claude_answer(&qwen).tokens(), 100);
    }

    #[test]
    fn the_family_is_that_of_the_fields_and_the_kind() {
        let check = |line: Value, family| {
            assert_eq!(Family::of(line["type"].as_str().unwrap(), &line), family, "{line}");
        };
        check(json!({ "type": "result", "session_id": "s" }), Family::Claude);
        check(json!({ "type": "result", "sessionId": "s" }), Family::Copilot);
        check(json!({ "type": "result", "timestamp": "t" }), Family::Gemini);
        check(json!({ "type": "error", "sessionID": "s" }), Family::Opencode);
        check(json!({ "type": "error", "message": "m" }), Family::Codex);
        check(json!({ "type": "assistant.message", "data": {} }), Family::Copilot);
    }
}
