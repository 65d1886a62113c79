//! The checks before every tool call. They slow down agents in a loop, and clients that guess at
//! passkeys and tokens, for all tools.

use rmcp::model::JsonObject;
use std::sync::Arc;

use super::envelope::{AUTHENTICATE, CallError, Incoming};
use super::rate::{CallsOf, RateLimit};

use domain::secret::TICKET_PREFIX;
use domain::{Refusal, Secret};
use runtime::clock;
use runtime::peer::{LocalPeer, Peer, PeerKind};
use runtime::throttle::{Attempt, Guesser, SlotRule, Throttle};
use service::ServiceError;

/// The limits for the calls of all connections together.
#[derive(Debug, Default)]
pub(super) struct CallLimits {
    rate: RateLimit,
    passkeys: Arc<Throttle>,
    /// The throttle for tokens of sessions and coordinators.
    tokens: Arc<Throttle>,
}

impl CallLimits {
    /// Admits a call, with the attempt at a passkey that it makes.
    ///
    /// # Errors
    /// `RateLimited`, `TooManyAttempts`.
    pub(super) async fn admit(
        &self,
        tool: &str,
        incoming: &Incoming<'_>,
    ) -> Result<Option<Attempt>, Refusal> {
        let now = clock::unpaused();
        if let Some(who) = calls_of(incoming)
            && !self.rate.take(&who, now)
        {
            return Err(Refusal::RateLimited);
        }
        if tool != AUTHENTICATE {
            return Ok(None);
        }
        let peer = &incoming.sender.peer;
        let is_ticket = text(incoming, "passkey").starts_with(TICKET_PREFIX);
        let slot_rule = if is_ticket { SlotRule::Exempt } else { SlotRule::of(peer) };
        let attempt = self.passkeys.try_passkey(Guesser::of(peer), slot_rule, now).await;
        attempt.map(Some).ok_or(Refusal::TooManyAttempts)
    }

    /// Returns the result of a call. The result of an attempt with a wrong passkey is delayed.
    pub(super) async fn hold_back(
        &self,
        attempt: Option<Attempt>,
        incoming: &Incoming<'_>,
        result: Result<JsonObject, CallError>,
    ) -> Result<JsonObject, CallError> {
        let Some(attempt) = attempt else {
            return result;
        };
        let agent_id = Some(text(incoming, "agent_id"));
        match &result {
            Ok(answer) => {
                attempt.succeeded(agent_id);
                if let Some(token) = answer.get("session_token").and_then(|token| token.as_str()) {
                    self.tokens.remember(&Secret::new(token).token_hash());
                }
            }
            Err(CallError::Service(ServiceError::Refused(Refusal::InvalidCredentials))) => {
                wait(attempt, agent_id).await?;
            }
            Err(_) => {}
        }
        result
    }

    /// Runs the check of the token of a session or coordinator. The answer to a wrong token over
    /// the network is delayed. On the socket, the process at the other end is known.
    ///
    /// # Errors
    /// `TooManyAttempts`, and the errors of `check`.
    pub(super) async fn check_token<T>(
        &self,
        peer: &Peer,
        token: &Secret,
        check: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        if matches!(peer, Peer::Local(_)) {
            return check.await;
        }
        let attempt = self.tokens.try_token(
            Guesser::of(peer),
            token.token_hash(),
            SlotRule::Needed,
            clock::unpaused(),
        );
        let attempt = attempt.await.ok_or(Refusal::TooManyAttempts)?;
        let checked = check.await;
        match &checked {
            Ok(_) => attempt.succeeded(None),
            // An agent that calls a tool of coordinators shows its own token, which is not a guess.
            Err(CallError::Service(ServiceError::Refused(Refusal::CoordinatorOnly)))
                if attempt.is_remembered() => {}
            Err(CallError::Service(ServiceError::Refused(
                Refusal::InvalidSession | Refusal::CoordinatorOnly,
            ))) => {
                wait(attempt, None).await?;
            }
            Err(_) => {}
        }
        checked
    }
}

/// Holds the answer to a wrong secret back.
///
/// # Errors
/// `TooManyAttempts` if there is no slot for that.
async fn wait(attempt: Attempt, agent_id: Option<&str>) -> Result<(), Refusal> {
    let delay = attempt.failed(agent_id, clock::unpaused()).ok_or(Refusal::TooManyAttempts)?;
    tokio::time::sleep(delay).await;
    Ok(())
}

/// Returns the counted caller of a call: an agent, if one is visible. People and coordinators are
/// not counted.
pub(super) fn calls_of(incoming: &Incoming<'_>) -> Option<CallsOf> {
    if let Some(launch) = incoming.sender.launch() {
        return Some(CallsOf::Launch(launch.clone()));
    }
    if let Peer::Local(LocalPeer { kind: PeerKind::Agent { launch: None }, uid, lineage, .. }) =
        &incoming.sender.peer
    {
        // The shown token does not count, because the agent may choose another one for each call.
        return Some(lineage.outermost_shim.map_or(CallsOf::User(*uid), CallsOf::Shim));
    }
    let token = incoming.session_token().ok()?;
    (token != *incoming.coordinator_token).then(|| CallsOf::Token(token.token_hash()))
}

/// Returns a text argument; empty if it is not a text.
fn text<'a>(incoming: &Incoming<'a>, name: &str) -> &'a str {
    incoming.arguments.get(name).and_then(|value| value.as_str()).unwrap_or_default()
}
