//! The checks before every tool call. They slow down agents in a loop, and clients that guess at
//! passkeys and tokens, for all tools.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::JsonObject;

use super::connections::client_of;
use super::envelope::{AUTHENTICATE, CallError, Incoming};
use domain::admission::Client;
use domain::rate::Rate;
use domain::secret::{TICKET_PREFIX, TokenHash};
use domain::{Refusal, Secret};
use runtime::clock;
use runtime::peer::{Peer, PeerKind};
use runtime::rate_limiter::RateLimiter;
use runtime::throttle::{Attempt, Guesser, SlotRule, Throttle};
use service::ServiceError;

/// A hundred at once after a pause: more than any agent has to say in one turn. Then 20 a second: a
/// model takes seconds between two calls; a script that polls as fast as it can gets this much. At
/// well below a tenth of a millisecond a call, a thousand agents in a loop leave the daemon most of
/// its time.
const RATE: Rate = Rate { burst: 100, interval: Duration::from_millis(50) };
/// The number of known callers: more agents than a machine runs.
const MAX_KNOWN: usize = 8192;

/// The caller whose calls count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CallsOf {
    /// The agents of this client, with any token.
    Client(Client),
    /// All callers that show this token.
    Token(TokenHash),
}

/// The limits for the calls of all connections together.
#[derive(Debug)]
pub(super) struct CallLimits {
    /// A call counts when it begins: one that waits counts once. A refusal costs no look into the
    /// store.
    rate: RateLimiter<CallsOf>,
    passkeys: Arc<Throttle>,
    /// The throttle for tokens of sessions and coordinators.
    tokens: Arc<Throttle>,
}

impl Default for CallLimits {
    fn default() -> Self {
        let rate = RateLimiter::new(RATE, MAX_KNOWN, clock::unpaused());
        Self { rate, passkeys: Arc::default(), tokens: Arc::default() }
    }
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
    if let Peer::Local(peer) = &incoming.sender.peer
        && matches!(peer.kind, PeerKind::Agent { .. })
    {
        // The shown token does not count, because the agent may choose another one for each call.
        return Some(CallsOf::Client(client_of(peer)));
    }
    let token = incoming.session_token().ok()?;
    (token != *incoming.coordinator_token).then(|| CallsOf::Token(token.token_hash()))
}

/// Returns a text argument; empty if it is not a text.
fn text<'a>(incoming: &Incoming<'a>, name: &str) -> &'a str {
    incoming.arguments.get(name).and_then(|value| value.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn agent(name: &str) -> CallsOf {
        CallsOf::Token(Secret::new(name).token_hash())
    }

    fn n_taken(limits: &CallLimits, who: &CallsOf, now: Instant) -> usize {
        (0..1_000).filter(|_| limits.rate.take(who, now)).count()
    }

    #[test]
    fn a_burst_is_taken_and_then_so_many_a_second() {
        let (limits, ann, bob) = (CallLimits::default(), agent("a"), agent("b"));
        let begun = Instant::now();
        assert_eq!(n_taken(&limits, &ann, begun), 100);
        assert_eq!(n_taken(&limits, &bob, begun), 100, "each has its own");
        assert_eq!(n_taken(&limits, &ann, begun + Duration::from_secs(1)), 20);
        // The hint of the refusal.
        assert!(limits.rate.take(&ann, begun + Duration::from_secs(2)));
        assert_eq!(n_taken(&limits, &ann, begun + Duration::from_hours(1)), 100);
    }

    #[test]
    fn who_keeps_to_the_rate_is_never_refused() {
        let limits = CallLimits::default();
        let ann = agent("a");
        let begun = Instant::now();
        n_taken(&limits, &ann, begun);
        for n in 1..1_000 {
            let now = begun + Duration::from_millis(51) * n;
            assert!(limits.rate.take(&ann, now), "call {n}");
        }
    }
}
