//! Limits on how often something may happen and how often it is logged. Time is counted from any
//! fixed moment that the caller chooses.

use std::time::Duration;

/// A limit of a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number that may be taken at once after a pause.
    pub burst: u32,
    /// The time after which one more may be taken.
    pub interval: Duration,
}

/// The state of one token bucket. It is full at first.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    /// The tokens that were taken and not refilled at `seen`.
    n_taken: f64,
    seen: Duration,
}

impl Bucket {
    /// Takes one token. Returns `false` and takes nothing if none is left.
    pub fn take(&mut self, rate: Rate, now: Duration) -> bool {
        let n_refilled = now.saturating_sub(self.seen).as_secs_f64() / rate.interval.as_secs_f64();
        self.n_taken = (self.n_taken - n_refilled).max(0.0);
        self.seen = now;
        let has_room = self.n_taken + 1.0 <= f64::from(rate.burst);
        if has_room {
            self.n_taken += 1.0;
        }
        has_room
    }

    /// Puts back a token that was not used.
    pub fn give_back(&mut self) {
        self.n_taken = (self.n_taken - 1.0).max(0.0);
    }
}

/// Events of one kind that are logged together. The first is logged at once, and the others of its
/// interval only as a number.
#[derive(Debug, Clone, Default)]
pub struct LogInterval {
    /// The start of the interval; `None` before the first event.
    since: Option<Duration>,
    n_suppressed: u64,
}

impl LogInterval {
    pub const LENGTH: Duration = Duration::from_mins(1);

    /// Counts an event. Returns `true` if it must be logged now.
    pub fn note(&mut self, now: Duration) -> bool {
        if self.since.is_some() {
            self.n_suppressed += 1;
            return false;
        }
        self.since = Some(now);
        true
    }

    /// Returns the number of events that were not logged, after the interval is over; `None` if
    /// there were none. The next event is logged again.
    pub fn end(&mut self, now: Duration) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_sub(since) < Self::LENGTH) {
            return None;
        }
        let n_suppressed = std::mem::take(self).n_suppressed;
        (n_suppressed > 0).then_some(n_suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RATE: Rate = Rate { burst: 30, interval: Duration::from_secs(2) };

    fn n_taken(bucket: &mut Bucket, now: Duration) -> usize {
        (0..1_000).filter(|_| bucket.take(RATE, now)).count()
    }

    #[test]
    fn a_burst_is_taken_and_then_one_after_each_interval() {
        let mut bucket = Bucket::default();
        assert_eq!(n_taken(&mut bucket, 100 * SECOND), 30);
        assert_eq!(n_taken(&mut bucket, 101 * SECOND), 0);
        assert_eq!(n_taken(&mut bucket, 102 * SECOND), 1);
        assert_eq!(n_taken(&mut bucket, 122 * SECOND), 10);
        assert_eq!(n_taken(&mut bucket, 10_000 * SECOND), 30);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more_than_that() {
        let mut bucket = Bucket::default();
        n_taken(&mut bucket, SECOND);
        bucket.give_back();
        assert_eq!(n_taken(&mut bucket, SECOND), 1);
        let mut full = Bucket::default();
        full.give_back();
        assert_eq!(n_taken(&mut full, SECOND), 30);
    }

    #[test]
    fn a_clock_that_goes_back_refills_nothing() {
        let mut bucket = Bucket::default();
        n_taken(&mut bucket, 100 * SECOND);
        assert_eq!(n_taken(&mut bucket, 50 * SECOND), 0);
    }

    #[test]
    fn the_first_of_an_interval_is_logged_and_the_others_are_counted() {
        let mut interval = LogInterval::default();
        assert_eq!(interval.end(SECOND), None, "nothing has happened");
        assert!(interval.note(SECOND));
        assert!((0..99).all(|_| !interval.note(2 * SECOND)));
        assert_eq!(interval.end(60 * SECOND), None, "it goes on");
        assert_eq!(interval.end(61 * SECOND), Some(99));
        assert!(interval.note(62 * SECOND));
        assert_eq!(interval.end(200 * SECOND), None, "nothing was suppressed");
    }
}
