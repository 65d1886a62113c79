//! The stream of events: one reader takes new events from the store and sends them to all
//! followers.
//!
//! A follower that begins later, falls behind or reconnects reads the missing events itself, and
//! gets the rest from the reader. Followers do not wait for each other: a slow follower falls
//! behind alone.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use domain::event::Event;
use runtime::clock;
use runtime::nudge::sleep_until;
use runtime::telemetry::ErrorChain;
use store::rows::events;

use super::core::Core;
use super::waiting::Waiting;
use super::{ServiceError, Shared};

/// The number of batches that a follower may be behind before it reads the store itself.
const MAX_BEHIND: usize = 256;
/// The number of events in one batch.
const MAX_BATCH: usize = 256;
/// The pause after a failed read.
const READ_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two notices of a changed status. Followers answer each notice with a request,
/// and the status changes all the time.
const STATUS_PAUSE: Duration = Duration::from_millis(200);

/// Sends events to followers.
#[derive(Debug)]
struct EventHub(broadcast::Sender<Handed>);

impl Default for EventHub {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BEHIND))
    }
}

/// A value that followers get.
#[derive(Debug, Clone)]
enum Handed {
    /// All events after this number, up to the last one of `events`.
    Events {
        after: i64,
        events: Arc<[Event]>,
    },
    Status,
}

/// The news for a follower.
#[derive(Debug, Clone)]
pub enum EventUpdate {
    /// New events, in order; never empty.
    Events(Arc<[Event]>),
    /// The status of coordinators has changed; [`Service::status`](super::Service::status) has it.
    Status,
    /// Some events after the last event that the follower saw are not kept any more. It goes on
    /// after this number.
    Lost { newest: i64 },
}

/// A follower of the events.
pub struct Follower {
    core: Arc<Core>,
    handed: broadcast::Receiver<Handed>,
    /// The number of the last event that the follower has seen.
    after: i64,
    /// The follower has not seen all events before those that the reader sends.
    is_behind: bool,
}

/// The events, for all followers.
pub struct Events {
    core: Arc<Core>,
    waiting: Waiting,
    hub: EventHub,
}

impl Events {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, waiting, .. } = shared;
        Self { core, waiting, hub: EventHub::default() }
    }

    /// Returns the number of the newest event; 0 before the first event.
    pub async fn newest(&self) -> Result<i64, ServiceError> {
        self.core.read(|tx| Ok(events::span(tx)?.newest)).await
    }

    /// Returns a follower of the events after this number, or of the events from now on.
    pub async fn follow(&self, after: Option<i64>) -> Result<Follower, ServiceError> {
        // The follower subscribes before it reads, so that it misses no event in between.
        let handed = self.hub.0.subscribe();
        let (after, is_behind) = match after {
            Some(after) => (after, true),
            None => (self.newest().await?, false),
        };
        Ok(Follower { core: Arc::clone(&self.core), handed, after, is_behind })
    }

    /// Sends new events to followers, as long as it is polled. Cancel-safe: followers read missing
    /// events themselves.
    pub async fn hand_out(&self) -> Infallible {
        let mut commits = self.waiting.events.listen();
        let mut reports = self.waiting.reports.listen();
        let mut last = None;
        let mut again_at = None;
        let mut status_from = clock::now();
        let mut status_at = None;
        loop {
            let news = async {
                tokio::select! {
                    () = commits.woken() => {}
                    () = sleep_until(again_at) => {}
                }
            };
            tokio::select! {
                () = news => {
                    (last, again_at) = match self.hand_out_after(last).await {
                        Ok(last) => (last, None),
                        Err(error) => {
                            tracing::warn!(error = %ErrorChain(&error), "could not read new events; will try again");
                            (None, Some(clock::now() + READ_PAUSE))
                        }
                    };
                }
                () = sleep_until(status_at) => {
                    status_at = None;
                    status_from = clock::now() + STATUS_PAUSE;
                    // Without followers, the notice is dropped.
                    let _ = self.hub.0.send(Handed::Status);
                }
                () = reports.woken(), if status_at.is_none() => status_at = Some(status_from),
            }
        }
    }

    /// Sends the events after `last`, and returns the newest number. While there is no follower, it
    /// reads nothing and returns `None`.
    async fn hand_out_after(&self, last: Option<i64>) -> Result<Option<i64>, ServiceError> {
        if self.hub.0.receiver_count() == 0 {
            return Ok(None);
        }
        let Some(mut after) = last else {
            let newest = self.newest().await?;
            // A follower that is behind sees from this that there were events, and reads them.
            let _ = self.hub.0.send(Handed::Events { after: newest, events: Arc::new([]) });
            return Ok(Some(newest));
        };
        loop {
            let read = self.core.read(move |tx| Ok(events::list(tx, after, MAX_BATCH)?));
            let events = read.await?;
            let Some(newest) = events.last().map(|event| event.seq) else {
                return Ok(Some(after));
            };
            let is_all = events.len() < MAX_BATCH;
            let _ = self.hub.0.send(Handed::Events { after, events: events.into() });
            after = newest;
            if is_all {
                return Ok(Some(after));
            }
        }
    }
}

impl Follower {
    /// Returns the number after which the follower goes on.
    pub fn position(&self) -> i64 {
        self.after
    }

    /// Returns the next news. Cancel-safe: the next call returns the news that a dropped call did
    /// not.
    ///
    /// # Errors
    /// A failure to read the store. The next call tries again.
    pub async fn next(&mut self) -> Result<EventUpdate, ServiceError> {
        loop {
            if self.is_behind {
                match self.catch_up().await? {
                    Some(news) => return Ok(news),
                    None => self.is_behind = false,
                }
            }
            match self.handed.recv().await {
                Ok(Handed::Status) => return Ok(EventUpdate::Status),
                Ok(Handed::Events { after, .. }) if after > self.after => self.is_behind = true,
                Ok(Handed::Events { events, .. }) => {
                    let n_seen = events.partition_point(|event| event.seq <= self.after);
                    let Some(last) = events[n_seen..].last() else {
                        continue;
                    };
                    self.after = last.seq;
                    return Ok(EventUpdate::Events(if n_seen == 0 {
                        events
                    } else {
                        events[n_seen..].into()
                    }));
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.is_behind = true,
                // The sender lives as long as the server.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Returns the news of the store after the last event that was seen; `None` if there is none.
    async fn catch_up(&mut self) -> Result<Option<EventUpdate>, ServiceError> {
        let after = self.after;
        let read =
            self.core.read(move |tx| Ok((events::span(tx)?, events::list(tx, after, MAX_BATCH)?)));
        let (span, events) = read.await?;
        if span.has_lost_after(self.after) {
            self.after = span.newest;
            return Ok(Some(EventUpdate::Lost { newest: span.newest }));
        }
        let Some(last) = events.last() else {
            return Ok(None);
        };
        self.after = last.seq;
        Ok(Some(EventUpdate::Events(events.into())))
    }
}
