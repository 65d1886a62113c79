//! Sessions of agents: an agent opens one, calls with its token, and ends it.

pub(super) mod authenticate;
pub(super) mod caller;
mod logout;
pub(super) mod next_action;
pub(super) mod notices;
pub(super) mod report;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use domain::id::{AgentId, LaunchId, ProjectId, SessionId};
use domain::launch::StopReason;
use domain::{Refusal, Session};
use runtime::rate_limiter::RateLimiter;
use store::HistoryFilter;
use store::rows::sessions;

use super::clocks::Clocks;
use super::core::Core;
use super::launches::change::want_stop;
use super::waiting::Waiting;
use super::workspaces::OwnCheckouts;
use super::{Heard, ServiceError, Shared};

/// The sessions of agents.
pub struct Sessions {
    core: Arc<Core>,
    heard: Heard,
    waiting: Waiting,
    clocks: Arc<Clocks>,
    checkouts: OwnCheckouts,
    /// Cancelled when the server must not hold calls any more.
    ending: CancellationToken,
    rate: RateLimiter<(AgentId, ProjectId)>,
}

impl Sessions {
    pub(super) fn new(shared: Shared) -> Self {
        let Shared { core, heard, waiting, clocks, checkouts, ending, .. } = shared;
        let rate = authenticate::session_rate();
        Self { core, heard, waiting, clocks, checkouts, ending, rate }
    }

    /// Returns the sessions of a filter, the newest first.
    pub async fn list(
        &self,
        filter: &HistoryFilter<SessionId>,
    ) -> Result<Vec<Session>, ServiceError> {
        let filter = filter.clone();
        let sessions = self.core.read(move |tx| Ok(sessions::list(tx, &filter)?)).await?;
        Ok(sessions.into_iter().map(|session| self.shown_session(session)).collect())
    }

    /// Returns a session.
    ///
    /// # Errors
    /// `SessionNotFound`.
    pub async fn get(&self, id: &SessionId) -> Result<Session, ServiceError> {
        let of = id.clone();
        let session = self.core.read(move |tx| Ok(sessions::get(tx, &of)?)).await?;
        let session = session.ok_or_else(|| Refusal::SessionNotFound { session: id.clone() })?;
        Ok(self.shown_session(session))
    }

    /// Returns an open session with the time of its last call. An ended session keeps the time that
    /// its end wrote.
    fn shown_session(&self, session: Session) -> Session {
        if session.ended.is_none() {
            self.heard.inputs(&self.core).with_last_call(session)
        } else {
            session
        }
    }

    /// Ends a session and the process of its launch. Without a process, the session ends at once.
    /// The pair may start again. Ending an ended session changes nothing.
    ///
    /// # Errors
    /// `SessionNotFound`.
    pub async fn end(&self, id: &SessionId) -> Result<(Session, LaunchId), ServiceError> {
        let session = self.get(id).await?;
        if session.ended.is_none() {
            want_stop(&self.core, &self.heard, &session.launch, StopReason::Person).await?;
        }
        Ok((self.get(id).await?, session.launch))
    }
}
