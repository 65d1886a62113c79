//! What is remembered of a key between its launches, and the facts by which it is decided whether it may start.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::{Account, Standing};
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
    /// When it failed lately, the oldest first; as many as the start limit counts.
    pub failed_at: Vec<Timestamp>,
    /// It failed too often in too short a time: no start until `resume`, or until a task of it is set in progress again.
    pub suspended_since: Option<Timestamp>,
    /// It is suspended because it can't work as it is configured.
    pub is_misconfigured: bool,
    /// Since when somebody wants it started although no task says so (seed 003, PendingAgentPurpose). Ends when its agent
    /// authenticates, not when a start fails.
    pub wanted_since: Option<Timestamp>,
    /// The number of the last chat message that its agent has answered; 0 before the first.
    pub read_up_to: i64,
    pub revision: i64,
}

impl PairRecord {
    pub const fn new(key: InstanceKey) -> Self {
        Self {
            key,
            held_since: None,
            n_failures: 0,
            last_end_at: None,
            failed_at: Vec::new(),
            suspended_since: None,
            is_misconfigured: false,
            wanted_since: None,
            read_up_to: 0,
            revision: 0,
        }
    }

    /// After the end of a launch that began at `claimed_at`: a failure adds to the row, anything else breaks it, and so does a
    /// run that was stable before it failed.
    pub fn after_end(
        self,
        verdict: Verdict,
        claimed_at: Timestamp,
        at: Timestamp,
        limit: StartLimit,
    ) -> Self {
        let is_misconfigured = match verdict {
            Verdict::Fine => {
                return Self {
                    n_failures: 0,
                    failed_at: Vec::new(),
                    last_end_at: Some(at),
                    ..self
                };
            }
            // It waits for its account, and no longer than that.
            Verdict::AccountFailed => return self,
            Verdict::Failure => false,
            Verdict::Misconfigured => true,
        };
        let was_stable = at.since(claimed_at) >= limit.interval;
        let n_failures = if was_stable { 1 } else { self.n_failures.saturating_add(1) };
        let mut failed_at = self.failed_at;
        // What lies in the future was written by a clock that was wrong.
        failed_at
            .retain(|earlier| *earlier <= at && at.since(*earlier) < limit.interval && !was_stable);
        failed_at.push(at);
        let is_too_often = limit.failures > 0 && failed_at.len() >= limit.failures;
        failed_at.drain(..failed_at.len().saturating_sub(limit.failures));
        let suspended_since =
            self.suspended_since.or((is_too_often || is_misconfigured).then_some(at));
        let is_misconfigured = self.is_misconfigured || is_misconfigured;
        Self {
            n_failures,
            failed_at,
            suspended_since,
            is_misconfigured,
            last_end_at: Some(at),
            ..self
        }
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
        let (n_failures, failed_at) = (0, Vec::new());
        Self {
            held_since: None,
            n_failures,
            failed_at,
            suspended_since: None,
            is_misconfigured: false,
            ..self
        }
    }
}

/// How many failures in how short a time suspend a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartLimit {
    /// 0: any number.
    pub failures: usize,
    /// A run that lasted this long was stable.
    pub interval: Duration,
}

/// How long a pair waits after failures: `initial`, doubled by each further one, and up to a quarter more, which is always the same for
/// one pair, so that pairs that failed together don't start together. The whole wait is at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Backoff {
    pub fn delay(self, n_failures: u32) -> Duration {
        match n_failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => self
                .initial
                .saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(self.max),
        }
    }

    /// When `pair` may start again; `None` if it may at once, also when its last end lies in the future: the clock was wrong
    /// then or is now, and a pair must not wait for a year because of it.
    pub fn until(self, pair: &PairRecord, now: Timestamp) -> Option<Timestamp> {
        let ended = pair.last_end_at.filter(|ended| pair.n_failures > 0 && *ended <= now)?;
        let wait = jittered(self.delay(pair.n_failures), &pair.key).min(self.max);
        Some(ended + wait).filter(|until| now < *until)
    }
}

/// Up to a quarter longer, by a hash (FNV-1a) of the key: chance would need a source, and plans are made from facts alone.
fn jittered(delay: Duration, key: &InstanceKey) -> Duration {
    let hash = key.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let permille = u32::try_from((hash >> 32) % 250).unwrap_or_default();
    delay + delay * permille / 1000
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
    /// Of the agent's provider.
    pub account: Account,
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
        /// It failed too often in too short a time, and waits for a person.
        Suspended = "suspended",
        /// It can't work as it is configured, and waits for a person.
        Misconfigured = "misconfigured",
        /// The account of its provider failed, and waits; or another one is trying whether it works again.
        Parked = "parked",
        /// It failed lately and waits before the next try.
        Backoff = "backoff",
        /// All slots are taken.
        NoFreeSlot = "no_free_slot",
        /// What is free is kept for chats.
        ChatReserve = "chat_reserve",
        /// Its project has as many as it may.
        ProjectLimit = "project_limit",
        /// Its agent has as many as it may.
        AgentLimit = "agent_limit",
        /// Its provider has as many as it may.
        ProviderLimit = "provider_limit",
        /// There is too little free space where the daemon keeps its state.
        LowDisk = "low_disk",
        /// There is too little free memory.
        LowMemory = "low_memory",
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
    /// Its start is to show whether the account of its provider works again: one is enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_probe: bool,
}

impl StartReason {
    /// Returns whether a chat that does not start for this reason also refuses messages.
    pub const fn refuses_messages(self) -> bool {
        matches!(self, Self::Unknown | Self::NotAssigned | Self::Inactive)
    }

    /// Whether coordinators give this reason, and not their server.
    pub const fn is_of_coordinator(self) -> bool {
        matches!(
            self,
            Self::NoFreeSlot
                | Self::ChatReserve
                | Self::ProjectLimit
                | Self::AgentLimit
                | Self::ProviderLimit
                | Self::LowDisk
                | Self::LowMemory
                | Self::NoPasskey
        )
    }
}

impl PairFacts {
    /// The facts judged; `None` where there is no work, or no such agent or project.
    pub fn candidate(self, backoff: Backoff, now: Timestamp) -> Option<Candidate> {
        let keeping = self.rulings(backoff, now).into_iter().find(|ruling| ruling.keeps);
        let (reason, until) =
            keeping.map_or((StartReason::Ready, None), |ruling| (ruling.reason, ruling.until));
        let is_probe = self.account.standing(now) == Standing::MayBeTried;
        let ((_, ai_type), (_, working_directory)) = (self.agent?, self.project?);
        let waiting_since = self.waiting_since?;
        Some(Candidate {
            key: self.key,
            ai_type,
            working_directory,
            waiting_since,
            reason,
            until,
            is_probe,
        })
    }

    /// The first rule that keeps this key from starting, or [`StartReason::Ready`].
    pub fn reason(&self, backoff: Backoff, now: Timestamp) -> StartReason {
        let keeping = self.rulings(backoff, now).into_iter().find(|ruling| ruling.keeps);
        keeping.map_or(StartReason::Ready, |ruling| ruling.reason)
    }

    /// Every rule in its order: what it says of this key.
    pub fn rulings(&self, backoff: Backoff, now: Timestamp) -> [Ruling; 11] {
        let ruling = |reason, keeps| Ruling { reason, keeps, until: None };
        let is_active =
            self.agent.as_ref().is_none_or(|(status, _)| *status == AgentStatus::Active)
                && self.project.as_ref().is_none_or(|(status, _)| *status == ProjectStatus::Active);
        let open = match self.open.as_ref().map(|open| &open.state) {
            Some(LaunchState::Starting { .. }) => ruling(StartReason::Starting, true),
            Some(LaunchState::Running { .. }) => ruling(StartReason::Running, true),
            Some(LaunchState::Stopping { .. } | LaunchState::Ending) => {
                ruling(StartReason::Stopping, true)
            }
            Some(LaunchState::Ended { .. }) | None => ruling(StartReason::Running, false),
        };
        let until = backoff.until(&self.record, now);
        let is_suspended = self.record.suspended_since.is_some();
        let parked_until = match self.account.standing(now) {
            Standing::Parked(until) | Standing::BeingTried(until) => Some(until),
            Standing::Works | Standing::MayBeTried => None,
        };
        [
            ruling(StartReason::Unknown, self.agent.is_none() || self.project.is_none()),
            ruling(StartReason::NotAssigned, !self.is_assigned),
            ruling(StartReason::Inactive, !is_active),
            open,
            ruling(StartReason::NoWork, self.waiting_since.is_none()),
            ruling(StartReason::Held, self.record.held_since.is_some()),
            ruling(StartReason::Suspended, is_suspended && !self.record.is_misconfigured),
            ruling(StartReason::Misconfigured, is_suspended && self.record.is_misconfigured),
            ruling(StartReason::Paused, self.is_paused),
            Ruling { until: parked_until, ..ruling(StartReason::Parked, parked_until.is_some()) },
            Ruling { until, ..ruling(StartReason::Backoff, until.is_some()) },
        ]
    }
}

/// What one rule says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    /// The rule, by the reason that it gives.
    pub reason: StartReason,
    /// Whether it keeps the key from starting.
    pub keeps: bool,
    /// When that is over, where that is known.
    pub until: Option<Timestamp>,
}

#[cfg(test)]
mod tests;
