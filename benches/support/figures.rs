//! Figures: each with its target, and with the floor that the machine itself needs.

use std::time::Duration;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

/// The target of a figure.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// One line of the table. All numbers are in `unit`.
#[derive(Debug)]
pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
    pub median: f64,
    pub p99: Option<f64>,
    /// The target for the median.
    pub target: Option<Target>,
    pub p99_target: Option<Target>,
    /// The median of the same work without the daemon.
    pub floor: Option<f64>,
    /// The greatest allowed ratio of the median to the floor.
    pub max_ratio: Option<f64>,
}

impl Figure {
    pub fn new(name: &'static str, unit: &'static str, median: f64) -> Self {
        Self {
            name,
            unit,
            median,
            p99: None,
            target: None,
            p99_target: None,
            floor: None,
            max_ratio: None,
        }
    }

    /// Returns a figure of durations, in milliseconds.
    pub fn of_times(name: &'static str, times: &Times) -> Self {
        Self { p99: Some(times.percentile(99)), ..Self::new(name, "ms", times.median()) }
    }

    fn is_reached(&self) -> Option<bool> {
        let ratio = self.max_ratio.zip(self.ratio()).map(|(most, ratio)| ratio <= most);
        let median = self.target.map(|target| target.is_met_by(self.median));
        let p99 = self.p99_target.zip(self.p99).map(|(target, p99)| target.is_met_by(p99));
        [ratio, median, p99].into_iter().flatten().reduce(|all, each| all && each)
    }

    fn ratio(&self) -> Option<f64> {
        self.floor.map(|floor| self.median / floor)
    }

    fn targets(&self) -> String {
        let median = self.target.map(Target::show);
        let p99 = self.p99_target.map(|target| format!("p99 {}", target.show()));
        let ratio = self.max_ratio.map(|most| format!("<= {} x floor", show(most)));
        [median, p99, ratio].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Target {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    fn show(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {}", show(most)),
            Self::AtLeast(least) => format!(">= {}", show(least)),
        }
    }
}

/// Prints the figures of one benchmark.
pub fn print(figures: &[Figure]) {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header(["figure", "unit", "median", "p99", "target", "floor", "ratio", ""]);
    for figure in figures {
        let optional = |value: Option<f64>| value.map(show).unwrap_or_default();
        let mark = match figure.is_reached() {
            Some(true) => "ok",
            Some(false) => "MISSED",
            None => "",
        };
        table.add_row([
            figure.name,
            figure.unit,
            &show(figure.median),
            &optional(figure.p99),
            &figure.targets(),
            &optional(figure.floor),
            &optional(figure.ratio()),
            mark,
        ]);
    }
    for column in [2, 3, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

/// Returns the value with three digits, which is the precision of such a measurement.
fn show(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 || large.fract().abs() < f64::EPSILON => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        middle if middle >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The durations of the same repeated work.
#[derive(Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns the median in milliseconds.
    pub fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// Returns the least time that this percentage did not exceed, in milliseconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}
