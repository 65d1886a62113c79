//! What is remembered of a key between its launches, and the facts by which it is decided whether it may start.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::agent::{AgentStatus, ProjectStatus};
use super::id::LaunchId;
use super::key::{InstanceKey, Purpose};
use super::launch::{LaunchState, Verdict};
use super::time::Timestamp;
use super::words::words;

/// What outlives the launches of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairRecord {
    pub key: InstanceKey,
    /// A person stopped it: no start until `resume`, or until a task of it is set in progress again.
    pub held_since: Option<Timestamp>,
    /// Failures in a row since the last success, or since a person said to try again.
    pub n_failures: u32,
    pub last_end_at: Option<Timestamp>,
    /// Since when somebody wants it started although no task says so (seed 003, PendingAgentPurpose). Ends when its agent
    /// authenticates, not when a start fails.
    pub wanted_since: Option<Timestamp>,
    /// The number of the last chat message that its agent has answered; 0 before the first.
    pub read_up_to: i64,
    pub revision: i64,
}

impl PairRecord {
    pub const fn new(key: InstanceKey) -> Self {
        Self { key, held_since: None, n_failures: 0, last_end_at: None, wanted_since: None, read_up_to: 0, revision: 0 }
    }

    /// After the end of a launch: a failure adds to the row, anything else breaks it.
    pub fn after_end(self, verdict: Verdict, at: Timestamp) -> Self {
        let n_failures = match verdict {
            Verdict::Failure => self.n_failures.saturating_add(1),
            Verdict::Fine => 0,
        };
        Self { n_failures, last_end_at: Some(at), ..self }
    }

    pub fn held(self, at: Timestamp) -> Self {
        Self { held_since: self.held_since.or(Some(at)), ..self }
    }

    /// Somebody wants it started.
    pub fn wanted(self, at: Timestamp) -> Self {
        Self { wanted_since: self.wanted_since.or(Some(at)), ..self }
    }

    /// Nobody wants it started any more, or it came.
    pub fn unwanted(self) -> Self {
        Self { wanted_since: None, ..self }
    }

    /// Its agent has answered all messages up to this one.
    pub fn answered(self, up_to: i64) -> Self {
        Self { read_up_to: self.read_up_to.max(up_to), ..self }
    }

    /// Whether what is remembered could start something: a chat that nobody wants is no coordinator's business.
    pub fn concerns_coordinators(&self) -> bool {
        self.key.purpose == Purpose::Task || self.wanted_since.is_some()
    }

    /// A person said to try again.
    pub fn released(self) -> Self {
        Self { held_since: None, n_failures: 0, ..self }
    }
}

/// How long a pair waits after failures: `initial`, doubled by each further one, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Backoff {
    pub fn delay(self, n_failures: u32) -> Duration {
        match n_failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => {
                self.initial.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.max)
            }
        }
    }

    /// When `pair` may start again; `None` if it may at once, also when its last end lies in the future: the clock was wrong
    /// then or is now, and a pair must not wait for a year because of it.
    pub fn until(self, pair: &PairRecord, now: Timestamp) -> Option<Timestamp> {
        let ended = pair.last_end_at.filter(|ended| pair.n_failures > 0 && *ended <= now)?;
        Some(ended + self.delay(pair.n_failures)).filter(|until| now < *until)
    }
}

/// The open launch of a key, as far as the question of its start goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLaunch {
    pub id: LaunchId,
    pub state: LaunchState,
}

/// Everything by which it is decided whether a key may start; read in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFacts {
    pub key: InstanceKey,
    /// `None`: no such agent.
    pub agent: Option<(AgentStatus, String)>,
    /// `None`: no such project.
    pub project: Option<(ProjectStatus, PathBuf)>,
    pub is_assigned: bool,
    /// Since when there is work: for a task, the oldest task in progress; for a chat, the wish for one. `None`: there is none.
    pub waiting_since: Option<Timestamp>,
    pub open: Option<OpenLaunch>,
    pub record: PairRecord,
    pub is_paused: bool,
}

words! {
    /// Why a key may or may not start; without any state of a task, which a coordinator doesn't know (seed 004).
    pub enum StartReason as "start reason" {
        Ready = "ready",
        /// No such agent or project.
        Unknown = "unknown",
        NotAssigned = "not_assigned",
        /// The agent or the project is not active.
        Inactive = "inactive",
        Starting = "starting",
        Running = "running",
        /// On its way out: its tree is not empty yet.
        Stopping = "stopping",
        NoWork = "no_work",
        Paused = "paused",
        Held = "held",
        /// It failed lately and waits before the next try.
        Backoff = "backoff",
        /// All slots are taken.
        NoFreeSlot = "no_free_slot",
        /// The coordinator's configuration has no passkey for the agent (seed 004).
        NoPasskey = "no_passkey",
    }
}

/// A key with work and without an open launch, as its server judges it: what a coordinator needs to know to start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    #[serde(flatten)]
    pub key: InstanceKey,
    pub ai_type: String,
    pub working_directory: PathBuf,
    pub waiting_since: Timestamp,
    /// [`StartReason::Ready`], or what keeps it from starting.
    pub reason: StartReason,
    /// When the reason is over, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl PairFacts {
    /// The facts judged; `None` where there is no work, or no such agent or project.
    pub fn candidate(self, backoff: Backoff, now: Timestamp) -> Option<Candidate> {
        let reason = self.reason(backoff, now);
        let until = backoff.until(&self.record, now).filter(|_| reason == StartReason::Backoff);
        let ((_, ai_type), (_, working_directory)) = (self.agent?, self.project?);
        let waiting_since = self.waiting_since?;
        Some(Candidate { key: self.key, ai_type, working_directory, waiting_since, reason, until })
    }

    /// The first rule that keeps this key from starting, or [`StartReason::Ready`].
    pub fn reason(&self, backoff: Backoff, now: Timestamp) -> StartReason {
        let (Some((agent_status, _)), Some((project_status, _))) = (&self.agent, &self.project) else {
            return StartReason::Unknown;
        };
        if !self.is_assigned {
            return StartReason::NotAssigned;
        }
        if *agent_status != AgentStatus::Active || *project_status != ProjectStatus::Active {
            return StartReason::Inactive;
        }
        match self.open.as_ref().map(|open| &open.state) {
            Some(LaunchState::Starting { .. }) => return StartReason::Starting,
            Some(LaunchState::Running { .. }) => return StartReason::Running,
            Some(LaunchState::Stopping { .. } | LaunchState::Ending) => return StartReason::Stopping,
            Some(LaunchState::Ended { .. }) | None => {}
        }
        if self.waiting_since.is_none() {
            StartReason::NoWork
        } else if self.record.held_since.is_some() {
            StartReason::Held
        } else if self.is_paused {
            StartReason::Paused
        } else if backoff.until(&self.record, now).is_some() {
            StartReason::Backoff
        } else {
            StartReason::Ready
        }
    }
}

#[cfg(test)]
mod tests;
