//! Sessions: one authenticated conversation of an agent, and the record of what it worked on.

use super::activity::{Failure, Usage};
use super::id::{ExecutionId, LaunchId, SessionId, TaskId};
use super::key::InstanceKey;
use super::launch::{Outcome, ReportResult};
use super::refusal::Refusal;
use super::secret::TokenHash;
use super::time::Timestamp;
use super::words::words;

words! {
    /// What ended a session.
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

/// One session. It belongs to exactly one launch and ends with it at the latest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub token: TokenHash,
    pub created_at: Timestamp,
    /// The last call; written behind, at most `session.cleanup_interval` old.
    pub last_seen_at: Timestamp,
    pub ended: Option<(Timestamp, SessionEndReason)>,
    /// The number of the last chat message that it was given; 0 before the first.
    pub handed_out: i64,
    pub revision: i64,
}

impl Session {
    pub fn end(self, reason: SessionEndReason, at: Timestamp) -> Self {
        Self { ended: self.ended.or(Some((at, reason))), ..self }
    }

    /// Whether the session may still be used for a call.
    ///
    /// # Errors
    /// [`Refusal::SessionExpired`] or [`Refusal::SessionEnded`].
    pub fn check_open(&self) -> Result<(), Refusal> {
        match self.ended {
            None => Ok(()),
            Some((_, SessionEndReason::Expired)) => Err(Refusal::SessionExpired),
            Some((_, SessionEndReason::Superseded)) => Err(Refusal::InvalidSession),
            Some((_, SessionEndReason::Reported | SessionEndReason::LoggedOut | SessionEndReason::ProcessExited)) => {
                Err(Refusal::SessionEnded)
            }
        }
    }
}

/// The work of one launch on one task; what it left is the context of the next.
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
    /// How far it has come, as it saved it on the way.
    pub progress: Option<String>,
    /// What it found out, as it saved it on the way.
    pub findings: Option<String>,
    /// How its launch ended; `None` while it lives.
    pub outcome: Option<Outcome>,
    /// What its launch took, and what was wrong with that; from its end on.
    pub usage: Usage,
    pub failure: Option<Failure>,
    pub revision: i64,
}
