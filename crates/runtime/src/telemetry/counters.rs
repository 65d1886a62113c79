//! The counters of this process, and their text form for monitoring (Prometheus' exposition
//! format).
//!
//! The counters belong to the process, like its log. This module knows no launches and no routes:
//! other modules count here, and a listener asks for the text. A coordinator sends its own counts
//! in its status, because its server may be elsewhere. The caller adds them to the text.
//!
//! The crate `prometheus-client` was ruled out. It writes OpenMetrics: `le="1.0"` instead of
//! `le="1"`, families without `_total`, and label values without escapes. Monitoring would lose its
//! series.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::process_figures;
use machine::locks::lock;

/// The media type of [`Exposition`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Launches that ended, by their outcome.
pub static ENDS: ByWord =
    ByWord::new("agent_coordinator_ends_total", "Launches that ended, by outcome.", "outcome");
/// The time from a claim to its process.
pub static UNTIL_STARTED: Histogram = Histogram::new(
    "agent_coordinator_start_process_seconds",
    "From the claim of a start to the agent's process.",
);
/// The time from a claim to the first authentication on it.
pub static UNTIL_AUTHENTICATED: Histogram = Histogram::new(
    "agent_coordinator_start_authenticated_seconds",
    "From the claim of a start to the agent's first authentication.",
);

/// The deleted old rows, by kind.
pub static FORGOTTEN: ByWord = ByWord::new(
    "agent_coordinator_forgotten_total",
    "What was too old to be kept, by what it was.",
    "what",
);

/// Arguments of calls that a tool for coordinators does not know and ignored, by tool.
pub static UNKNOWN_ARGUMENTS: ByWord = ByWord::new(
    "agent_coordinator_unknown_arguments_total",
    "Arguments of calls that a tool for coordinators does not know and ignored, by tool.",
    "tool",
);

/// Requests to forges that failed, by the kind of the error.
pub static FORGE_ERRORS: ByWord = ByWord::new(
    "agent_coordinator_forge_errors_total",
    "Requests to forges that failed, by the kind of the error.",
    "error",
);

/// A counter for each word of a small set.
#[derive(Debug)]
pub struct ByWord {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl ByWord {
    const fn new(name: &'static str, help: &'static str, label: &'static str) -> Self {
        Self { name, help, label, counts: Mutex::new(BTreeMap::new()) }
    }

    pub fn add(&self, word: &'static str) {
        self.add_many(word, 1);
    }

    pub fn add_many(&self, word: &'static str, n: u64) {
        *lock(&self.counts).entry(word).or_default() += n;
    }
}

/// The upper ends of the classes, in milliseconds. A process starts within some milliseconds, and
/// its CLI needs seconds to authenticate.
const CLASSES_MS: [u64; 12] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 120_000];

/// The number of durations in each of some classes.
#[derive(Debug)]
pub struct Histogram {
    name: &'static str,
    help: &'static str,
    /// The count of each class by itself. The last one is for longer durations than all classes.
    counts: [AtomicU64; CLASSES_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Histogram {
    const fn new(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            counts: [const { AtomicU64::new(0) }; CLASSES_MS.len() + 1],
            sum_ms: AtomicU64::new(0),
        }
    }

    pub fn observe(&self, duration: Duration) {
        let ms = domain::time::millis(duration);
        let class = CLASSES_MS.iter().position(|&end| ms <= end).unwrap_or(CLASSES_MS.len());
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// The text under construction: one metric after the other, each with all its samples.
#[derive(Debug, Default)]
pub struct Exposition(String);

/// A label of a sample: its name and its value.
pub type Label<'a> = (&'a str, &'a str);

impl Exposition {
    /// Returns the text with all counters of this process.
    pub fn of_process() -> Self {
        let mut text = Self::default();
        for by_word in [&ENDS, &FORGOTTEN, &UNKNOWN_ARGUMENTS, &FORGE_ERRORS] {
            let counts = lock(&by_word.counts).clone();
            text.family(by_word.name, by_word.help, "counter");
            for (word, n) in counts {
                text.sample(by_word.name, &[(by_word.label, word)], n);
            }
        }
        text.histogram(&UNTIL_STARTED);
        text.histogram(&UNTIL_AUTHENTICATED);
        process_figures::describe(&mut text);
        text
    }

    /// Adds a number that only grows. Its `samples` differ in their labels.
    pub fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, u64)>,
    ) {
        self.samples(name, help, "counter", samples);
    }

    /// Adds a number that can rise and fall.
    pub fn gauge<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, u64)>,
    ) {
        self.samples(name, help, "gauge", samples);
    }

    /// Adds durations that can rise and fall, in seconds.
    pub fn gauge_of_time<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, Duration)>,
    ) {
        self.durations(name, help, "gauge", samples);
    }

    /// Adds durations that only grow, in seconds.
    pub fn counter_of_time<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, Duration)>,
    ) {
        self.durations(name, help, "counter", samples);
    }

    fn durations<'a>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, Duration)>,
    ) {
        self.family(name, help, kind);
        for (labels, duration) in samples {
            let text = format!("{}.{:06}", duration.as_secs(), duration.subsec_micros());
            self.sample(name, &labels, text.trim_end_matches('0').trim_end_matches('.'));
        }
    }

    pub fn into_text(self) -> String {
        self.0
    }

    fn samples<'a>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, u64)>,
    ) {
        self.family(name, help, kind);
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    fn histogram(&mut self, histogram: &Histogram) {
        let Histogram { name, help, counts, sum_ms } = histogram;
        self.family(name, help, "histogram");
        let mut n = 0;
        for (class, count) in counts.iter().enumerate() {
            n += count.load(Ordering::Relaxed);
            let end = CLASSES_MS.get(class).map_or_else(|| "+Inf".to_owned(), |&ms| seconds(ms));
            self.sample(&format!("{name}_bucket"), &[("le", &end)], n);
        }
        let _ = writeln!(self.0, "{name}_sum {}", seconds(sum_ms.load(Ordering::Relaxed)));
        self.sample(&format!("{name}_count"), &[], n);
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, of)) in labels.iter().enumerate() {
            let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{of}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn seconds(ms: u64) -> String {
    let whole = ms / 1_000;
    let rest = ms % 1_000;
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_a_histogram_add_up() {
        let histogram = Histogram::new("h_seconds", "Help.");
        for ms in [3, 10, 11, 700, 999_999] {
            histogram.observe(Duration::from_millis(ms));
        }
        let mut text = Exposition::default();
        text.histogram(&histogram);
        let text = text.into_text();
        assert!(text.starts_with("# HELP h_seconds Help.\n# TYPE h_seconds histogram\n"), "{text}");
        for line in [
            "h_seconds_bucket{le=\"0.01\"} 2",
            "h_seconds_bucket{le=\"0.025\"} 3",
            "h_seconds_bucket{le=\"1\"} 4",
            "h_seconds_bucket{le=\"120\"} 4",
            "h_seconds_bucket{le=\"+Inf\"} 5",
            "h_seconds_sum 1000.723",
            "h_seconds_count 5",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}: {text}");
        }
    }

    #[test]
    fn a_label_may_hold_anything() {
        let mut text = Exposition::default();
        text.gauge("g", "Help.", [(vec![("a", "x\"\\\n"), ("b", "y")], 7), (Vec::new(), 8)]);
        assert_eq!(
            text.into_text(),
            "# HELP g Help.\n# TYPE g gauge\ng{a=\"x\\\"\\\\\\n\",b=\"y\"} 7\ng 8\n"
        );
    }
}
