//! The cleanup every `session.cleanup_interval`. It ends silent sessions without a process of ours,
//! sessions past the maximum, and claims without a process.
//!
//! A time-out never frees a slot whose process may live: a launch with a process is only *wanted*
//! to stop, and ends with its process.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::launch::{LapseLimits, LaunchEvent, StopReason};
use domain::session::SessionEndReason;
use domain::stopwatch::AtFirst;
use domain::{Launch, LaunchId, LaunchState, Session, SessionId, Timestamp};
use runtime::clock;
use store::rows::{launches, sessions};

use super::Maintenance;
use crate::clocks::{Look, Subject};
use crate::credentials;
use crate::launches::accounts;
use crate::launches::change::{happen, want_stop};
use crate::{ServiceError, Settings};
use runtime::telemetry::ErrorChain;

/// The extra time beyond all time-outs for a claim without a reported process.
const CLAIM_MARGIN: Duration = Duration::from_secs(30);

/// The time between two looks for kept states to give up, in milliseconds.
const BETWEEN_EXPIRIES: i64 = 60 * 60 * 1_000;

/// The longest times for a start and for a stop in this run of the server, in milliseconds. A claim
/// keeps the time that it was made with.
#[derive(Debug, Default)]
pub(crate) struct Longest {
    start: AtomicU64,
    stop: AtomicU64,
}

impl Longest {
    /// Returns the longest times, including those of `settings`.
    pub(crate) fn with(&self, settings: &Settings) -> (Duration, Duration) {
        let longest = |all: &AtomicU64, one: Duration| {
            let one = domain::time::millis(one);
            Duration::from_millis(all.fetch_max(one, Ordering::Relaxed).max(one))
        };
        (longest(&self.start, settings.start.timeout), longest(&self.stop, settings.stop.timeout))
    }
}

impl Maintenance {
    /// Ends expired sessions and launches, and stores the time of the last call of each session.
    pub async fn cleanup(&self) -> Result<(), ServiceError> {
        let began = self.clocks.moment();
        let read = self.core.read(|tx| Ok((sessions::list_open(tx)?, launches::list_open(tx)?)));
        let (sessions, open) = read.await?;
        let ids: HashSet<&LaunchId> = open.iter().map(|launch| &launch.id).collect();
        self.heard.activities.keep_only(|id| ids.contains(id));
        self.shims.keep_only(|id| ids.contains(id));
        self.coordinators.forget_retired(&open, self.core.now());
        for launch in open {
            // A launch that cannot be ended does not keep the others from it.
            if let Err(error) = self.expire(&launch, &sessions).await {
                tracing::warn!(launch_id = %launch.id, error = %ErrorChain(&error), "could not end a launch whose time is over");
            }
        }
        self.clocks.end_look(Look::Cleanup, began);
        accounts::correct(&self.core).await?;
        credentials::forget_old(&self.core).await?;
        self.write_down_activity().await?;
        self.give_up_kept_states().await;
        self.forget_the_past().await
    }

    /// Removes the kept states that people have not wanted for long, at most once an hour.
    async fn give_up_kept_states(&self) {
        let Some(checkouts) = self.checkouts.get() else {
            return;
        };
        let now = self.core.now();
        let last = self.expired_at.load(Ordering::Relaxed);
        if now.as_millis().saturating_sub(last) < BETWEEN_EXPIRIES {
            return;
        }
        self.expired_at.store(now.as_millis(), Ordering::Relaxed);
        match checkouts.keep.expire(now).await {
            Ok(0) => {}
            Ok(n_refs) => tracing::info!(n_refs, "gave up kept states that people did not want"),
            Err(error) => {
                let error = ErrorChain(&error);
                tracing::warn!(%error, "could not give up kept states; will try again in an hour");
            }
        }
    }

    async fn expire(&self, launch: &Launch, sessions: &[Session]) -> Result<(), ServiceError> {
        if self.has_lapsed(launch) {
            let event = LaunchEvent::ClaimLapsed { at: self.core.now() };
            return happen(&self.core, &self.heard, &launch.id, &[event]).await;
        }
        let LaunchState::Running { session } = &launch.state else {
            return Ok(());
        };
        let authenticated_at = launch.authenticated_at.unwrap_or(launch.claimed_at);
        // The coordinator measures the age of its processes, also over restarts of this server.
        // This check is for a coordinator that does not.
        let at_first = if launch.is_kept() { AtFirst::Begin } else { AtFirst::Believe };
        let lasted = self.clocks.lasted(
            Look::Cleanup,
            Subject::Session(launch.id.clone()),
            authenticated_at,
            at_first,
        );
        let is_too_old = lasted > self.core.settings().session.max_timeout;
        if launch.is_kept() {
            if is_too_old {
                tracing::info!(launch_id = %launch.id, "session exceeded its maximum; stopping its agent");
                want_stop(&self.core, &self.heard, &launch.id, StopReason::SessionMaximum).await?;
            }
            return Ok(());
        }
        let Some(session) = sessions.iter().find(|open| open.id == *session) else {
            return Ok(());
        };
        let idle = self.heard.calls.idle_for(&session.id).unwrap_or_else(|| {
            let subject = Subject::Silence(session.id.clone(), session.last_seen_at);
            self.clocks.lasted(Look::Cleanup, subject, session.last_seen_at, AtFirst::Believe)
        });
        if is_too_old || idle > self.core.settings().session.default_timeout {
            self.expire_session(&launch.id).await?;
        }
        Ok(())
    }

    /// Returns whether the process of this claim cannot exist any more. After a restart of the
    /// server, the claim has all its time again.
    fn has_lapsed(&self, launch: &Launch) -> bool {
        // The settings that the claim was made with may be longer than the present ones.
        let (start, stop) = self.longest.with(&self.core.settings());
        let start = match launch.state {
            LaunchState::Starting { deadline } => start.max(deadline.since(launch.claimed_at)),
            _ => start,
        };
        let claim = Subject::Claim(launch.id.clone());
        let claimed_for =
            self.clocks.lasted(Look::Cleanup, claim, launch.claimed_at, AtFirst::Begin);
        let stopping_for = match launch.state {
            LaunchState::Stopping { stop_at, .. } => self.clocks.lasted(
                Look::Cleanup,
                Subject::Ladder(launch.id.clone()),
                stop_at,
                AtFirst::Begin,
            ),
            _ => Duration::ZERO,
        };
        launch.has_lapsed(
            LapseLimits { start, stop, margin: CLAIM_MARGIN },
            claimed_for,
            stopping_for,
        )
    }

    async fn expire_session(&self, launch: &LaunchId) -> Result<(), ServiceError> {
        let id = launch.clone();
        let inputs = self.heard.inputs(&self.core);
        self.core
            .write(move |tx| {
                let Some(launch) = launches::get(tx, &id)?.filter(Launch::is_open) else {
                    return Ok(());
                };
                let event = LaunchEvent::SessionExpired { at: tx.now() };
                if launch.clone().on(&event).is_err() {
                    return Ok(());
                }
                inputs.end_sessions(tx, &launch.id, SessionEndReason::Expired)?;
                Ok(inputs.happen(tx, &launch, &[event])?)
            })
            .await
    }

    async fn write_down_activity(&self) -> Result<(), ServiceError> {
        let open = self.core.read(|tx| Ok(sessions::list_open(tx)?)).await?;
        let now = clock::now();
        let seen: Vec<(SessionId, Timestamp)> = open
            .iter()
            .filter_map(|session| {
                let last_seen_at = self.heard.calls.last_seen(&session.id, now)?;
                (last_seen_at > session.last_seen_at).then(|| (session.id.clone(), last_seen_at))
            })
            .collect();
        if !seen.is_empty() {
            self.core
                .write(move |tx| {
                    for (id, last_seen_at) in &seen {
                        // A session that ended meanwhile keeps the time that its end wrote.
                        let session =
                            sessions::get(tx, id)?.filter(|session| session.ended.is_none());
                        if let Some(session) = session {
                            let last_seen_at = session.last_seen_at.max(*last_seen_at);
                            sessions::put(tx, &Session { last_seen_at, ..session })?;
                        }
                    }
                    Ok(())
                })
                .await?;
        }
        let ids: HashSet<&SessionId> = open.iter().map(|session| &session.id).collect();
        self.heard.calls.keep_only(|id| ids.contains(id));
        Ok(())
    }
}
