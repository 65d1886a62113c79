//! Totals of launches, as `/metrics` shows them.

use std::collections::BTreeMap;

use domain::totals::{Total, TotalKey, Totals};
use runtime::telemetry::counters::{Exposition, Label};

/// Writes the totals as counters.
pub(super) fn describe(totals: &Totals, text: &mut Exposition) {
    let launches = totals.iter().map(|(key, total)| {
        let labels = [labels_of(key), vec![("outcome", key.outcome.as_str())]].concat();
        (labels, total.n_launches)
    });
    text.counter("agent_coordinator_launches_total", "Launches that ended, by outcome.", launches);
    for Summed { name, help, of } in SUMS {
        let mut sums: BTreeMap<Vec<Label<'_>>, Total> = BTreeMap::new();
        for (key, total) in totals.iter() {
            let sum = sums.entry(labels_of(key)).or_default();
            *sum = sum.plus(*total);
        }
        text.counter(name, help, sums.into_iter().map(|(labels, sum)| (labels, of(&sum))));
    }
}

fn labels_of(key: &TotalKey) -> Vec<Label<'_>> {
    vec![
        ("provider", &key.ai_type),
        ("agent_id", key.agent.as_str()),
        ("project_id", key.project.as_str()),
    ]
}

/// A sum over the launches of an agent in a project, as a metric.
struct Summed {
    name: &'static str,
    help: &'static str,
    of: fn(&Total) -> u64,
}

const SUMS: [Summed; 7] = [
    Summed {
        name: "agent_coordinator_run_time_seconds_total",
        help: "Time from the start of the process to the end of the launch.",
        of: |total| total.run_time.as_secs(),
    },
    Summed {
        name: "agent_coordinator_launches_with_usage_total",
        help: "Launches that ended whose CLI reported any usage.",
        of: |total| total.n_with_usage,
    },
    Summed {
        name: "agent_coordinator_reported_input_tokens_total",
        help: "Input tokens outside of caches, as reported by CLIs.",
        of: |total| total.usage.input_tokens,
    },
    Summed {
        name: "agent_coordinator_reported_output_tokens_total",
        help: "Output tokens, as reported by CLIs.",
        of: |total| total.usage.output_tokens,
    },
    Summed {
        name: "agent_coordinator_reported_cache_read_tokens_total",
        help: "Tokens read from caches, as reported by CLIs.",
        of: |total| total.usage.cache_read_tokens,
    },
    Summed {
        name: "agent_coordinator_reported_cache_write_tokens_total",
        help: "Tokens written to caches, as reported by CLIs.",
        of: |total| total.usage.cache_write_tokens,
    },
    Summed {
        name: "agent_coordinator_reported_cost_usd_micros_total",
        help: "Cost in millionths of a US dollar, as reported by CLIs.",
        of: |total| total.usage.cost_usd_micros,
    },
];
