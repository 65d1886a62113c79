//! Faults of a history's store: writes that fail before or after their commit, a disk without
//! space, and slow writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use store::rows::Store;
use store::{DbError, open};
use tokio::time::Instant;

use super::world::{Chronicle, Dice};
use crate::store::observed::{Observed, Observer};

/// The share of faulty writes, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Illness {
    /// The write is not committed.
    pub fails: u64,
    /// The write is committed, but the answer is an error.
    pub unanswered: u64,
    /// The write takes seconds, and later ones wait.
    pub slow: u64,
    /// No row can be written.
    pub is_full: bool,
}

/// The time after which the store answers again, and all callers have tried again.
const RECOVERY: Duration = Duration::from_secs(30);
/// The longest duration of one write, in milliseconds.
const SLOWEST: u64 = 3_000;

/// The health of the store.
pub struct Health(Mutex<State>, Arc<Chronicle>);

struct State {
    illness: Illness,
    until: Instant,
    /// The time when the accepted writes are made.
    busy_until: Instant,
    dice: Dice,
}

impl Health {
    pub fn new(seed: u64, chronicle: Arc<Chronicle>) -> Arc<Self> {
        let (now, illness) = (Instant::now(), Illness::default());
        let dice = Dice::new(seed, 4);
        let state = State { illness, until: now, busy_until: now, dice };
        Arc::new(Self(Mutex::new(state), chronicle))
    }

    pub fn fall_ill(&self, illness: Illness, lasts: Duration) {
        let mut state = self.0.lock().unwrap();
        (state.illness, state.until) = (illness, Instant::now() + lasts);
    }

    pub fn recover(&self) {
        self.0.lock().unwrap().until = Instant::now();
    }

    /// Returns whether all work that a fault delayed is done.
    pub fn is_settled(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.until.max(state.busy_until) + RECOVERY < Instant::now()
            || state.illness == Illness::default()
    }

    /// Returns an empty store with these faults.
    pub fn store(self: &Arc<Self>) -> Store {
        let health = Patient(self.clone());
        Store::new(open::memory_through(|inner| Box::new(Observed(inner, health))).unwrap())
    }

    /// Returns whether this fault hits the next write.
    fn befalls(&self, percent: impl FnOnce(&Illness) -> u64) -> bool {
        let mut state = self.0.lock().unwrap();
        if Instant::now() >= state.until {
            return false;
        }
        let percent = percent(&state.illness);
        state.dice.percent(percent)
    }

    fn delay(&self) -> Option<Duration> {
        let is_slow = self.befalls(|illness| illness.slow);
        let (now, mut state) = (Instant::now(), self.0.lock().unwrap());
        if !is_slow && state.busy_until < now {
            return None;
        }
        // The writes come one after the other, whatever the order of timers is.
        if is_slow {
            self.1.note(|| format!("store  {IS_SLOW}"));
        }
        let more = if is_slow { state.dice.millis(1, SLOWEST) } else { Duration::ZERO };
        state.busy_until = state.busy_until.max(now) + more + Duration::from_millis(1);
        Some(state.busy_until - now)
    }
}

pub const IS_FULL: &str = "the disk is full";
pub const FAILS: &str = "the commit failed";
pub const IS_UNANSWERED: &str = "the answer to the commit is lost";
pub const IS_SLOW: &str = "a write is slow";

struct Patient(Arc<Health>);

impl Patient {
    fn answer(&self, is_fault: bool, what: &str) -> Result<(), DbError> {
        if is_fault {
            self.0.1.note(|| format!("store  {what}"));
            return Err(DbError::Database(what.into()));
        }
        Ok(())
    }
}

impl Observer for Patient {
    fn before_change(&mut self) -> Result<(), DbError> {
        let is_full = self.0.befalls(|illness| if illness.is_full { 100 } else { 0 });
        self.answer(is_full, IS_FULL)
    }

    fn before_commit(&mut self) -> Result<(), DbError> {
        let fails = self.0.befalls(|illness| illness.fails);
        self.answer(fails, FAILS)
    }

    fn after_commit(&mut self) -> Result<(), DbError> {
        let is_lost = self.0.befalls(|illness| illness.unanswered);
        self.answer(is_lost, IS_UNANSWERED)
    }

    fn delay(&mut self) -> Option<Duration> {
        self.0.delay()
    }
}
