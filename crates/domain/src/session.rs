//! A session is one authenticated conversation of an agent. An execution is the record of its work
//! on a task.

use super::activity::{Failure, Usage};
use super::id::{ExecutionId, LaunchId, SessionId, TaskId};
use super::key::InstanceKey;
use super::launch::{Outcome, ReportResult};
use super::refusal::Refusal;
use super::secret::{SESSION_TOKEN_PREFIX, SOCKET_SESSION_TOKEN_PREFIX, Secret, TokenHash};
use super::time::Timestamp;
use super::words::words;

words! {
    /// The reason for the end of a session.
    pub enum SessionEndReason as "session end" {
        Reported = "reported",
        LoggedOut = "logged_out",
        /// The ticket of its launch was used again: an answer was lost, or the agent restarted itself.
        Superseded = "superseded",
        /// The process behind it is gone.
        ProcessExited = "process_exited",
        Expired = "expired",
    }
}

/// The way by which a call reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The Unix socket, where the server sees which process calls.
    Socket,
    /// HTTP, where the server sees only what the call contains.
    Http,
}

impl Transport {
    /// Returns the prefix of the tokens of sessions that are opened over this transport.
    pub const fn session_token_prefix(self) -> &'static str {
        match self {
            Self::Socket => SOCKET_SESSION_TOKEN_PREFIX,
            Self::Http => SESSION_TOKEN_PREFIX,
        }
    }
}

/// The origin of a call.
#[derive(Debug, Clone, Copy)]
pub struct Presenter<'a> {
    pub transport: Transport,
    /// The launch whose agent calls, if the transport shows it.
    pub launch: Option<&'a LaunchId>,
}

impl<'a> Presenter<'a> {
    pub const fn on_socket(launch: Option<&'a LaunchId>) -> Self {
        Self { transport: Transport::Socket, launch }
    }

    /// Returns whether a session with this token may be used from here. The token itself says where
    /// its session was opened, so that this holds across restarts. The holder cannot change it,
    /// because the server looks up the whole token. Tokens of earlier versions do not say it and
    /// are accepted over both transports.
    pub fn may_use(&self, token: &Secret) -> bool {
        match self.transport {
            Transport::Socket => true,
            Transport::Http => !token.reveal().starts_with(SOCKET_SESSION_TOKEN_PREFIX),
        }
    }
}

/// One session. It belongs to exactly one launch and ends with it at the latest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub token: TokenHash,
    pub created_at: Timestamp,
    /// The time of the last call. It is written late, by at most `session.cleanup_interval`.
    pub last_seen_at: Timestamp,
    pub ended: Option<(Timestamp, SessionEndReason)>,
    /// The number of the last chat message that it was given; 0 before the first one.
    pub handed_out: i64,
    pub revision: i64,
}

impl Session {
    pub fn end(self, reason: SessionEndReason, at: Timestamp) -> Self {
        Self { ended: self.ended.or(Some((at, reason))), ..self }
    }

    /// Checks whether the session may still be used for a call.
    ///
    /// # Errors
    /// Returns [`Refusal::SessionExpired`] or [`Refusal::SessionEnded`].
    pub fn check_open(&self) -> Result<(), Refusal> {
        match self.ended {
            None => Ok(()),
            Some((_, SessionEndReason::Expired)) => Err(Refusal::SessionExpired),
            Some((_, SessionEndReason::Superseded)) => Err(Refusal::InvalidSession),
            Some((
                _,
                SessionEndReason::Reported
                | SessionEndReason::LoggedOut
                | SessionEndReason::ProcessExited,
            )) => Err(Refusal::SessionEnded),
        }
    }
}

/// The work of one launch on one task. Its results are the context of the next execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub id: ExecutionId,
    pub launch: LaunchId,
    pub task: TaskId,
    pub key: InstanceKey,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub result: Option<ReportResult>,
    pub summary: Option<String>,
    pub next_steps: Option<String>,
    /// The progress that the agent saved during the work.
    pub progress: Option<String>,
    /// The findings that the agent saved during the work.
    pub findings: Option<String>,
    /// The outcome of its launch; `None` while the launch lives.
    pub outcome: Option<Outcome>,
    /// The usage of its launch, which a launch with several tasks has for each of them.
    pub usage: Usage,
    /// Set at the end of the launch.
    pub failure: Option<Failure>,
    pub revision: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_the_socket_is_not_usable_over_http() {
        let http = Presenter { transport: Transport::Http, launch: None };
        let socket = Presenter::on_socket(None);
        let token = |transport: Transport| {
            Secret::new(format!("{}0123456789abcdef", transport.session_token_prefix()))
        };
        let usable = |presenter: &Presenter<'_>| {
            [Transport::Socket, Transport::Http].map(|opened| presenter.may_use(&token(opened)))
        };
        assert_eq!(usable(&socket), [true, true]);
        assert_eq!(usable(&http), [false, true]);
        // Earlier versions made such tokens on either transport.
        assert!(http.may_use(&Secret::new("sess_0123456789abcdefGHIJKLMNOPQRSTUV")));
    }
}
