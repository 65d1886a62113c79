//! Describes the activity and the usage of agents for people.

use super::output::{Zone, plain};
use api::activity::{ActivityBody, FailureBody, UsageBody};
use domain::Timestamp;

/// The longest progress text in a table, in characters. `--json` has the whole text.
const MAX_PROGRESS: usize = 60;

/// Returns the usage as text, such as `12 turns, 34.5k tokens, $0.12` or `2 turns, estimated`.
pub(super) fn used(usage: Option<&UsageBody>) -> String {
    let Some(usage) = usage else {
        return "-".to_owned();
    };
    let UsageBody {
        turns,
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        cost_usd_micros,
        estimated,
    } = *usage;
    let tokens = [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens];
    let tokens = tokens.into_iter().fold(0, u64::saturating_add);
    let turns = (turns > 0).then(|| format!("{turns} turn{}", if turns == 1 { "" } else { "s" }));
    let tokens = (tokens > 0).then(|| format!("{} tokens", rounded(tokens)));
    let cost = cost_usd_micros.map(dollars);
    let estimated = estimated.then(|| "estimated".to_owned());
    [turns, tokens, cost, estimated].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the last progress of the agent, after the failure that it met.
pub(super) fn doing(activity: &ActivityBody, now: Timestamp, zone: Zone) -> String {
    let progress =
        activity.progress.as_deref().map(|progress| short(&plain(progress), MAX_PROGRESS));
    let failure = activity.failure.as_ref().map(|failure| trouble(failure, now, zone));
    match (failure, progress) {
        (Some(failure), Some(progress)) => format!("{failure}: {progress}"),
        (Some(failure), None) => failure,
        (None, progress) => progress.unwrap_or_else(|| "-".to_owned()),
    }
}

/// Returns the class of the failure, with its end while that is in the future: `quota until
/// 2026-01-01 00:00:00`.
pub(super) fn trouble(failure: &FailureBody, now: Timestamp, zone: Zone) -> String {
    match failure.resets_at {
        Some(resets_at) if resets_at > now => {
            format!("{} until {}", failure.class, zone.time(resets_at))
        }
        _ => failure.class.to_string(),
    }
}

/// Returns the first characters of a text that would make a table too wide.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Returns the number in a short form, with the units that people use.
fn rounded(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{}.{}k", n / 1_000, n % 1_000 / 100),
        _ => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// Returns the amount in cents, rounded up as on the page, or more precisely if it is less than a
/// cent.
pub(super) fn dollars(micros: u64) -> String {
    if micros < 10_000 {
        return format!("${}.{:04}", micros / 1_000_000, micros / 100);
    }
    let cents = micros.div_ceil(10_000);
    format!("${}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Usage;

    #[track_caller]
    fn check(usage: Usage, expected: &str) {
        assert_eq!(used(UsageBody::of(usage).as_ref()), expected);
    }

    #[test]
    fn usage_is_told_as_far_as_it_is_known() {
        check(Usage::default(), "-");
        check(Usage { turns: 1, ..Usage::default() }, "1 turn");
        let usage =
            Usage { turns: 12, input_tokens: 30_000, output_tokens: 4_567, ..Usage::default() };
        check(usage, "12 turns, 34.5k tokens");
        check(
            Usage { cache_read_tokens: 1_960_000, cost_usd_micros: 1_234_567, ..usage },
            "12 turns, 1.9M tokens, $1.24",
        );
        check(Usage { cost_usd_micros: 1300, ..Usage::default() }, "$0.0013");
        let estimated = Usage { turns: 2, is_estimated: true, ..Usage::default() };
        check(estimated, "2 turns, estimated");
    }
}
