//! The connection to the server. It is made when a call needs it, closed when a call on it is lost,
//! and made again by the next call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::LinkState;
use client::{CallError, ConnectError, McpClient};
use domain::{Incarnation, Secret, ServerAddress};
use machine::sys::regular_file;
use runtime::clock;
use runtime::telemetry::ErrorChain;

/// The code of the refusal of a caller that is not a coordinator.
const NOT_LET_IN: &str = "coordinator_only";
/// Arguments that a server may not know. They are left out if it does not.
const OPTIONAL: [&str; 4] = ["coordinator_id", INCARNATION, "coordinator_token", "purpose"];
const INCARNATION: &str = "coordinator_incarnation";
/// The code of the refusal of a coordinator that a later start has replaced.
const SUPERSEDED: &str = "superseded";

pub(super) struct Link {
    server: ServerAddress,
    token: watch::Sender<Token>,
    attempt: Mutex<Attempt>,
    state: watch::Sender<LinkState>,
    incarnation: Incarnation,
    /// Cancelled when the server refuses this start in favour of a later one.
    superseded: CancellationToken,
}

/// The token that a coordinator presents to its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    None,
    /// The token from the configuration.
    Given(Secret),
    /// The token in a file that the server makes, perhaps only later.
    File(PathBuf),
}

/// The result of the last attempt to connect.
#[derive(Default)]
enum Attempt {
    #[default]
    None,
    /// Connected with this token.
    Connected(Arc<McpClient>, Token),
    Failed {
        at: Instant,
        problem: String,
    },
}

/// The time for which a failed attempt also counts for callers that waited for it or ask just after
/// it.
const ATTEMPT_COUNTS_FOR: Duration = Duration::from_millis(200);

/// The server could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0}")]
    JustFailed(String),
    #[error(transparent)]
    Call(#[from] CallError),
    /// The health check answered something other than "ok".
    #[error("the server says that it is `{0}`")]
    Unhealthy(String),
    #[error("a later start of this coordinator has taken its place")]
    Superseded,
    #[error("the server does not accept this coordinator: {0}")]
    NotLetIn(&'static str),
    /// The list of projects has more entries than the limits allow.
    #[error("the server lists more than {0} pairs of agents and projects")]
    Endless(usize),
}

impl Token {
    /// Returns advice for a server that does not accept this token.
    const fn advice(&self) -> &'static str {
        match self {
            Self::Given(_) => "its coordinator_token is another one than that of the configuration",
            Self::None | Self::File(_) => {
                "set coordinator_token to the server's (the file coordinator_token in its state_dir)"
            }
        }
    }

    fn read(&self) -> Option<Secret> {
        match self {
            Self::None => None,
            Self::Given(token) => Some(token.clone()),
            Self::File(path) => {
                let text = regular_file::read_small_text(path).ok()?;
                Some(text.trim()).filter(|token| !token.is_empty()).map(Secret::new)
            }
        }
    }
}

impl Link {
    pub(super) fn new(server: ServerAddress, token: Token, incarnation: Incarnation) -> Self {
        Self {
            server,
            token: watch::Sender::new(token),
            attempt: Mutex::default(),
            state: watch::Sender::new(LinkState::default()),
            incarnation,
            superseded: CancellationToken::new(),
        }
    }

    /// Returns when the server has refused a call because there is a later start of this
    /// coordinator. Cancel-safe.
    pub(super) async fn superseded(&self) {
        self.superseded.cancelled().await;
    }

    pub(super) fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// Presents this token from the next call on.
    pub(super) fn set_token(&self, token: Token) {
        self.token.send_replace(token);
    }

    pub(super) fn state(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// Returns the current connection, or makes a new one. Only one attempt runs at a time; other
    /// callers wait for it and share its result.
    pub(super) async fn client(&self) -> Result<Arc<McpClient>, LinkError> {
        let mut attempt = self.attempt.lock().await;
        let token = self.token.borrow().clone();
        match &*attempt {
            Attempt::Connected(client, with) if !client.is_closed() && *with == token => {
                return Ok(Arc::clone(client));
            }
            Attempt::Failed { at, problem } if at.elapsed() < ATTEMPT_COUNTS_FOR => {
                return Err(LinkError::JustFailed(problem.clone()));
            }
            Attempt::None | Attempt::Connected(..) | Attempt::Failed { .. } => {}
        }
        *attempt = Attempt::None;
        match McpClient::connect(&self.server, token.read().as_ref()).await {
            Ok(connected) => {
                let connected = Arc::new(connected);
                *attempt = Attempt::Connected(Arc::clone(&connected), token);
                Ok(connected)
            }
            Err(error) => {
                let error = LinkError::from(error);
                self.note(Some(&error));
                *attempt = Attempt::Failed {
                    at: clock::unpaused(),
                    problem: ErrorChain(&error).to_string(),
                };
                Err(error)
            }
        }
    }

    /// Makes one call, with the arguments that the server knows. If the call is lost, the
    /// connection is closed.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        client: &Arc<McpClient>,
        tool: &str,
        arguments: Value,
        timeout: Duration,
    ) -> Result<T, LinkError> {
        let Value::Object(mut arguments) = arguments else {
            unreachable!("arguments are an object")
        };
        self.identify(client, tool, &mut arguments);
        // On another server the same code may mean something else.
        let says_its_start = arguments.contains_key(INCARNATION);
        let result = client.call(tool, arguments, timeout).await.map_err(|error| match error {
            CallError::Refused { code, .. } if code == NOT_LET_IN => {
                LinkError::NotLetIn(self.token.borrow().advice())
            }
            CallError::Refused { code, .. } if code == SUPERSEDED && says_its_start => {
                self.superseded.cancel();
                LinkError::Superseded
            }
            error => error.into(),
        });
        match &result {
            Ok(_) => self.note(None),
            Err(error @ (LinkError::NotLetIn(_) | LinkError::Superseded)) => self.note(Some(error)),
            // The server is there; the caller handles the refusal.
            Err(LinkError::Call(CallError::Refused { .. })) => self.note(None),
            Err(error) => {
                self.note(Some(error));
                let mut attempt = self.attempt.lock().await;
                if matches!(&*attempt, Attempt::Connected(current, _) if Arc::ptr_eq(current, client))
                {
                    *attempt = Attempt::None;
                }
            }
        }
        result
    }

    fn identify(&self, client: &McpClient, tool: &str, arguments: &mut Map<String, Value>) {
        // A socket identifies its peers. A token that happens to be in the state directory may
        // belong to another server.
        if let (ServerAddress::Socket(_), Token::Given(token)) =
            (&self.server, &*self.token.borrow())
        {
            arguments.insert("coordinator_token".to_owned(), token.reveal().into());
        }
        if arguments.contains_key("coordinator_id") {
            arguments.insert(INCARNATION.to_owned(), self.incarnation.to_string().into());
        }
        for name in OPTIONAL {
            if !client.takes(tool, name) {
                arguments.remove(name);
            }
        }
        arguments.retain(|_, value| !value.is_null());
    }

    /// Records the result of a call.
    pub(super) fn note(&self, problem: Option<&LinkError>) {
        let problem = problem.map(|error| ErrorChain(error).to_string());
        self.state.send_modify(|state| state.problem = problem);
    }

    /// Records the result of a question for all work. The failure of a single call within a
    /// question that succeeded is over.
    pub(super) fn note_observed(&self, failure: Option<&LinkError>) {
        let without_work = failure.map(|error| ErrorChain(error).to_string());
        self.state.send_modify(|state| {
            if without_work.is_none() {
                state.problem = None;
            }
            state.without_work = without_work;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_with_the_work_ends_the_reason_why_nothing_can_start() {
        let server = ServerAddress::Socket(PathBuf::from("/run/mcp.sock"));
        let incarnation = Incarnation::after(None, domain::Timestamp::from_millis(0), 0);
        let link = Link::new(server, Token::None, incarnation);
        let reason = || link.state().borrow().reason().cloned();
        let degraded = LinkError::Unhealthy("degraded".to_owned());
        let lost = LinkError::JustFailed("no answer".to_owned());
        link.note_observed(Some(&degraded));
        // The health check before the next question for the work succeeds.
        link.note(None);
        assert_eq!(reason().as_deref(), Some("the server says that it is `degraded`"));
        link.note_observed(Some(&lost));
        assert_eq!(reason().as_deref(), Some("no answer"));
        // The question about one pair was lost, and all others were answered.
        link.note(Some(&lost));
        link.note_observed(None);
        assert_eq!(reason(), None);
        link.note(Some(&lost));
        assert_eq!(reason().as_deref(), Some("no answer"));
    }
}
