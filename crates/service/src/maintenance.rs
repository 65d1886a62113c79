//! The schedule of expiry: the cleanup runs in its interval, and the deadlines of notices and chats
//! are checked when they are due.

mod cleanup;
mod deadlines;
mod deleted;
mod load;
mod retention;

use std::convert::Infallible;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::chats::presence::{Attendances, end_left};
use super::clocks::Clocks;
use super::coordinators::board::CoordinatorBoard;
use super::core::Core;
use super::launches::shims::Shims;
use super::waiting::Waiting;
use super::workspaces::OwnCheckouts;
use super::{Heard, Settings, Shared};
use cleanup::Longest;
use domain::load::Loads;
use runtime::clock;
use runtime::nudge::sleep_until;
use runtime::telemetry::ErrorChain;

/// The background work that depends on time.
pub struct Maintenance {
    core: Arc<Core>,
    heard: Heard,
    waiting: Waiting,
    clocks: Arc<Clocks>,
    shims: Arc<Shims>,
    attendances: Arc<Attendances>,
    checkouts: OwnCheckouts,
    coordinators: Arc<CoordinatorBoard>,
    /// The time when kept states were given up last, in milliseconds.
    expired_at: AtomicI64,
    longest: Longest,
    loads: Mutex<Loads>,
}

impl Maintenance {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            core: shared.core,
            heard: shared.heard,
            waiting: shared.waiting,
            clocks: shared.clocks,
            shims: shared.shims,
            attendances: shared.attendances,
            checkouts: shared.checkouts,
            coordinators: shared.coordinators,
            expired_at: AtomicI64::new(i64::MIN),
            longest: Longest::default(),
            loads: Mutex::default(),
        }
    }

    /// Notes time-outs that are about to be replaced. Claims that were made with them keep them.
    pub(super) fn note_timeouts(&self, settings: &Settings) {
        self.longest.with(settings);
    }

    /// Ends expired things, as long as it is polled. Cancel-safe: each change is stored as a whole.
    pub async fn look_after(&self) -> Infallible {
        let mut settings = self.core.settings();
        let mut ticks = ticks_of(settings.session.cleanup_interval);
        // A coordinator reports the usage of running agents within the first minute.
        let minute = Duration::from_mins(1);
        let mut minutes = tokio::time::interval_at(clock::now() + minute, minute);
        minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deadlines = self.waiting.deadlines.listen();
        let mut departures = self.attendances.departures.listen();
        let mut next_at: Option<Instant> = None;
        loop {
            tokio::select! {
                // The order is fixed, so that a simulated history is the same each time.
                biased;
                _ = ticks.tick() => {
                    if let Err(error) = self.cleanup().await {
                        tracing::warn!(error = %ErrorChain(&error), "the periodic cleanup failed; will try again");
                    }
                }
                _ = minutes.tick() => {
                    if let Err(error) = self.note_load().await {
                        let error = ErrorChain(&error);
                        tracing::warn!(%error, "could not note the load of this minute");
                    }
                    continue;
                }
                () = deadlines.woken() => {
                    let newest = self.core.settings();
                    if Arc::ptr_eq(&settings, &newest) {
                        // Nothing new is overdue earlier. A thousand chats that open must not cause
                        // a thousand passes over all chats.
                        let soonest = clock::now() + newest.notice.grace.min(newest.chat.idle_timeout);
                        next_at = Some(next_at.map_or(soonest, |at| at.min(soonest)));
                        continue;
                    }
                    if settings.session.cleanup_interval != newest.session.cleanup_interval {
                        ticks = ticks_of(newest.session.cleanup_interval);
                    }
                    settings = newest;
                }
                () = sleep_until(next_at) => {}
                () = departures.woken() => continue,
                () = sleep_until(self.attendances.next_end()) => {
                    end_left(&self.core, &self.heard, &self.attendances).await;
                    continue;
                }
            }
            next_at = match self.end_overdue().await {
                Ok(next) => next.map(|after| clock::now() + after),
                Err(error) => {
                    tracing::warn!(error = %ErrorChain(&error), "could not end overdue launches; will try again");
                    None
                }
            };
        }
    }
}

fn ticks_of(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
