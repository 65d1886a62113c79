//! The load of the daemon over the last day, for charts.

use super::time::Timestamp;

/// The load in one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Minutes since 1970.
    pub minute: i64,
    /// The launches with a process.
    pub running: u64,
    /// The tasks in progress whose agent does not run.
    pub waiting: u64,
    /// The tokens of all launches until then.
    pub tokens: u64,
    /// The cost of all launches until then, in millionths of a US dollar.
    pub cost_usd_micros: u64,
}

/// The minutes for which samples are kept.
pub const KEPT_MINUTES: i64 = 24 * 60;
/// The number of values of a series.
pub const N_VALUES: usize = 96;
/// The minutes of one value.
const MINUTES: i64 = 15;

/// The values of the last day, the oldest first. Each is about a quarter of an hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The greatest number in the time.
    pub running: Vec<u64>,
    pub waiting: Vec<u64>,
    /// The sum in the time.
    pub tokens: Vec<u64>,
    pub cost_usd_micros: Vec<u64>,
}

/// Returns the minute of a time.
pub fn minute_of(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(60_000)
}

impl Series {
    /// Makes the series of the day before `now`. `samples` are in their order.
    pub fn of(samples: &[Sample], now: Timestamp) -> Self {
        let zeros = || vec![0_u64; N_VALUES];
        let mut series =
            Self { running: zeros(), waiting: zeros(), tokens: zeros(), cost_usd_micros: zeros() };
        let first = minute_of(now) - KEPT_MINUTES + 1;
        let place = |sample: &Sample| {
            let distance = sample.minute.checked_sub(first).filter(|distance| *distance >= 0)?;
            usize::try_from(distance / MINUTES).ok().filter(|place| *place < N_VALUES)
        };
        let mut before: Option<&Sample> = None;
        for sample in samples {
            if let Some(place) = place(sample) {
                let raise = |values: &mut [u64], value: u64| {
                    values[place] = values[place].max(value);
                };
                raise(&mut series.running, sample.running);
                raise(&mut series.waiting, sample.waiting);
                if let Some(before) = before {
                    // Sums become smaller when old launches are forgotten.
                    series.tokens[place] += sample.tokens.saturating_sub(before.tokens);
                    series.cost_usd_micros[place] +=
                        sample.cost_usd_micros.saturating_sub(before.cost_usd_micros);
                }
            }
            before = Some(sample);
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minute: i64, running: u64, tokens: u64) -> Sample {
        Sample { minute, running, waiting: 0, tokens, cost_usd_micros: tokens * 2 }
    }

    #[test]
    fn values_are_the_most_or_the_sum_of_their_quarter_of_an_hour() {
        let now = Timestamp::from_millis(10_000 * 60_000);
        let samples = [
            sample(10_000 - KEPT_MINUTES, 9, 100),
            sample(9_985, 1, 110),
            sample(9_986, 2, 150),
            sample(9_990, 5, 150),
            // The launches of a project were forgotten.
            sample(9_999, 3, 20),
            sample(10_000, 4, 60),
        ];
        let series = Series::of(&samples, now);
        assert_eq!(series.running[N_VALUES - 2..], [1, 5]);
        assert_eq!(series.running.iter().sum::<u64>(), 6, "an older sample is left out");
        assert_eq!(series.tokens[N_VALUES - 2..], [10, 80]);
        assert_eq!(series.cost_usd_micros[N_VALUES - 1], 160);
        assert_eq!(Series::of(&[], now).running, [0; N_VALUES]);
    }
}
