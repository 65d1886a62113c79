//! What time ends, every `session.cleanup_interval`: silent sessions without a process of ours, sessions past the maximum,
//! claims that nobody followed up.
//!
//! Time never frees what may live: a launch with a process is only *wanted* to stop, and its end is its process's end.

use std::time::Duration;

use crate::domain::launch::{LaunchEvent, StopReason};
use crate::domain::session::SessionEndReason;
use crate::domain::{Launch, LaunchState, Session, SessionId, Timestamp};
use crate::store::{Change, Commit};

use super::coordination::log_end;
use super::{Service, ServiceError, Settings};
use crate::telemetry::ErrorChain;

/// Patience beyond every time-out with a claim whose process nobody reported.
const CLAIM_MARGIN: Duration = Duration::from_secs(30);

impl Service {
    /// Ends what has run out of time and writes down when each session was last seen.
    pub async fn cleanup(&self) -> Result<(), ServiceError> {
        let now = self.now();
        let sessions = self.store.open_sessions().await?;
        let open = self.store.open_launches().await?;
        self.activities.keep_only(|id| open.iter().any(|launch| launch.id == *id));
        for launch in open {
            // One that can't be ended doesn't keep the others.
            if let Err(error) = self.expire(&launch, &sessions, now).await {
                tracing::warn!(launch_id = %launch.id, error = %ErrorChain(&error), "could not end what has run out of time");
            }
        }
        self.correct_accounts().await?;
        self.write_down_activity().await
    }

    async fn expire(&self, launch: &Launch, sessions: &[Session], now: Timestamp) -> Result<(), ServiceError> {
        let is_too_old =
            |since: Option<Timestamp>| since.is_some_and(|since| now.since(since) > self.settings.session_maximum);
        let Settings { start_timeout, stop_timeout, .. } = self.settings;
        if launch.has_lapsed(start_timeout, stop_timeout, CLAIM_MARGIN, now) {
            let ended = self.happen(&launch.id, &LaunchEvent::ClaimLapsed { at: now }).await?;
            ended.iter().for_each(log_end);
            return Ok(());
        }
        match (&launch.state, launch.is_kept()) {
            (LaunchState::Running { .. }, true) if is_too_old(launch.authenticated_at) => {
                tracing::info!(launch_id = %launch.id, "session is past its maximum; its agent is stopped");
                self.want_stop(&launch.id, StopReason::SessionMaximum).await?;
            }
            (LaunchState::Running { session }, false) => {
                let Some(session) = sessions.iter().find(|open| open.id == *session) else { return Ok(()) };
                let last_seen = self.activity.last_seen(&session.id).unwrap_or(session.last_seen_at);
                let is_idle = session.is_idle_for(self.settings.session_default, last_seen, now);
                if is_idle || is_too_old(launch.authenticated_at) {
                    self.expire_session(launch, now).await?;
                }
            }
            (
                LaunchState::Starting { .. }
                | LaunchState::Running { .. }
                | LaunchState::Stopping { .. }
                | LaunchState::Ending
                | LaunchState::Ended { .. },
                _,
            ) => {}
        }
        Ok(())
    }

    async fn expire_session(&self, launch: &Launch, now: Timestamp) -> Result<(), ServiceError> {
        let ended = self
            .transact(|| async move {
                let Some(before) = self.store.launch(&launch.id).await? else { return Ok((Commit::default(), None)) };
                let event = LaunchEvent::SessionExpired { at: now };
                let mut commit = self.commit_by(&before, &event, now).await?;
                for change in &mut commit.changes {
                    if let Change::Session(session) = change {
                        session.ended = Some((now, SessionEndReason::Expired));
                    }
                }
                let after = before.on(&event).ok().filter(|_| !commit.changes.is_empty());
                Ok((commit, after))
            })
            .await?;
        ended.iter().for_each(log_end);
        Ok(())
    }

    async fn write_down_activity(&self) -> Result<(), ServiceError> {
        let open = self.store.open_sessions().await?;
        let seen: Vec<Session> = open
            .iter()
            .filter_map(|session| {
                let last_seen_at = self.activity.last_seen(&session.id)?;
                (last_seen_at > session.last_seen_at).then(|| Session { last_seen_at, ..session.clone() })
            })
            .collect();
        for session in seen {
            // A session that ended meanwhile keeps what its end wrote.
            let commit = Commit { expect: Vec::new(), changes: vec![Change::Session(session)] };
            match self.store.commit(commit).await {
                Ok(()) | Err(crate::store::CommitError::Outdated { .. }) => {}
                Err(crate::store::CommitError::Store(error)) => return Err(error.into()),
                Err(crate::store::CommitError::OpenLaunch { .. }) => return Err(ServiceError::Contended),
            }
        }
        let is_open = |id: &SessionId| open.iter().any(|session| session.id == *id);
        self.activity.keep_only(is_open);
        Ok(())
    }
}
