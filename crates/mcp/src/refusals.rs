//! The log of refused calls. A client in a loop is refused thousands of times in a second. The
//! first refusal of a minute for one reason and one caller is logged at once. The others are logged
//! as a number.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::call_limits::{CallsOf, calls_of};
use super::envelope::Incoming;
use domain::Refusal;
use domain::admission::Client;
use domain::rate::LogInterval;
use machine::locks::lock;
use runtime::clock;
use runtime::lru::Lru;
use runtime::throttle::Guesser;

/// The time between two checks of the counts.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of known callers: more than are refused in a minute.
const MAX_KNOWN: usize = 4096;

/// The caller whose refusals are logged together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RefusalsOf {
    Calls(CallsOf),
    /// A guesser, because each guess shows another token.
    Guesser(Guesser),
    /// A pair, because each session has another token.
    Pair(String),
}

/// The log of all connections.
#[derive(Debug)]
pub(super) struct RefusalLog {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    intervals: Lru<(RefusalsOf, &'static str), LogInterval>,
    looked_at: Duration,
}

impl Default for RefusalLog {
    fn default() -> Self {
        let state = State { intervals: Lru::of(MAX_KNOWN), looked_at: Duration::ZERO };
        Self { began: clock::unpaused(), state: Mutex::new(state) }
    }
}

impl RefusalLog {
    /// Logs a refused call, or counts it.
    pub(super) fn note(&self, incoming: &Incoming<'_>, refusal: &Refusal) {
        let of = RefusalsOf::find(incoming, refusal);
        let now = self.began.elapsed();
        let is_first = {
            let mut state = lock(&self.state);
            state.intervals.touch(&(of, refusal.code())).note(now)
        };
        if is_first {
            tracing::info!(reason = refusal.code(), "tool call refused");
        }
    }

    /// Logs the number of refusals in the minutes that are over. Each call runs this.
    pub(super) fn log_counted(&self) {
        let now = self.began.elapsed();
        let counted: Vec<_> = {
            let mut state = lock(&self.state);
            if now.saturating_sub(state.looked_at) < LOOK_INTERVAL {
                return;
            }
            state.looked_at = now;
            let entries = state.intervals.entries();
            entries
                .filter_map(|((of, reason), interval)| {
                    Some((of.clone(), *reason, interval.end(now)?))
                })
                .collect()
        };
        for (of, reason, n_calls) in counted {
            // It is about other calls than the one that happens to be made now.
            tracing::info!(parent: None::<tracing::span::Id>, reason, caller = %of, n_calls, "more tool calls were refused");
        }
    }
}

impl RefusalsOf {
    fn find(incoming: &Incoming<'_>, refusal: &Refusal) -> Self {
        let guesser = || Self::Guesser(Guesser::of(&incoming.sender.peer));
        match refusal {
            Refusal::TooManySessions { agent, project } => {
                Self::Pair(format!("{agent} in {project}"))
            }
            Refusal::InvalidCredentials
            | Refusal::InvalidSession
            | Refusal::CoordinatorOnly
            | Refusal::TooManyAttempts => guesser(),
            _ => calls_of(incoming).map_or_else(guesser, Self::Calls),
        }
    }
}

/// The form for logs.
impl fmt::Display for RefusalsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calls(CallsOf::Client(Client::Launch(launch)))
            | Self::Guesser(Guesser::Launch(launch)) => write!(f, "{launch}"),
            Self::Calls(CallsOf::Token(_)) => f.write_str("a session"),
            Self::Calls(CallsOf::Client(Client::Shim(shim))) => {
                write!(f, "the agent below process {}", shim.pid)
            }
            Self::Calls(CallsOf::Client(Client::User(uid))) | Self::Guesser(Guesser::User(uid)) => {
                write!(f, "user {uid}")
            }
            Self::Calls(CallsOf::Client(Client::Operators)) => f.write_str("operators"),
            Self::Guesser(Guesser::Host(ip)) => write!(f, "host {ip}"),
            Self::Pair(pair) => f.write_str(pair),
        }
    }
}
