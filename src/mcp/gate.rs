//! What stands before every tool call: an agent in a loop and whoever guesses at passkeys and tokens are slowed down, whichever
//! tool they call.

use std::time::Instant;

use rmcp::model::JsonObject;
use tokio::sync::Semaphore;

use super::envelope::{AUTHENTICATE, CallError, Incoming};
use super::rate::{CallsOf, RateLimit};

use crate::domain::Refusal;
use crate::domain::secret::TICKET_PREFIX;
use crate::peer::Peer;
use crate::service::ServiceError;
use crate::service::throttle::{Guesser, Throttle};

/// Answers that are held back at the same time, of all peers together: each keeps a place of its connection, and of the door's.
/// What comes beyond them is answered at once.
const MAX_HELD: usize = 64;

/// One for all connections.
#[derive(Debug)]
pub(super) struct Gate {
    rate: RateLimit,
    throttle: Throttle,
    held: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self { rate: RateLimit::default(), throttle: Throttle::default(), held: Semaphore::new(MAX_HELD) }
    }
}

impl Gate {
    /// Whether a call is to be looked at.
    ///
    /// # Errors
    /// `RateLimited`, `TooManyAttempts`.
    pub(super) fn admit(&self, tool: &str, incoming: &Incoming<'_>) -> Result<(), Refusal> {
        let now = Instant::now();
        if let Some(who) = calls_of(incoming)
            && !self.rate.take(&who, now)
        {
            return Err(Refusal::RateLimited);
        }
        if tool == AUTHENTICATE
            && !text(incoming, "passkey").starts_with(TICKET_PREFIX)
            && !self.throttle.is_heard(&Guesser::of(&incoming.sender.peer), text(incoming, "agent_id"), now)
        {
            return Err(Refusal::TooManyAttempts);
        }
        Ok(())
    }

    /// What a call came to, after a while if it was a wrong guess: at a passkey, or over the network at a token.
    pub(super) async fn hold_back(
        &self,
        tool: &str,
        incoming: &Incoming<'_>,
        result: Result<JsonObject, CallError>,
    ) -> Result<JsonObject, CallError> {
        let agent_id = (tool == AUTHENTICATE).then(|| text(incoming, "agent_id"));
        let peer = &incoming.sender.peer;
        match (&result, agent_id) {
            (Ok(_), Some(agent_id)) => self.throttle.succeeded(agent_id),
            (Err(CallError::Service(ServiceError::Refused(refusal))), _)
                if is_wrong_guess(refusal) && (agent_id.is_some() || matches!(peer, Peer::Network(_))) =>
            {
                let delay = self.throttle.failed(&Guesser::of(peer), agent_id, Instant::now());
                match (delay, self.held.try_acquire()) {
                    (Some(delay), Ok(_place)) => tokio::time::sleep(delay).await,
                    _ if agent_id.is_some() => return Err(Refusal::TooManyAttempts.into()),
                    // A random token isn't found by guessing, however soon it is said that it is none.
                    _ => {}
                }
            }
            _ => {}
        }
        result
    }
}

const fn is_wrong_guess(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::InvalidCredentials | Refusal::InvalidSession | Refusal::CoordinatorOnly)
}

/// Who is counted for a call: an agent, where one is to be seen. People and coordinators are not.
fn calls_of(incoming: &Incoming<'_>) -> Option<CallsOf> {
    if let Some(launch) = incoming.sender.launch() {
        return Some(CallsOf::Launch(launch.clone()));
    }
    let token = incoming.session_token().ok()?;
    (token != *incoming.coordinator_token).then(|| CallsOf::Token(token.token_hash()))
}

/// A text argument; nothing where it is none.
fn text<'a>(incoming: &Incoming<'a>, name: &str) -> &'a str {
    incoming.arguments.get(name).and_then(|value| value.as_str()).unwrap_or_default()
}
