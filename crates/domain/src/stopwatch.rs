//! Measures how long things last, independently of changes of the wall clock.
//!
//! - Times that people read, and times that outlive a process, use the wall clock ([`Timestamp`]).
//!   It may jump, also by years.
//! - Durations of sessions, silences, notices, idle chats, runs, and claims without a process use a
//!   steady clock ([`Steady`]). It cannot be set, and it stands still while the machine sleeps.
//! - The start deadline uses the kernel's boot clock (`instance_dir::clock`), which goes on while
//!   the machine sleeps. The start deadline must have ended the start before a claim lapses.
//! - The age after which data is deleted uses the wall clock as it would be if it had not been set
//!   forward since the first look ([`ClockReading::cautious`]).
//! - The waits of pairs and accounts before their next start use the wall clock, clamped. A jump
//!   forward costs one early start. A jump back never makes a wait longer than was decided.
//!
//! A steady moment has no meaning in another process. So the beginning of something earlier is
//! taken from the wall clock once, when it is seen for the first time. A later jump of the clock
//! changes nothing. A jump shortly before changes nothing either: something that was not there at
//! the last look cannot be older than that look. After a restart of the server the wall clock is
//! believed, but only for decisions that end no process of ours. A run is measured by the time of
//! the kernel's steady clock that its shim recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::time::Timestamp;

/// A moment on a clock that cannot be set. It is in milliseconds since a moment that is the same
/// for the life of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Steady(i64);

impl Steady {
    /// Returns the moment that is `elapsed` after the beginning.
    pub fn after(elapsed: Duration) -> Self {
        Self(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the time since `earlier`; zero if `earlier` is still to come.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    pub wall: Timestamp,
    pub steady: Steady,
}

impl ClockReading {
    /// Returns the greatest time that the wall clock would show if it had not been set since
    /// `first`. Data that is deleted by its age does not come back when the clock does.
    pub fn cautious(self, first: Self) -> Timestamp {
        self.wall.min(first.wall + self.steady.since(first.steady))
    }
}

/// Says whether the wall clock is believed about the beginning of things that existed before the
/// first look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtFirst {
    Believe,
    /// The thing begins anew.
    Begin,
}

/// A stopwatch for each thing that is looked at.
#[derive(Debug, Clone)]
pub struct Stopwatches<K> {
    /// The beginning of each thing, and the look in which it was seen last.
    began: BTreeMap<K, (Steady, u64)>,
    n_looks: u64,
    looked_at: Option<Steady>,
}

impl<K> Default for Stopwatches<K> {
    fn default() -> Self {
        Self { began: BTreeMap::new(), n_looks: 0, looked_at: None }
    }
}

impl<K: Ord> Stopwatches<K> {
    /// Returns how long `what` has lasted. It began at `began_at` by the wall clock.
    pub fn lasted(
        &mut self,
        what: K,
        began_at: Timestamp,
        now: ClockReading,
        at_first: AtFirst,
    ) -> Duration {
        let by_wall = || {
            let by_wall = now.wall.since(began_at);
            let most = match (self.looked_at, at_first) {
                (Some(looked_at), _) => now.steady.since(looked_at),
                (None, AtFirst::Believe) => Duration::MAX,
                (None, AtFirst::Begin) => Duration::ZERO,
            };
            (now.steady.before(by_wall.min(most)), 0)
        };
        let (began, seen) = self.began.entry(what).or_insert_with(by_wall);
        *seen = self.n_looks;
        now.steady.since(*began)
    }

    /// Returns how long `what` has lasted, if its beginning is known.
    pub fn known(&mut self, what: &K, now: ClockReading) -> Option<Duration> {
        let (began, seen) = self.began.get_mut(what)?;
        *seen = self.n_looks;
        Some(now.steady.since(*began))
    }

    /// Restarts the stopwatch of `what`, whether or not it had begun before.
    pub fn restart(&mut self, what: K, now: ClockReading) {
        self.began.insert(what, (now.steady, self.n_looks));
    }

    /// Ends a look at everything, as of `now`. Things that were not seen are forgotten, and new
    /// things are taken to be younger than this look.
    pub fn end_look(&mut self, now: ClockReading) {
        let this = self.n_looks;
        self.began.retain(|_, (_, seen)| *seen == this);
        self.n_looks += 1;
        self.looked_at = Some(now.steady);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(steady_secs: u64, wall_secs: i64) -> ClockReading {
        let steady = Steady::after(Duration::from_secs(steady_secs));
        ClockReading { wall: Timestamp::from_millis(wall_secs * 1000), steady }
    }

    fn began(wall_secs: i64) -> Timestamp {
        Timestamp::from_millis(wall_secs * 1000)
    }

    #[test]
    fn a_clock_that_is_set_forward_makes_nothing_old() {
        let at = |wall, steady| ClockReading {
            wall: Timestamp::from_millis(wall),
            steady: Steady(steady),
        };
        let first = at(1_000, 50);
        assert_eq!(at(1_400, 450).cautious(first), Timestamp::from_millis(1_400));
        assert_eq!(at(9_000_000, 450).cautious(first), Timestamp::from_millis(1_400));
        assert_eq!(at(300, 450).cautious(first), Timestamp::from_millis(300));
    }

    #[test]
    fn after_a_restart_the_wall_clock_is_believed_or_everything_begins_anew() {
        let lasted =
            |at_first| Stopwatches::default().lasted("it", began(1_000), at(0, 4_600), at_first);
        assert_eq!(lasted(AtFirst::Believe), HOUR);
        assert_eq!(lasted(AtFirst::Begin), Duration::ZERO);
    }

    #[test]
    fn a_jump_between_beginning_and_first_look_counts_no_more_than_the_time_since_the_last_look() {
        let mut watches = Stopwatches::default();
        watches.end_look(at(100, 5_000));
        assert_eq!(
            watches.lasted("it", began(5_010), at(130, 99_000_000), AtFirst::Believe),
            Duration::from_secs(30)
        );
        assert_eq!(
            watches.lasted("back", began(5_010), at(130, 7), AtFirst::Believe),
            Duration::ZERO
        );
    }

    #[test]
    fn what_begins_anew_is_as_old_as_that() {
        let mut watches = Stopwatches::default();
        assert_eq!(watches.known(&"it", at(10, 10)), None);
        watches.lasted("it", began(0), at(10, 10), AtFirst::Believe);
        watches.restart("it", at(20, 0));
        for n_looks in 1..4 {
            let now = at(20 + n_looks, 0);
            assert_eq!(watches.known(&"it", now), Some(Duration::from_secs(n_looks)));
            watches.end_look(now);
        }
    }

    #[test]
    fn what_is_not_looked_at_any_more_is_forgotten() {
        let mut watches = Stopwatches::default();
        for _ in 0..2 {
            watches.lasted("stays", began(0), at(10, 10), AtFirst::Begin);
            watches.lasted("goes", began(0), at(10, 10), AtFirst::Begin);
        }
        watches.end_look(at(10, 10));
        watches.lasted("stays", began(0), at(20, 20), AtFirst::Begin);
        watches.end_look(at(20, 20));
        assert_eq!(watches.began.keys().collect::<Vec<_>>(), [&"stays"]);
    }

    proptest! {
        #[test]
        fn whatever_the_wall_clock_does_it_lasts_as_long_as_it_does(jumps in prop::collection::vec((0u64..100, -100_000i64..100_000), 1..20)) {
            let mut watches = Stopwatches::default();
            watches.end_look(at(0, 0));
            let mut steady = 0;
            let mut wall = 0;
            let first = watches.lasted("it", began(0), at(0, 0), AtFirst::Believe);
            prop_assert_eq!(first, Duration::ZERO);
            for (passed, jump) in jumps {
                steady += passed;
                wall += i64::try_from(passed).unwrap() + jump;
                let lasted = watches.lasted("it", began(0), at(steady, wall), AtFirst::Believe);
                prop_assert_eq!(lasted, Duration::from_secs(steady));
                watches.end_look(at(steady, wall));
            }
        }
    }
}
