//! A small chart of one number over the last day.

use std::fmt::Write as _;

use super::words::Words;

/// The size of the drawing, which the page stretches.
const WIDTH: usize = 96;
const HEIGHT: u64 = 24;

/// A chart.
#[derive(Debug, Clone)]
pub(super) struct Spark {
    pub(super) line: String,
    pub(super) area: String,
    /// The height of the limit, if there is one.
    pub(super) limit: Option<u64>,
    /// The sentence for those who do not see it.
    pub(super) text: String,
}

impl Spark {
    /// Makes the chart of `values`, the oldest first. `shown` returns a value in the form for
    /// people. It reaches at least to `limit`.
    pub(super) fn of(
        w: &'static Words,
        values: &[u64],
        limit: Option<u64>,
        shown: impl Fn(u64) -> String,
    ) -> Self {
        let most = values.iter().copied().max().unwrap_or_default();
        let top = most.max(limit.unwrap_or_default()).max(1);
        let height = |value: u64| HEIGHT - value.min(top).saturating_mul(HEIGHT) / top;
        let mut line = String::new();
        for (place, value) in values.iter().enumerate() {
            let x = place * WIDTH / values.len().saturating_sub(1).max(1);
            let _ = write!(line, "{}{x} {}", if place == 0 { 'M' } else { 'L' }, height(*value));
        }
        let area = format!("{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z");
        let last = values.last().copied().unwrap_or_default();
        let text = format!("{} {}, {} {}", w.last_day_most, shown(most), w.last_value, shown(last));
        Self { line, area, limit: limit.map(height), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Language;

    #[test]
    fn a_chart_reaches_from_its_floor_to_the_greatest_value() {
        let w = Words::of(Language::English);
        let spark = Spark::of(w, &[0, 4, 2], Some(8), |value| value.to_string());
        assert_eq!(spark.line, "M0 24L48 12L96 18");
        assert_eq!((spark.limit, spark.area.ends_with("L96 24L0 24Z")), (Some(0), true));
        assert_eq!(spark.text, "Most in 24 hours: 4, now: 2");
        let empty = Spark::of(w, &[0, 0], None, |value| value.to_string());
        assert_eq!(empty.line, "M0 24L96 24");
        let huge = Spark::of(w, &[u64::MAX], None, |value| value.to_string());
        assert!(huge.line.starts_with("M0 "));
    }
}
