//! Decides when the next request may be sent to a host. A host can ask for a pause, writes keep a
//! distance, and an hour has a budget of writes.
//!
//! Each time is a [`Duration`] since a start that is the same for all of them. `forge::gate` keeps
//! the [`Traffic`] of each host and asks it before each request.

use std::collections::VecDeque;
use std::time::Duration;

use super::{ItemEnd, ItemState};

/// The longest pause that a host can ask for. After that it is asked again.
pub const LONGEST_LIMIT: Duration = Duration::from_hours(1);

/// The period that the budget of writes is for.
const HOUR: Duration = Duration::from_hours(1);
/// Writes that begin within this time after another are counted together. They count for an hour
/// after the last one that could be among them, so the budget errs on the safe side.
const MINUTE: Duration = Duration::from_mins(1);
/// A tenth of the budget is kept for work that has begun, because a claim needs more than one
/// write.
const RESERVED_PART: u32 = 10;

/// The urgency of a write. The gate sends waiting writes in the order of these variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It says that work was stopped, which people wait for.
    Stop,
    /// It belongs to work that has begun.
    Work,
    /// It begins new work.
    Claim,
}

impl Urgency {
    /// Returns the urgency of the writes for an item in this state.
    pub const fn of(state: &ItemState) -> Self {
        match state {
            ItemState::Stopping(_) | ItemState::Ended(ItemEnd::Stopped(_)) => Self::Stop,
            ItemState::Claiming { .. } => Self::Claim,
            ItemState::Active(_)
            | ItemState::Pausing
            | ItemState::Paused { .. }
            | ItemState::Ended(ItemEnd::Done | ItemEnd::Expired | ItemEnd::Elsewhere) => Self::Work,
        }
    }
}

/// The limits of the configuration for writes to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The shortest time between two writes.
    pub write_interval: Duration,
    /// The greatest number of writes in an hour; `None` allows any number.
    pub writes_per_hour: Option<u32>,
}

impl Pace {
    /// Returns a pace without limits: writes follow each other without a pause.
    pub const fn unlimited() -> Self {
        Self { write_interval: Duration::ZERO, writes_per_hour: None }
    }
}

/// The record of the requests to a host, as far as it affects the next one.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    limited_until: Option<Duration>,
    last_write: Option<Duration>,
    /// The beginning of each minute with writes and the number of its writes. The oldest minute
    /// comes first.
    minutes: VecDeque<(Duration, u32)>,
}

/// The reason why a request is not sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The host asked for a pause until this time.
    Limit(Duration),
    /// The budget of the hour is used up until this time.
    Budget(Duration),
    /// The last write was too recent. The next one is allowed at this time.
    Interval(Duration),
    /// Another write goes first.
    Queue,
}

impl Traffic {
    /// Records that the host asked for a pause. A shorter pause does not end a longer one.
    pub fn limit(&mut self, now: Duration, pause: Duration) {
        let until = now + pause.min(LONGEST_LIMIT);
        self.limited_until = self.limited_until.max(Some(until));
    }

    /// Returns the end of the pause that the host asked for, if the pause is not over.
    pub fn limited_until(&self, now: Duration) -> Option<Duration> {
        self.limited_until.filter(|until| *until > now)
    }

    /// Decides whether a read may be sent now.
    ///
    /// # Errors
    /// Returns the reason to hold the read.
    pub fn read(&self, now: Duration) -> Result<(), Hold> {
        self.limited_until(now).map_or(Ok(()), |until| Err(Hold::Limit(until)))
    }

    /// Decides whether work of this urgency may begin now, whichever request it sends first.
    ///
    /// # Errors
    /// Returns [`Hold::Limit`] or [`Hold::Budget`].
    pub fn begin(&self, now: Duration, pace: Pace, urgency: Urgency) -> Result<(), Hold> {
        self.read(now)?;
        let budget = match (pace.writes_per_hour, urgency) {
            (None, _) | (_, Urgency::Stop) => return Ok(()),
            (Some(budget), Urgency::Work) => budget,
            (Some(budget), Urgency::Claim) => budget - budget / RESERVED_PART,
        };
        self.room_at(now, budget).map_or(Ok(()), |at| Err(Hold::Budget(at)))
    }

    /// Decides whether a write may be sent now. `is_first` says whether it is the first of those
    /// that wait.
    ///
    /// # Errors
    /// Returns the reason to hold the write.
    pub fn write(
        &self,
        now: Duration,
        pace: Pace,
        urgency: Urgency,
        is_first: bool,
    ) -> Result<(), Hold> {
        // A claim that has begun must be finished, so it may use the reserved part, too.
        self.begin(now, pace, urgency.min(Urgency::Work))?;
        if !is_first {
            return Err(Hold::Queue);
        }
        match self.last_write.map(|last| last + pace.write_interval) {
            Some(next_at) if next_at > now => Err(Hold::Interval(next_at)),
            _ => Ok(()),
        }
    }

    /// Records that a write is sent.
    pub fn note_write(&mut self, now: Duration) {
        self.last_write = Some(now);
        self.count(now, now, 1);
    }

    /// Counts `n` writes of the minute that began at `begin`, as recorded before a restart. Minutes
    /// are added in their order.
    pub fn count(&mut self, now: Duration, begin: Duration, n: u32) {
        match self.minutes.back_mut() {
            Some((last, n_writes)) if begin < *last + MINUTE => {
                *n_writes = n_writes.saturating_add(n);
            }
            _ => self.minutes.push_back((begin, n)),
        }
        while self.minutes.front().is_some_and(|(begin, _)| is_over(*begin, now)) {
            self.minutes.pop_front();
        }
    }

    /// Returns the minutes that count, each with its number of writes.
    pub fn minutes(&self, now: Duration) -> impl Iterator<Item = (Duration, u32)> {
        self.minutes.iter().copied().filter(move |(begin, _)| !is_over(*begin, now))
    }

    /// Returns the time at which the budget has room for one more write; `None` if it has room now.
    fn room_at(&self, now: Duration, budget: u32) -> Option<Duration> {
        let mut n_writes: u64 = self.minutes(now).map(|(_, n)| u64::from(n)).sum();
        let mut room_at = None;
        for (begin, n) in self.minutes(now) {
            if n_writes < u64::from(budget) {
                break;
            }
            n_writes -= u64::from(n);
            room_at = Some(begin + MINUTE + HOUR);
        }
        room_at
    }
}

/// Returns whether the writes of a minute no longer count.
fn is_over(begin: Duration, now: Duration) -> bool {
    begin + MINUTE + HOUR <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_hours(5);
    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace { write_interval: SECOND, writes_per_hour: None };
    const WORK: Urgency = Urgency::Work;

    #[test]
    fn a_write_waits_for_its_turn_and_for_the_interval() {
        let now = NOW;
        let mut traffic = Traffic::default();
        assert_eq!(traffic.write(now, PACE, WORK, false), Err(Hold::Queue));
        assert_eq!(traffic.write(now, PACE, WORK, true), Ok(()));
        traffic.note_write(now);
        assert_eq!(traffic.write(now, PACE, WORK, true), Err(Hold::Interval(now + SECOND)));
        assert_eq!(traffic.write(now + SECOND, PACE, WORK, true), Ok(()));
        assert_eq!(traffic.read(now), Ok(()), "reads have no interval");
    }

    #[test]
    fn a_limit_holds_reads_and_writes_and_is_never_shortened() {
        let now = NOW;
        let mut traffic = Traffic::default();
        traffic.limit(now, 9 * SECOND);
        traffic.limit(now, SECOND);
        let until = now + 9 * SECOND;
        for is_first in [true, false] {
            assert_eq!(traffic.write(now + SECOND, PACE, WORK, is_first), Err(Hold::Limit(until)));
        }
        assert_eq!(traffic.read(now + SECOND), Err(Hold::Limit(until)));
        assert_eq!(traffic.read(until), Ok(()));
        assert_eq!(traffic.limited_until(until), None);
    }

    /// Returns the traffic of `n` writes that were one second apart.
    fn after(n: u32, begin: Duration) -> Traffic {
        let mut traffic = Traffic::default();
        (0..n).for_each(|n| traffic.note_write(begin + n * SECOND));
        traffic
    }

    #[test]
    fn a_full_budget_holds_work_until_the_first_minute_is_an_hour_old_and_never_a_stop() {
        let pace = Pace { writes_per_hour: Some(100), ..PACE };
        let traffic = after(100, NOW);
        let now = NOW + 100 * SECOND;
        let room_at = NOW + MINUTE + HOUR;
        assert_eq!(after(99, NOW).write(now, pace, WORK, true), Ok(()));
        for urgency in [Urgency::Work, Urgency::Claim] {
            assert_eq!(traffic.write(now, pace, urgency, false), Err(Hold::Budget(room_at)));
            assert_eq!(traffic.begin(now, pace, urgency), Err(Hold::Budget(room_at)));
        }
        assert_eq!(traffic.write(now, pace, Urgency::Stop, true), Ok(()));
        assert_eq!(traffic.write(now, PACE, Urgency::Claim, true), Ok(()), "without a budget");
        assert_eq!(traffic.write(room_at, pace, WORK, true), Ok(()));
        assert_eq!(traffic.minutes(room_at).collect::<Vec<_>>(), [(NOW + MINUTE, 40)]);
    }

    #[test]
    fn no_hour_has_more_writes_than_the_budget() {
        let pace = Pace { writes_per_hour: Some(7), ..PACE };
        let mut traffic = Traffic::default();
        let mut sent = Vec::new();
        for second in 0..4 * 60 * 60 {
            let now = NOW + second * SECOND;
            if traffic.write(now, pace, WORK, true).is_ok() {
                traffic.note_write(now);
                sent.push(now);
            }
        }
        assert!(sent.windows(8).all(|eight| eight[7] >= eight[0] + HOUR), "{sent:?}");
        assert!(sent.len() >= 21, "each hour has some: {}", sent.len());
    }

    #[test]
    fn the_end_of_the_budget_is_kept_for_what_has_begun() {
        let pace = Pace { writes_per_hour: Some(100), ..PACE };
        let traffic = after(90, NOW);
        let now = NOW + 100 * SECOND;
        assert_eq!(traffic.begin(now, pace, Urgency::Work), Ok(()));
        assert!(matches!(traffic.begin(now, pace, Urgency::Claim), Err(Hold::Budget(_))));
        assert_eq!(traffic.write(now, pace, Urgency::Claim, true), Ok(()), "it has begun");
        let small = Pace { writes_per_hour: Some(1), ..PACE };
        assert_eq!(Traffic::default().begin(now, small, Urgency::Claim), Ok(()));
    }

    #[test]
    fn a_stop_goes_first_and_a_claim_last() {
        let states = [
            ItemState::Claiming { after_comment: None },
            ItemState::Active(super::super::WorkState::Failed),
            ItemState::Stopping(super::super::StopCause::Closed),
        ];
        let mut urgencies: Vec<Urgency> = states.iter().map(Urgency::of).collect();
        urgencies.sort();
        assert_eq!(urgencies, [Urgency::Stop, Urgency::Work, Urgency::Claim]);
    }

    #[test]
    fn a_limit_lasts_an_hour_at_most() {
        let now = NOW;
        let mut traffic = Traffic::default();
        traffic.limit(now, Duration::MAX);
        assert_eq!(traffic.limited_until(now), Some(now + LONGEST_LIMIT));
    }
}
