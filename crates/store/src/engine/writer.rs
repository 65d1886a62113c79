//! The thread that writes: it commits closures in groups, and repeats a group whose connection ends.
#![allow(clippy::disallowed_methods, reason = "the thread of the writer blocks")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use domain::store_state::{Access, Step};

use super::super::StoreError;
use super::super::db::{BoxError, DbError};
use super::super::meter::Meter;
use super::super::transaction::Effect;
use super::{Connection, Ran, WriteJob};

/// The number of closures in one group. The first of them does not wait long for the others.
const MAX_GROUP: usize = 128;
/// A closure that takes longer than this holds up all others, and is logged.
const SLOW: Duration = Duration::from_millis(20);
/// The time between two log lines about slow closures. On a slow database, each of them is slow.
const SLOW_LOG_INTERVAL: Duration = Duration::from_mins(1);
/// The time without a connection after which callers get an error instead of waiting for it.
const LONGEST_OUTAGE: Duration = Duration::from_secs(20);
/// The pause between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two checks of its connection by the writer, with or without work.
const CARE_INTERVAL: Duration = Duration::from_secs(5);

/// Runs groups of closures on one connection.
pub(super) struct Writer {
    pub(super) connection: Box<dyn Connection>,
    /// The database failed, and the state of the connection is unknown.
    is_suspect: bool,
    /// The number of the current group.
    group: u64,
    /// The last group whose commit has an unknown outcome, and its effects.
    in_doubt: Option<(u64, Vec<Effect>)>,
    /// The time of the first failure since the last commit, if the connection was lost.
    lost_since: Option<Instant>,
    slow_log: SlowLog,
    pub(super) meter: Arc<Meter>,
}

/// Limits the log lines about slow closures.
#[derive(Debug, Default)]
struct SlowLog {
    logged_at: Option<Instant>,
    /// The number of slow closures since the last line.
    n_more: u64,
}

impl SlowLog {
    /// Notes a slow closure. If it is to be logged, it returns how many were not since the last
    /// line.
    fn note(&mut self, now: Instant) -> Option<u64> {
        if self.logged_at.is_some_and(|at| now < at + SLOW_LOG_INTERVAL) {
            self.n_more += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.n_more))
    }
}

/// The result of one pass over a group.
enum Pass {
    /// All changes to be kept are in the open transaction. Their effects are here.
    Made(Vec<Effect>),
    /// A closure must be undone, and no savepoint protects the others.
    Undo,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    Off,
    /// The pass sets a savepoint before each closure.
    On,
}

impl Writer {
    pub(super) fn new(connection: Box<dyn Connection>, meter: Arc<Meter>) -> Self {
        meter.connected_to(connection.database());
        Self {
            connection,
            is_suspect: false,
            group: 0,
            in_doubt: None,
            lost_since: None,
            slow_log: SlowLog::default(),
            meter,
        }
    }

    pub(super) fn serve(&mut self, waiting: &mpsc::Receiver<Box<dyn WriteJob>>) {
        let mut look_at = Instant::now() + CARE_INTERVAL;
        let mut has_worked = false;
        let mut is_resting = false;
        loop {
            match waiting.recv_timeout(look_at.saturating_duration_since(Instant::now())) {
                Ok(first) => {
                    let mut group = vec![first];
                    group.extend(waiting.try_iter().take(MAX_GROUP - 1));
                    self.make(group);
                    (has_worked, is_resting) = (true, false);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() < look_at {
                continue;
            }
            self.connection.look_after();
            if self.lost_since.is_some() {
                self.recover();
            }
            if !has_worked && !is_resting {
                self.connection.rest();
                is_resting = true;
            }
            has_worked = false;
            look_at = Instant::now() + CARE_INTERVAL;
        }
    }

    /// Runs a group, commits it and answers it. While the database cannot be reached, it tries
    /// again for [`LONGEST_OUTAGE`].
    pub(super) fn make(&mut self, mut group: Vec<Box<dyn WriteJob>>) {
        let mut failures: Vec<Option<DbError>> = Vec::new();
        self.group += 1;
        let mut began_at = Instant::now();
        let mut committed = self.try_make(&mut group, &mut failures);
        while let Err(error @ DbError::Lost(_)) = &committed {
            self.meter.fails(Access::Write, error);
            let lost_since = *self.lost_since.get_or_insert_with(Instant::now);
            let Some(pause) = pause_before_retry(lost_since.elapsed()) else { break };
            self.abandon();
            thread::sleep(pause);
            began_at = Instant::now();
            committed = self.try_make(&mut group, &mut failures);
        }
        match committed {
            Ok(effects) => {
                self.lost_since = None;
                self.meter.committed(began_at);
                self.publish(effects);
                for (job, failure) in group.into_iter().zip(failures) {
                    job.answer(failure.map(|error| unwritable(error.into())));
                }
            }
            Err(error) => {
                self.abandon();
                self.meter.fails(Access::Write, &error);
                let in_doubt =
                    self.in_doubt.as_ref().is_some_and(|(group, _)| *group == self.group);
                let doubt = if in_doubt { "; the database may have made the change" } else { "" };
                for job in group {
                    job.answer(Some(unwritable(format!("{error}{doubt}").into())));
                }
            }
        }
    }

    /// Connects again after a loss although nothing waits, so that it is known whether the database
    /// is back.
    fn recover(&mut self) {
        match self.reconnect() {
            Ok(effects) => {
                self.lost_since = None;
                self.meter.works(Access::Write);
                // Its callers got an error. Others hear of its changes late.
                if let Some(effects) = effects {
                    self.publish(effects);
                }
            }
            Err(error) => self.meter.fails(Access::Write, &error),
        }
    }

    /// Replaces a connection that has failed. Returns the effects of the current group if its
    /// commit, whose outcome was unknown, was made.
    fn reconnect(&mut self) -> Result<Option<Vec<Effect>>, DbError> {
        if !self.is_suspect {
            return Ok(None);
        }
        let is_committed = self.connection.reconnect()?;
        self.is_suspect = false;
        self.meter.connected_to(self.connection.database());
        if let (true, Some((group, effects))) = (is_committed, self.in_doubt.take()) {
            if group == self.group {
                return Ok(Some(effects));
            }
            // Its callers got an error. Others hear of its changes late.
            self.publish(effects);
        }
        Ok(None)
    }

    /// Gives up the transaction. The next one begins on a new connection.
    fn abandon(&mut self) {
        self.connection.rollback();
        self.is_suspect = true;
    }

    fn publish(&self, effects: Vec<Effect>) {
        self.meter.count();
        for effect in effects {
            // A panic has been printed; it must not end the only thread that writes.
            let _ = catch_unwind(AssertUnwindSafe(effect));
        }
    }

    /// Commits the group and returns its effects. `failures` gets the failed statement that a
    /// closure ignored, for each closure.
    fn try_make(
        &mut self,
        group: &mut [Box<dyn WriteJob>],
        failures: &mut Vec<Option<DbError>>,
    ) -> Result<Vec<Effect>, DbError> {
        if let Some(effects) = self.reconnect()? {
            return Ok(effects);
        }
        let effects = match self.pass(group, failures, Guard::Off)? {
            Pass::Made(effects) => effects,
            // Savepoints cost more than the few closures that need them.
            Pass::Undo => {
                self.connection.rollback();
                match self.pass(group, failures, Guard::On)? {
                    Pass::Made(effects) => effects,
                    Pass::Undo => unreachable!("a guarded pass undoes by itself"),
                }
            }
        };
        self.meter.step(Step::Commit);
        match self.connection.commit() {
            Ok(()) => Ok(effects),
            Err(error) => {
                let is_unknown = matches!(error, DbError::Lost(_));
                self.in_doubt = is_unknown.then_some((self.group, effects));
                Err(error)
            }
        }
    }

    fn pass(
        &mut self,
        group: &mut [Box<dyn WriteJob>],
        failures: &mut Vec<Option<DbError>>,
        guard: Guard,
    ) -> Result<Pass, DbError> {
        failures.clear();
        let mut all_effects = Vec::new();
        self.meter.step(Step::Lock);
        let meter = Arc::clone(&self.meter);
        self.connection.begin(Box::new(move || meter.step(Step::Statements)))?;
        for job in group {
            if guard == Guard::On {
                self.connection.savepoint()?;
            }
            let began_at = Instant::now();
            let Ran { is_kept, has_written, effects, failure } = job.run(&mut *self.connection);
            // The first closure may have waited for the lock.
            let took = began_at.elapsed().min(self.meter.step_lasts());
            if took > SLOW
                && let Some(n_more) = self.slow_log.note(Instant::now())
            {
                let duration_ms = domain::time::millis(took);
                tracing::warn!(
                    place = %job.place(), duration_ms, n_more, "a transaction held up all others"
                );
            }
            if let Some(error @ (DbError::Database(_) | DbError::Lost(_))) = failure {
                return Err(error);
            }
            if is_kept && failure.is_none() {
                all_effects.extend(effects);
            } else if has_written || failure.is_some() {
                // After a failed statement, PostgreSQL refuses all others until it is undone.
                match guard {
                    Guard::Off => return Ok(Pass::Undo),
                    Guard::On => self.connection.undo_to_savepoint()?,
                }
            }
            // An error of the closure says more than the statement that led to it.
            failures.push(failure.filter(|_| is_kept));
        }
        Ok(Pass::Made(all_effects))
    }
}

/// Returns the pause before the next attempt of a group or a read while the database cannot be
/// reached, or `None` if callers have waited long enough. Each later one is tried once.
pub(super) fn pause_before_retry(lost_for: Duration) -> Option<Duration> {
    (lost_for <= LONGEST_OUTAGE).then_some(RECONNECT_INTERVAL)
}

fn unwritable(source: BoxError) -> StoreError {
    StoreError::Unavailable { action: "write to", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the attempts of a group that comes `lost_for` after the connection was
    /// lost.
    fn attempts(lost_for: Duration) -> Vec<Duration> {
        let next = |at: &Duration| pause_before_retry(*at).map(|pause| *at + pause);
        std::iter::successors(Some(lost_for), next).collect()
    }

    #[test]
    fn slow_closures_have_one_line_a_minute() {
        let mut log = SlowLog::default();
        let start = Instant::now();
        let mut lines = Vec::new();
        for second in 0..150 {
            let n_more = log.note(start + Duration::from_secs(second));
            lines.extend(n_more.map(|n_more| (second, n_more)));
        }
        assert_eq!(lines, [(0, 0), (60, 59), (120, 59)]);
    }

    #[test]
    fn a_group_is_tried_again_until_its_callers_have_waited_long_enough() {
        let of_first = attempts(Duration::ZERO);
        assert_eq!(of_first.len(), 202);
        assert_eq!(*of_first.last().unwrap(), LONGEST_OUTAGE + RECONNECT_INTERVAL);
        let within = Duration::from_secs(19);
        assert_eq!(attempts(within).last(), of_first.last(), "all have the same deadline");
        let a_minute = Duration::from_mins(1);
        assert_eq!(attempts(a_minute), [a_minute], "a later one is tried once");
    }
}
