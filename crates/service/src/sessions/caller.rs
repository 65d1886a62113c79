//! The identity of callers: an agent, by the token of its session. Every agent tool begins here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use domain::authentication::is_presented_by_its_own;
use domain::session::{Presenter, SessionEndReason, Transport};
use domain::{Launch, LaunchState, Purpose, Refusal, Secret, Session, SessionId, Timestamp};
use runtime::clock;

use super::Sessions;
use crate::{Inputs, ServiceError};
use domain::LaunchId;
use machine::locks::lock;
use store::rows::{Transaction, launches, sessions};
use store::{Read, StoreError};

/// An agent that has shown its session token.
#[derive(Debug, Clone)]
pub struct Caller {
    pub session: Session,
    pub launch: Launch,
}

/// The time of the last call of each open session. It is in memory, and the cleanup stores it
/// later, because a commit for each call would cost more than the call.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<HashMap<SessionId, LastCall>>);

#[derive(Debug)]
struct LastCall {
    at: Timestamp,
    /// The moment on the clock for measuring.
    began: Instant,
    /// The end of the call, if it was held, else its beginning.
    steady: Instant,
    /// Calls that are being held.
    n_held: u32,
    /// The last call asked for the next action, which is held if there is none.
    is_asking: bool,
}

/// A call that is being held. Its session is alive while this value exists.
pub(crate) struct HeldCall<'a> {
    activity: &'a Activity,
    session: &'a SessionId,
}

impl Drop for HeldCall<'_> {
    fn drop(&mut self) {
        if let Some(seen) = self.activity.lock().get_mut(self.session) {
            seen.n_held = seen.n_held.saturating_sub(1);
            seen.steady = clock::now();
        }
    }
}

impl Activity {
    pub(crate) fn touch(&self, session: &SessionId, now: Timestamp) {
        let mut all = self.lock();
        let began = clock::now();
        let n_held = all.get(session).map_or(0, |seen| seen.n_held);
        let seen = LastCall { at: now, began, steady: began, n_held, is_asking: false };
        all.insert(session.clone(), seen);
    }

    /// Notes that a call of this session is held from now on.
    pub(crate) fn hold<'a>(&'a self, session: &'a SessionId) -> HeldCall<'a> {
        if let Some(seen) = self.lock().get_mut(session) {
            seen.n_held += 1;
            seen.is_asking = true;
        }
        HeldCall { activity: self, session }
    }

    /// Returns the end of its last call, by the same clock as [`Activity::idle_for`]. A call that
    /// is held lasts until `now`.
    pub(crate) fn last_seen(&self, session: &SessionId, now: Instant) -> Option<Timestamp> {
        self.lock().get(session).map(|seen| {
            let end = if seen.n_held > 0 { now } else { seen.steady };
            seen.at + end.saturating_duration_since(seen.began)
        })
    }

    /// Returns the time since its last call, by a clock that is never set; `None` if it has not
    /// called since this program began.
    pub(crate) fn idle_for(&self, session: &SessionId) -> Option<Duration> {
        self.lock()
            .get(session)
            .map(|seen| if seen.n_held > 0 { Duration::ZERO } else { seen.steady.elapsed() })
    }

    /// Returns whether the last thing that the agent did was to ask for its next action, less than
    /// `patience` ago. An agent that is at work calls other tools, or none.
    pub(crate) fn is_asking(&self, session: &SessionId, patience: Duration) -> bool {
        self.lock().get(session).is_some_and(|seen| {
            seen.n_held > 0 || seen.is_asking && seen.steady.elapsed() <= patience
        })
    }

    pub(crate) fn keep_only(&self, is_open: impl Fn(&SessionId) -> bool) {
        self.lock().retain(|session, _| is_open(session));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, LastCall>> {
        lock(&self.0)
    }
}

/// Returns the launch of `caller` as it is now. The actions of an agent count only while its
/// session is open, and not for a launch that has ended.
///
/// # Errors
/// Returns the errors of [`Sessions::identify`].
pub(crate) fn fence(tx: &mut Read<'_>, caller: &Caller) -> Result<Launch, ServiceError> {
    latest(tx, caller).map(|(launch, _)| launch)
}

/// Returns the launch and the session of `caller` as they are now.
///
/// # Errors
/// The errors of [`Sessions::identify`].
pub(crate) fn latest(
    tx: &mut Read<'_>,
    caller: &Caller,
) -> Result<(Launch, Session), ServiceError> {
    let session = sessions::get(tx, &caller.session.id)?.ok_or(Refusal::InvalidSession)?;
    session.check_open()?;
    let launch = launches::get(tx, &caller.launch.id)?.ok_or(Refusal::InvalidSession)?;
    if launch.is_open() { Ok((launch, session)) } else { Err(Refusal::SessionEnded.into()) }
}

impl Inputs {
    /// Returns the session with the time of its last call.
    pub(crate) fn with_last_call(&self, session: Session) -> Session {
        let last_seen_at = self.heard.calls.last_seen(&session.id, self.made_at);
        let last_seen_at = last_seen_at.unwrap_or(session.last_seen_at);
        Session { last_seen_at: last_seen_at.max(session.last_seen_at), ..session }
    }

    /// Ends the sessions of a launch that are open.
    pub(crate) fn end_sessions(
        &self,
        tx: &mut Transaction<'_>,
        launch: &LaunchId,
        reason: SessionEndReason,
    ) -> Result<(), StoreError> {
        for session in sessions::list_of_launch(tx, launch)? {
            if session.ended.is_none() {
                let ended = session.end(reason, tx.now());
                sessions::put(tx, &self.with_last_call(ended))?;
            }
        }
        Ok(())
    }
}

impl Sessions {
    /// Returns the agent of `token`, and notes that it is alive.
    ///
    /// # Errors
    /// [`Refusal::InvalidSession`], [`Refusal::SessionEnded`], [`Refusal::SessionExpired`],
    /// [`Refusal::SessionOfSocket`] or [`Refusal::AgentsNotOverHttp`].
    pub async fn identify(
        &self,
        token: &Secret,
        presenter: Presenter<'_>,
    ) -> Result<Caller, ServiceError> {
        let caller = self.find_caller(token, presenter).await?;
        self.check_alive(&caller)?;
        Ok(caller)
    }

    /// Returns the agent of `token`; `None` for the agent of a chat whose session has ended.
    ///
    /// # Errors
    /// The errors of [`Sessions::identify`].
    pub async fn identify_unless_over(
        &self,
        token: &Secret,
        presenter: Presenter<'_>,
    ) -> Result<Option<Caller>, ServiceError> {
        let caller = self.find_caller(token, presenter).await?;
        match self.check_alive(&caller) {
            Err(Refusal::SessionEnded) if caller.session.key.purpose == Purpose::Chat => Ok(None),
            checked => Ok(checked.map(|()| Some(caller))?),
        }
    }

    /// Returns the agent of `token`, also if its own report has ended its session: a repeated
    /// `report_completed` gives the same answer.
    ///
    /// # Errors
    /// The errors of [`Sessions::identify`].
    pub async fn identify_reporter(
        &self,
        token: &Secret,
        presenter: Presenter<'_>,
    ) -> Result<Caller, ServiceError> {
        let caller = self.find_caller(token, presenter).await?;
        match caller.session.ended {
            Some((_, SessionEndReason::Reported)) => Ok(caller),
            // The successor has reported, or may still report.
            Some((_, SessionEndReason::Superseded)) => Err(Refusal::InvalidSession.into()),
            Some(_) if caller.launch.report.is_some() => Ok(caller),
            Some(_) | None => {
                self.check_alive(&caller)?;
                Ok(caller)
            }
        }
    }

    /// Checks that agents are served over the transport of a call.
    ///
    /// # Errors
    /// [`Refusal::AgentsNotOverHttp`].
    pub(crate) fn check_transport(&self, presenter: Presenter<'_>) -> Result<(), Refusal> {
        match presenter.transport {
            Transport::Http if !self.core.settings().serves_agents_over_http => {
                Err(Refusal::AgentsNotOverHttp)
            }
            Transport::Http | Transport::Socket => Ok(()),
        }
    }

    async fn find_caller(
        &self,
        token: &Secret,
        presenter: Presenter<'_>,
    ) -> Result<Caller, ServiceError> {
        self.check_transport(presenter)?;
        let hash = token.token_hash();
        let read = self.core.read(move |tx| {
            let session = sessions::find_by_token(tx, &hash)?.ok_or(Refusal::InvalidSession)?;
            let launch = launches::get(tx, &session.launch)?.ok_or(Refusal::InvalidSession)?;
            Ok(Caller { session, launch })
        });
        let caller = read.await?;
        if !is_presented_by_its_own(&caller.launch, presenter.launch) {
            tracing::warn!(launch_id = %caller.launch.id, "an agent presented the session token of another agent");
            return Err(Refusal::InvalidSession.into());
        }
        // Only a valid token gets this answer, because not every client of the network may learn
        // the path of the socket.
        if !presenter.may_use(token) {
            return Err(Refusal::SessionOfSocket {
                socket: self.core.settings().mcp_socket.clone(),
            }
            .into());
        }
        Ok(caller)
    }

    /// Checks that the session may be used, and notes the call as a sign of life.
    fn check_alive(&self, caller: &Caller) -> Result<(), Refusal> {
        caller.session.check_open()?;
        let now = self.core.now();
        if self.is_expired(caller, now) {
            return Err(Refusal::SessionExpired);
        }
        self.heard.calls.touch(&caller.session.id, now);
        Ok(())
    }

    /// Returns whether silence has ended the session. A session with a process of ours ends with
    /// the process instead.
    fn is_expired(&self, caller: &Caller, now: Timestamp) -> bool {
        if caller.launch.is_kept() || !matches!(caller.launch.state, LaunchState::Running { .. }) {
            return false;
        }
        let idle = self
            .heard
            .calls
            .idle_for(&caller.session.id)
            .unwrap_or_else(|| now.since(caller.session.last_seen_at));
        idle > self.core.settings().session.default_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_held_call_lasts_until_the_moment_that_is_given() {
        let calls = Activity::default();
        let session = "ses_held".parse().unwrap();
        let at = Timestamp::from_millis(1_000);
        let before = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        calls.touch(&session, at);
        let _held = calls.hold(&session);
        tokio::time::advance(Duration::from_secs(5)).await;
        let now = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(calls.last_seen(&session, now), Some(at + Duration::from_secs(5)));
        assert_eq!(calls.last_seen(&session, before), Some(at), "the call came later");
    }
}
