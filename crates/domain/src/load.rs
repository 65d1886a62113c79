//! The load of the daemon in the last hour. It is in memory: Prometheus keeps longer histories.

use std::collections::VecDeque;
use std::time::Duration;

use super::activity::Usage;
use super::stopwatch::Steady;

/// The load at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The launches that coordinators keep.
    pub running: usize,
    /// The starts that wait.
    pub waiting: usize,
    /// The usage of all launches until then.
    pub usage: Usage,
}

/// The figures of an hour ago, with which the present load is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastHour {
    /// The launches that coordinators kept an hour ago.
    pub running: usize,
    /// The starts that waited an hour ago.
    pub waiting: usize,
    /// The tokens that were used since then.
    pub tokens: u64,
    /// The cost since then, in millionths of a US dollar.
    pub cost_usd_micros: u64,
}

/// The loads of about the last hour, the oldest first.
#[derive(Debug, Default)]
pub struct Loads(VecDeque<(Steady, Load)>);

const HOUR: Duration = Duration::from_hours(1);

impl Loads {
    /// Adds the present load. It drops all loads that are older than the newest one of at least an
    /// hour ago.
    pub fn add(&mut self, at: Steady, load: Load) {
        self.0.push_back((at, load));
        while self.0.get(1).is_some_and(|(second, _)| at.since(*second) >= HOUR) {
            self.0.pop_front();
        }
    }

    /// Returns the load an hour ago, and what was used since then. `usage` is that of all launches
    /// until now. `None` if no load is so old.
    pub fn last_hour(&self, now: Steady, usage: Usage) -> Option<LastHour> {
        let is_old = |(at, _): &&(Steady, Load)| now.since(*at) >= HOUR;
        let (_, before) = self.0.iter().rev().find(is_old)?;
        Some(LastHour {
            running: before.running,
            waiting: before.waiting,
            tokens: usage.tokens().saturating_sub(before.usage.tokens()),
            cost_usd_micros: usage.cost_usd_micros.saturating_sub(before.usage.cost_usd_micros),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(n: u64) -> Steady {
        Steady::after(Duration::from_mins(n))
    }

    fn used(output_tokens: u64) -> Usage {
        Usage { output_tokens, cost_usd_micros: output_tokens * 2, ..Usage::default() }
    }

    #[test]
    fn the_load_is_compared_with_the_newest_that_is_an_hour_old() {
        let mut loads = Loads::default();
        assert_eq!(loads.last_hour(minute(90), used(5)), None);
        for n in 1..=200 {
            let running = usize::try_from(n).unwrap();
            loads.add(minute(n), Load { running, waiting: 7, usage: used(n * 10) });
            let hour = loads.last_hour(minute(n), used(n * 10 + 5));
            let expected = n.checked_sub(60).filter(|then| *then > 0).map(|then| LastHour {
                running: usize::try_from(then).unwrap(),
                waiting: 7,
                tokens: 605,
                cost_usd_micros: 1_210,
            });
            assert_eq!(hour, expected, "{n}");
        }
        assert_eq!(loads.0.len(), 61);
        // No load was added for a while.
        assert_eq!(loads.last_hour(minute(230), used(2_000)).unwrap().running, 170);
        loads.add(minute(400), Load { running: 1, waiting: 0, usage: used(0) });
        assert_eq!(loads.0.len(), 2);
        // A sum is never less than nothing.
        assert_eq!(loads.last_hour(minute(400), used(0)).unwrap().tokens, 0);
    }
}
