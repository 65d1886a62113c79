//! Measures how the database answers, in the threads that run transactions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::store_state::{Access, Database, Spread, Step, StoreFailure, StoreState};
use machine::locks::lock;
use runtime::clock;

use super::db::DbError;

/// The number of durations of each kind that are kept.
const N_KEPT: usize = 64;
/// An older duration says nothing about the present.
const RECENT: Duration = Duration::from_mins(5);

/// The measurements of one database. Its threads share them.
#[derive(Debug, Default)]
pub(super) struct Meter {
    n_transactions: AtomicU64,
    measured: Mutex<Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    database: Database,
    round_trips: RecentDurations,
    lock_waits: RecentDurations,
    transactions: RecentDurations,
    reads_fail: Option<Failing>,
    writes_fail: Option<Failing>,
    step: Option<(Step, Instant)>,
}

/// The last durations, in a ring.
#[derive(Debug, Default)]
struct RecentDurations {
    kept: Vec<(Instant, Duration)>,
    next: usize,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    error: String,
}

impl RecentDurations {
    fn add(&mut self, at: Instant, duration: Duration) {
        if self.kept.len() < N_KEPT {
            self.kept.push((at, duration));
        } else {
            self.kept[self.next] = (at, duration);
        }
        self.next = (self.next + 1) % N_KEPT;
    }

    fn spread(&self, now: Instant) -> Option<Spread> {
        let recent = self.kept.iter().filter(|(at, _)| now.saturating_duration_since(*at) < RECENT);
        Spread::of(recent.map(|(_, duration)| *duration).collect())
    }
}

impl Measured {
    const fn failing(&mut self, access: Access) -> &mut Option<Failing> {
        match access {
            Access::Read => &mut self.reads_fail,
            Access::Write => &mut self.writes_fail,
        }
    }
}

impl Meter {
    /// Notes the database of a new connection.
    pub(super) fn connected_to(&self, database: Database) {
        lock(&self.measured).database = database;
    }

    /// Notes that a read began, which took a round trip.
    pub(super) fn round_trip(&self, took: Duration) {
        lock(&self.measured).round_trips.add(clock::unpaused(), took);
    }

    /// Notes that the writer's transaction comes to this step.
    pub(super) fn step(&self, step: Step) {
        let now = clock::unpaused();
        let mut measured = lock(&self.measured);
        let before = measured.step.replace((step, now));
        if let (Step::Statements, Some((Step::Lock, began_at))) = (step, before) {
            measured.lock_waits.add(now, now.saturating_duration_since(began_at));
        }
    }

    /// Returns for how long the writer's transaction has been at its step.
    pub(super) fn step_lasts(&self) -> Duration {
        let step = lock(&self.measured).step;
        step.map_or(Duration::ZERO, |(_, at)| clock::unpaused().saturating_duration_since(at))
    }

    /// Counts a commit.
    pub(super) fn count(&self) {
        self.n_transactions.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the end of a transaction that began at `began_at` and was committed.
    pub(super) fn committed(&self, began_at: Instant) {
        let now = clock::unpaused();
        let mut measured = lock(&self.measured);
        measured.step = None;
        measured.writes_fail = None;
        measured.transactions.add(now, now.saturating_duration_since(began_at));
    }

    /// Notes that a transaction, or a new connection, has worked.
    pub(super) fn works(&self, access: Access) {
        *lock(&self.measured).failing(access) = None;
    }

    /// Notes that the database failed. A statement that is wrong is no such failure.
    pub(super) fn fails(&self, access: Access, error: &DbError) {
        let mut measured = lock(&self.measured);
        if access == Access::Write {
            measured.step = None;
        }
        if matches!(error, DbError::Statement(_)) {
            return;
        }
        let error = error.to_string();
        match measured.failing(access) {
            Some(failing) => failing.error = error,
            none => *none = Some(Failing { since: clock::unpaused(), error }),
        }
    }

    /// Returns for how long reads have failed.
    pub(super) fn reads_fail_for(&self) -> Duration {
        let since = lock(&self.measured).reads_fail.as_ref().map(|failing| failing.since);
        since.map_or(Duration::ZERO, |at| clock::unpaused().saturating_duration_since(at))
    }

    pub(super) fn n_transactions(&self) -> u64 {
        self.n_transactions.load(Ordering::Relaxed)
    }

    /// Returns the state of the database.
    pub(super) fn state(&self) -> StoreState {
        let now = clock::unpaused();
        let measured = lock(&self.measured);
        let failures =
            [(Access::Read, &measured.reads_fail), (Access::Write, &measured.writes_fail)];
        let failure = failures.into_iter().find_map(|(access, failing)| {
            let Failing { since, error } = failing.as_ref()?;
            let lasts = now.saturating_duration_since(*since);
            Some(StoreFailure { access, lasts, error: error.clone() })
        });
        StoreState {
            database: measured.database.clone(),
            round_trip: measured.round_trips.spread(now),
            lock_wait: measured.lock_waits.spread(now),
            transaction: measured.transactions.spread(now),
            failure,
            step: measured.step.map(|(step, at)| (step, now.saturating_duration_since(at))),
            n_transactions: self.n_transactions(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_durations_count() {
        let mut recent = RecentDurations::default();
        let now = Instant::now();
        recent.add(now, Duration::from_secs(9));
        for _ in 0..N_KEPT {
            recent.add(now, Duration::from_secs(1));
        }
        let spread = recent.spread(now).unwrap();
        assert_eq!((spread.median, spread.max), (Duration::from_secs(1), Duration::from_secs(1)));
        assert_eq!(recent.spread(now + RECENT), None);
    }

    #[test]
    fn a_failure_lasts_until_something_works() {
        let meter = Meter::default();
        meter.fails(Access::Write, &DbError::Statement("a wrong statement".into()));
        assert_eq!(meter.state().failure, None);
        meter.fails(Access::Write, &DbError::Lost("first".into()));
        meter.fails(Access::Write, &DbError::Lost("second".into()));
        meter.works(Access::Read);
        let failure = meter.state().failure.unwrap();
        assert_eq!((failure.access, failure.error.as_str()), (Access::Write, "second"));
        meter.committed(Instant::now());
        assert_eq!(meter.state().failure, None);
    }

    #[test]
    fn the_wait_for_the_lock_ends_with_the_first_statement() {
        let meter = Meter::default();
        meter.step(Step::Lock);
        assert!(matches!(meter.state().step, Some((Step::Lock, _))));
        meter.step(Step::Statements);
        meter.step(Step::Commit);
        meter.committed(Instant::now());
        let state = meter.state();
        assert!(state.lock_wait.is_some() && state.transaction.is_some() && state.step.is_none());
    }
}
