//! Following what happens: one reader takes new events from the store and hands them to everybody who follows.
//!
//! A follower that comes later, falls behind or comes back reads for itself what it missed, and is handed the rest. Nobody waits
//! for anybody: who doesn't take what is handed out falls behind alone.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::domain::event::Event;
use crate::nudge::sleep_until;
use crate::rows::events;
use crate::telemetry::ErrorChain;

use super::core::Core;
use super::waiting::Waiting;
use super::{ServiceError, Shared};

/// Batches that a follower may be behind before it reads for itself.
const MAX_BEHIND: usize = 256;
/// Events of one batch.
const MAX_BATCH: usize = 256;
/// The pause after a failed read.
const READ_PAUSE: Duration = Duration::from_secs(1);
/// Between two words that the status is another: it is asked for in answer, and changes all the time.
const STATUS_PAUSE: Duration = Duration::from_millis(200);

/// Hands out what happens.
#[derive(Debug)]
struct Newsroom(broadcast::Sender<Handed>);

impl Default for Newsroom {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BEHIND))
    }
}

/// A value that is handed out.
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
pub enum News {
    /// New events, in order; never empty.
    Events(Arc<[Event]>),
    /// What coordinators say of themselves is different; [`Service::status`](super::Service::status) has it.
    Status,
    /// Of what came after the last event it had seen, some is not kept any more. It goes on after this number.
    Lost { newest: i64 },
}

/// A follower of the events.
pub struct Follower {
    core: Arc<Core>,
    handed: broadcast::Receiver<Handed>,
    /// The last one it has seen.
    after: i64,
    /// Not all up to what is handed out was seen.
    is_behind: bool,
}

/// The events, for all who follow them.
pub struct Events {
    core: Arc<Core>,
    waiting: Waiting,
    newsroom: Newsroom,
}

impl Events {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, waiting, .. } = shared;
        Self { core, waiting, newsroom: Newsroom::default() }
    }

    /// The number of the newest event; 0 before the first.
    pub async fn newest(&self) -> Result<i64, ServiceError> {
        self.core.read(|tx| Ok(events::span(tx)?.newest)).await
    }

    /// Follows what happens after the event with this number, or from now on.
    pub async fn follow(&self, after: Option<i64>) -> Result<Follower, ServiceError> {
        // First of all, so that nothing falls between what is read and what is handed out.
        let handed = self.newsroom.0.subscribe();
        let (after, is_behind) = match after {
            Some(after) => (after, true),
            None => (self.newest().await?, false),
        };
        Ok(Follower { core: Arc::clone(&self.core), handed, after, is_behind })
    }

    /// Hands out what happens, as long as it is polled. Cancel-safe: who follows reads what is missing.
    pub async fn hand_out(&self) -> Infallible {
        let (mut commits, mut reports) =
            (self.waiting.events.listen(), self.waiting.reports.listen());
        let (mut last, mut again_at, mut status_from, mut status_at) =
            (None, None, Instant::now(), None);
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
                            tracing::warn!(error = %ErrorChain(&error), "could not read what happened; will try again");
                            (None, Some(Instant::now() + READ_PAUSE))
                        }
                    };
                }
                () = sleep_until(status_at) => {
                    status_at = None;
                    status_from = Instant::now() + STATUS_PAUSE;
                    // Without followers it is said to nobody.
                    let _ = self.newsroom.0.send(Handed::Status);
                }
                () = reports.woken(), if status_at.is_none() => status_at = Some(status_from),
            }
        }
    }

    /// Hands out what came after `last`, and gives the newest. While nobody follows, nothing is read and nothing is known.
    async fn hand_out_after(&self, last: Option<i64>) -> Result<Option<i64>, ServiceError> {
        if self.newsroom.0.receiver_count() == 0 {
            return Ok(None);
        }
        let Some(mut after) = last else {
            let newest = self.newest().await?;
            // Whoever isn't there yet sees that something came before, and reads it.
            let _ = self.newsroom.0.send(Handed::Events { after: newest, events: Arc::new([]) });
            return Ok(Some(newest));
        };
        loop {
            let read = self.core.read(move |tx| Ok(events::list(tx, after, MAX_BATCH)?));
            let events = read.await?;
            let Some(newest) = events.last().map(|event| event.seq) else {
                return Ok(Some(after));
            };
            let is_all = events.len() < MAX_BATCH;
            let _ = self.newsroom.0.send(Handed::Events { after, events: events.into() });
            after = newest;
            if is_all {
                return Ok(Some(after));
            }
        }
    }
}

impl Follower {
    /// The number after which it goes on.
    pub fn position(&self) -> i64 {
        self.after
    }

    /// Returns the next news. Cancel-safe: the next call returns what this one did not.
    ///
    /// # Errors
    /// When the store can't be read; the next call tries again.
    pub async fn next(&mut self) -> Result<News, ServiceError> {
        loop {
            if self.is_behind {
                match self.catch_up().await? {
                    Some(news) => return Ok(news),
                    None => self.is_behind = false,
                }
            }
            match self.handed.recv().await {
                Ok(Handed::Status) => return Ok(News::Status),
                Ok(Handed::Events { after, .. }) if after > self.after => self.is_behind = true,
                Ok(Handed::Events { events, .. }) => {
                    let n_seen = events.partition_point(|event| event.seq <= self.after);
                    let Some(last) = events[n_seen..].last() else {
                        continue;
                    };
                    self.after = last.seq;
                    return Ok(News::Events(if n_seen == 0 {
                        events
                    } else {
                        events[n_seen..].into()
                    }));
                }
                Err(broadcast::error::RecvError::Lagged(_)) => self.is_behind = true,
                // The sender is there as long as the server.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Returns the news of the store after the last event that was seen; `None` if there is none.
    async fn catch_up(&mut self) -> Result<Option<News>, ServiceError> {
        let after = self.after;
        let read =
            self.core.read(move |tx| Ok((events::span(tx)?, events::list(tx, after, MAX_BATCH)?)));
        let (span, events) = read.await?;
        if span.has_lost_after(self.after) {
            self.after = span.newest;
            return Ok(Some(News::Lost { newest: span.newest }));
        }
        let Some(last) = events.last() else {
            return Ok(None);
        };
        self.after = last.seq;
        Ok(Some(News::Events(events.into())))
    }
}
