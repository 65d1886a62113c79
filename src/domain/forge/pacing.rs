//! When the next request may be sent to a host: what the host asked for, and how far writes are apart.
//!
//! Each time is a [`Duration`] since a beginning that is the same for all of them. `forge::gate` keeps the [`Traffic`] of each host
//! and asks it before each request.

use std::time::Duration;

use super::{ItemEnd, ItemState};

/// The longest pause that a host can ask for. After that it is asked again.
pub const LONGEST_LIMIT: Duration = Duration::from_hours(1);

/// How urgent a write is. Of the writes that wait, the one with the first variant goes first.
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
    /// Returns how urgent the writes for an item in this state are.
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

/// What the configuration says about writes to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The shortest time between two writes.
    pub write_interval: Duration,
}

impl Pace {
    /// Writes follow each other without a pause.
    pub const fn unlimited() -> Self {
        Self { write_interval: Duration::ZERO }
    }
}

/// What is known about the requests to a host.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    limited_until: Option<Duration>,
    last_write: Option<Duration>,
}

/// Why a request is not sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The host asked for a pause until then.
    Limit(Duration),
    /// The last write was too recent; the next one is allowed then.
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

    /// Returns the end of the pause that the host asked for, if it lasts.
    pub fn limited_until(&self, now: Duration) -> Option<Duration> {
        self.limited_until.filter(|until| *until > now)
    }

    /// Decides whether a read may be sent now.
    ///
    /// # Errors
    /// Why not.
    pub fn read(&self, now: Duration) -> Result<(), Hold> {
        self.limited_until(now).map_or(Ok(()), |until| Err(Hold::Limit(until)))
    }

    /// Decides whether a write may be sent now. `is_first` says whether it is the first of those that wait.
    ///
    /// # Errors
    /// Why not.
    pub fn write(&self, now: Duration, pace: Pace, is_first: bool) -> Result<(), Hold> {
        self.read(now)?;
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_hours(5);
    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace { write_interval: SECOND };

    #[test]
    fn a_write_waits_for_its_turn_and_for_the_interval() {
        let (now, mut traffic) = (NOW, Traffic::default());
        assert_eq!(traffic.write(now, PACE, false), Err(Hold::Queue));
        assert_eq!(traffic.write(now, PACE, true), Ok(()));
        traffic.note_write(now);
        assert_eq!(traffic.write(now, PACE, true), Err(Hold::Interval(now + SECOND)));
        assert_eq!(traffic.write(now + SECOND, PACE, true), Ok(()));
        assert_eq!(traffic.read(now), Ok(()), "reads have no interval");
    }

    #[test]
    fn a_limit_holds_reads_and_writes_and_is_never_shortened() {
        let (now, mut traffic) = (NOW, Traffic::default());
        traffic.limit(now, 9 * SECOND);
        traffic.limit(now, SECOND);
        let until = now + 9 * SECOND;
        for is_first in [true, false] {
            assert_eq!(traffic.write(now + SECOND, PACE, is_first), Err(Hold::Limit(until)));
        }
        assert_eq!(traffic.read(now + SECOND), Err(Hold::Limit(until)));
        assert_eq!(traffic.read(until), Ok(()));
        assert_eq!(traffic.limited_until(until), None);
    }

    #[test]
    fn a_stop_goes_first_and_a_claim_last() {
        let states = [
            ItemState::Claiming { after_comment: None },
            ItemState::Active(super::super::Standing::Failed),
            ItemState::Stopping(super::super::StopCause::Closed),
        ];
        let mut urgencies: Vec<Urgency> = states.iter().map(Urgency::of).collect();
        urgencies.sort();
        assert_eq!(urgencies, [Urgency::Stop, Urgency::Work, Urgency::Claim]);
    }

    #[test]
    fn a_limit_lasts_an_hour_at_most() {
        let (now, mut traffic) = (NOW, Traffic::default());
        traffic.limit(now, Duration::MAX);
        assert_eq!(traffic.limited_until(now), Some(now + LONGEST_LIMIT));
    }
}
