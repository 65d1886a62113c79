//! What agents leave behind them, for people who look: sessions, executions, notices, and what happened to a task.

use std::time::Duration;

use crate::domain::event::Event;
use crate::domain::id::{LaunchId, SessionId, TaskId};
use crate::domain::launch::StopReason;
use crate::domain::{Refusal, Session};
use crate::store::HistoryFilter;

use super::launches::change::want_stop;
use super::{Service, ServiceError};

impl Service {
    /// The newest first.
    pub async fn sessions(
        &self,
        filter: &HistoryFilter<SessionId>,
    ) -> Result<Vec<Session>, ServiceError> {
        let sessions = self.core.store.sessions(filter).await?.into_iter();
        Ok(sessions.map(|session| self.shown_session(session)).collect())
    }

    /// # Errors
    /// `SessionNotFound`.
    pub async fn session(&self, id: &SessionId) -> Result<Session, ServiceError> {
        let session = self.core.store.session(id).await?;
        let session = session.ok_or_else(|| Refusal::SessionNotFound { session: id.clone() })?;
        Ok(self.shown_session(session))
    }

    /// Returns an open session with the time of its last call. An ended session keeps the time that its end wrote.
    fn shown_session(&self, session: Session) -> Session {
        if session.ended.is_none() {
            self.heard.inputs(&self.core).with_last_call(session)
        } else {
            session
        }
    }

    /// Ends a session, and with it the process of its launch; without one at once. Nothing keeps its pair from starting again.
    /// Ending one that has ended changes nothing.
    ///
    /// # Errors
    /// `SessionNotFound`.
    pub async fn end_session(&self, id: &SessionId) -> Result<(Session, LaunchId), ServiceError> {
        let session = self.session(id).await?;
        if session.ended.is_none() {
            want_stop(&self.core, &self.heard, &session.launch, StopReason::Person, Duration::ZERO)
                .await?;
        }
        Ok((self.session(id).await?, session.launch))
    }

    /// What happened to a task after the event with this number, in order, as far as it is kept.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub async fn task_history(
        &self,
        id: &TaskId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Event>, ServiceError> {
        if self.core.store.task(id).await?.is_none() {
            return Err(Refusal::TaskNotFound { task: id.clone() }.into());
        }
        Ok(self.core.store.events_of_task(id, after, limit).await?)
    }
}

/// That nobody has changed what somebody saw at `seen` and wants to change.
///
/// # Errors
/// `Changed`.
pub(super) fn check_seen(
    what: &'static str,
    id: &impl ToString,
    seen: Option<i64>,
    revision: i64,
) -> Result<(), Refusal> {
    if seen.is_none_or(|seen| seen == revision) {
        return Ok(());
    }
    Err(Refusal::Changed { what, id: id.to_string(), revision })
}
