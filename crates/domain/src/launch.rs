//! The life of one agent instance, from claim to end.
//!
//! ```text
//!  claim            authenticate          report, logout, stop wanted         tree empty
//! (nothing) ──► Starting ─────► Running ─────────────────────────► Stopping ───────────► Ended
//!                  │ stop wanted, start deadline ──────────────────────►│
//!                  │                │ leader exited                     │ leader exited      ▲
//!                  │                └──────────► Ending ◄───────────────┘                    │
//!                  │ leader exited ─────────────►   └────────────── tree empty ──────────────┤
//!                  └─ no process came to be ─────────────────────────────────────────────────┘
//! ```
//!
//! The key and the slot of a launch are free at `Ended`. Then its process tree is empty, or there
//! never was one.

mod endings;
pub mod reported;
mod told;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::activity::{Activity, FailureClass};
use super::conversation::FreshReason;
use super::id::{ConversationId, CoordinatorId, LaunchId, SessionId, TaskId, WorkspaceId};
use super::key::{InstanceKey, Purpose};
use super::secret::TokenHash;
use super::time::Timestamp;

pub use endings::{
    ExitStatus, Outcome, ProcessEnd, ReportResult, StopReason, TimeLimit, Verdict, for_person,
    shortened,
};

/// The state of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LaunchState {
    /// The launch is claimed, and a process may exist. No agent has authenticated yet.
    Starting {
        deadline: Timestamp,
    },
    Running {
        session: SessionId,
    },
    /// The launch is to be ended. Its shim is told at `stop_at`.
    Stopping {
        reason: StopReason,
        /// Servers and coordinators of other versions know it by this name.
        #[serde(rename = "ladder_at")]
        stop_at: Timestamp,
    },
    /// The leader has ended, and other processes of its tree may live.
    Ending,
    Ended {
        outcome: Outcome,
        at: Timestamp,
    },
}

impl LaunchState {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Stopping { .. } => "stopping",
            Self::Ending => "ending",
            Self::Ended { .. } => "ended",
        }
    }
}

/// One launch, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub id: LaunchId,
    pub key: InstanceKey,
    /// The coordinator that keeps its process. `None` if a person started the agent by hand, or if
    /// a client gave no coordinator id.
    pub coordinator: Option<CoordinatorId>,
    pub ai_type: String,
    /// The hash that recognizes the launch ticket; `None` if no ticket was given out.
    pub ticket: Option<TokenHash>,
    pub claimed_at: Timestamp,
    pub state: LaunchState,
    /// The process id of the agent, after its coordinator reported it.
    pub pid: Option<i32>,
    pub started_at: Option<Timestamp>,
    pub authenticated_at: Option<Timestamp>,
    /// The task that it works on, from its first `get_my_task` on.
    pub task: Option<TaskId>,
    /// The task by which its start was ordered. It is given this task first.
    pub claimed_task: Option<TaskId>,
    /// The clone that it works in; `None` for the directory of its project.
    pub workspace: Option<WorkspaceId>,
    /// The conversation of its CLI, if that can be continued.
    pub conversation: Option<ConversationId>,
    /// The reason why it does not continue the conversation before it. `None` if it continues it,
    /// or if its CLI has no conversation and had none before.
    pub fresh_because: Option<FreshReason>,
    pub report: Option<ReportResult>,
    /// The first reason to stop it. It stays after the leader has ended.
    pub stop_reason: Option<StopReason>,
    /// True if people ended its chat, or the work of its pair, before it was on its way out or
    /// after. Then its agent is not wanted again for what it leaves unread.
    pub is_chat_over: bool,
    pub exit: ExitStatus,
    /// The activity that its output told, written at its end. Until then the service has the newest
    /// activity.
    pub activity: Activity,
    /// The number of open notices for it. The next answers to its agent announce them.
    pub n_notices: u32,
    /// Counts the writes of this row. A commit names the revision that it has seen.
    pub revision: i64,
}

/// The times after which a claim lapses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LapseLimits {
    /// The time to authenticate.
    pub start: Duration,
    /// The time to end after the agent is told to.
    pub stop: Duration,
    /// The time that is added to both.
    pub margin: Duration,
}

/// The facts of an open launch that a coordinator needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFacts {
    #[serde(rename = "launch_id")]
    pub id: LaunchId,
    #[serde(flatten)]
    pub key: InstanceKey,
    /// The coordinator that keeps its process.
    #[serde(rename = "coordinator_id", default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorId>,
    /// The provider that it was started with; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ai_type: String,
    #[serde(flatten)]
    pub state: LaunchState,
    /// The process id of the agent, after its coordinator reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    pub is_authenticated: bool,
    /// The time since its agent called, in milliseconds, by a clock that cannot be set. It is 0
    /// while a call is being held. Only a running launch has it, and only if its server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// True if its process is reported, but this run of the server was not told which process is
    /// its shim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shim_unknown: bool,
    /// True if it is a chat in which all messages are answered, that has been silent for a while,
    /// and that has no open view.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_at_rest: bool,
}

/// An event in the life of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchEvent {
    ProcessStarted {
        pid: i32,
        at: Timestamp,
    },
    Authenticated {
        session: SessionId,
        at: Timestamp,
    },
    Reported {
        result: ReportResult,
        at: Timestamp,
        linger: Duration,
    },
    LoggedOut {
        at: Timestamp,
        linger: Duration,
    },
    StopWanted {
        reason: StopReason,
        at: Timestamp,
        /// The time that it may still take to end by itself.
        exit_grace: Duration,
    },
    /// People ended its chat, or the work of its pair.
    ChatEnded {
        at: Timestamp,
        /// The time that it may still take to end by itself.
        exit_grace: Duration,
    },
    /// The leader has ended.
    Exited {
        exit: ExitStatus,
    },
    /// The tree is empty, or there never was one.
    ProcessEnded {
        end: ProcessEnd,
        at: Timestamp,
    },
    /// The session of a launch without a shim was silent for too long.
    SessionExpired {
        at: Timestamp,
    },
    /// No process was reported for the claim in time.
    ClaimLapsed {
        at: Timestamp,
    },
}

/// The error for an event that is impossible in the state of the launch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("launch {launch} is {state}: {event} is not possible")]
pub struct InvalidTransition {
    pub launch: LaunchId,
    pub state: &'static str,
    pub event: &'static str,
}

impl LaunchEvent {
    const fn as_str(&self) -> &'static str {
        match self {
            Self::ProcessStarted { .. } => "process started",
            Self::Authenticated { .. } => "authentication",
            Self::Reported { .. } => "report",
            Self::LoggedOut { .. } => "logout",
            Self::StopWanted { .. } => "stop",
            Self::ChatEnded { .. } => "end of the chat",
            Self::Exited { .. } => "exit",
            Self::ProcessEnded { .. } => "end of the process",
            Self::SessionExpired { .. } => "end of the session",
            Self::ClaimLapsed { .. } => "lapse of the claim",
        }
    }
}

impl From<Launch> for LaunchFacts {
    fn from(launch: Launch) -> Self {
        Self {
            is_authenticated: launch.authenticated_at.is_some(),
            idle_ms: None,
            is_shim_unknown: false,
            is_at_rest: false,
            id: launch.id,
            key: launch.key,
            coordinator: launch.coordinator,
            ai_type: launch.ai_type,
            state: launch.state,
            pid: launch.pid,
        }
    }
}

impl Launch {
    /// Returns whether this coordinator may report on its process. If a launch has a shim, only
    /// that shim reports on it. Otherwise its key could be freed while its agent lives.
    pub fn is_reported_by(&self, coordinator: Option<&CoordinatorId>) -> bool {
        self.coordinator.is_none() || self.coordinator.as_ref() == coordinator
    }

    /// Returns how and when it ended, if it has ended.
    pub const fn as_ended(&self) -> Option<(&Outcome, Timestamp)> {
        match &self.state {
            LaunchState::Ended { outcome, at } => Some((outcome, *at)),
            LaunchState::Starting { .. }
            | LaunchState::Running { .. }
            | LaunchState::Stopping { .. }
            | LaunchState::Ending => None,
        }
    }

    /// Returns a new claim without a coordinator. The coordinator that keeps it is added later.
    pub fn claimed(
        id: LaunchId,
        key: InstanceKey,
        ai_type: String,
        claimed_at: Timestamp,
        deadline: Timestamp,
    ) -> Self {
        Self {
            id,
            key,
            coordinator: None,
            ai_type,
            ticket: None,
            claimed_at,
            state: LaunchState::Starting { deadline },
            pid: None,
            started_at: None,
            authenticated_at: None,
            task: None,
            claimed_task: None,
            workspace: None,
            conversation: None,
            fresh_because: None,
            report: None,
            stop_reason: None,
            is_chat_over: false,
            exit: ExitStatus::default(),
            activity: Activity::default(),
            n_notices: 0,
            revision: 0,
        }
    }

    /// Returns whether no process was reported for longer than one could live unnoticed. A start
    /// deadline ends a process that did not authenticate by `start` and `stop`, and a process that
    /// is told to stop has ended `stop` later. A running launch never lapses. `claimed_for` and
    /// `stopping_for` are the times since it was claimed and since its stop was due. They are
    /// measured by a clock that cannot be set.
    pub fn has_lapsed(
        &self,
        limits: LapseLimits,
        claimed_for: Duration,
        stopping_for: Duration,
    ) -> bool {
        let LapseLimits { start, stop, margin } = limits;
        let is_old = self.pid.is_none() && claimed_for > start + stop + margin;
        match self.state {
            LaunchState::Starting { .. } => is_old,
            LaunchState::Stopping { .. } => is_old && stopping_for > stop + margin,
            LaunchState::Running { .. } | LaunchState::Ending | LaunchState::Ended { .. } => false,
        }
    }

    pub const fn is_open(&self) -> bool {
        !matches!(self.state, LaunchState::Ended { .. })
    }

    /// Returns whether it continues the conversation of a launch before it.
    pub const fn is_continued(&self) -> bool {
        self.conversation.is_some() && self.fresh_because.is_none()
    }

    /// Returns whether a coordinator keeps a process for it, or may come to keep one.
    pub const fn is_kept(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Returns how the end of this launch counts for its pair. A task launch that never took its
    /// task left the task as it was, regardless of its report. Without a pause it would be started
    /// again at once, without end. If no work is left for its pair (`leaves_work` is false), there
    /// was no task to take, or people took it away: it was right to exit.
    pub fn verdict(&self, outcome: &Outcome, leaves_work: bool) -> Verdict {
        if self.key.purpose == Purpose::Check {
            return match outcome {
                Outcome::Stopped(_) | Outcome::Completed | Outcome::Failed => Verdict::Fine,
                Outcome::StartFailed(_) => self.failed_verdict(outcome),
                _ => Verdict::Failure,
            };
        }
        let was_idle = self.key.purpose == Purpose::Task && self.task.is_none();
        match outcome {
            Outcome::Stopped(_) => Verdict::Fine,
            Outcome::Completed | Outcome::Blocked => {
                if was_idle && leaves_work {
                    Verdict::Failure
                } else {
                    Verdict::Fine
                }
            }
            Outcome::ExitedWithoutReport if !leaves_work && self.activity.failure.is_none() => {
                Verdict::Fine
            }
            Outcome::Failed
            | Outcome::ExitedWithoutReport
            | Outcome::NeverAuthenticated
            | Outcome::StartFailed(_)
            | Outcome::TimedOut(_)
            | Outcome::Lost => self.failed_verdict(outcome),
        }
    }

    /// Returns the verdict for a launch that failed: the cause is the agent, its account or its
    /// configuration.
    pub fn failed_verdict(&self, outcome: &Outcome) -> Verdict {
        if outcome.is_for_person() {
            return Verdict::Misconfigured;
        }
        match self.activity.failure.map(|failure| failure.class) {
            Some(FailureClass::Auth | FailureClass::Quota) => Verdict::AccountFailed,
            Some(FailureClass::Config) => Verdict::Misconfigured,
            Some(FailureClass::Overload | FailureClass::Crash) | None => Verdict::Failure,
        }
    }

    /// Returns the launch after `event`. An event that already happened changes nothing. No event
    /// leads out of `Ended`.
    ///
    /// # Errors
    /// Returns [`InvalidTransition`] for an impossible event, such as a call of an agent that is
    /// stopping or ended.
    pub fn on(self, event: &LaunchEvent) -> Result<Self, InvalidTransition> {
        use LaunchEvent as E;
        use LaunchState as S;
        let impossible = |launch: &Self, event: &LaunchEvent| InvalidTransition {
            launch: launch.id.clone(),
            state: launch.state.as_str(),
            event: event.as_str(),
        };
        match (&self.state, event) {
            // A report about the process is accepted in every open state, and ignored after the
            // end.
            (
                S::Ended { .. },
                E::ProcessStarted { .. } | E::Exited { .. } | E::ProcessEnded { .. },
            ) => Ok(self),
            (
                S::Starting { .. } | S::Running { .. } | S::Stopping { .. } | S::Ending,
                E::ProcessStarted { pid, at },
            ) => Ok(Self { pid: Some(*pid), started_at: self.started_at.or(Some(*at)), ..self }),
            (
                S::Starting { .. } | S::Running { .. } | S::Stopping { .. } | S::Ending,
                E::Exited { exit },
            ) => Ok(Self { exit: *exit, state: S::Ending, ..self }),
            (
                S::Starting { .. } | S::Running { .. } | S::Stopping { .. } | S::Ending,
                E::ProcessEnded { end, at },
            ) => {
                let end = end.clone();
                let at = *at;
                Ok(self.ended_with(end, at))
            }

            (S::Starting { .. } | S::Running { .. }, E::Authenticated { session, at }) => {
                Ok(Self {
                    authenticated_at: self.authenticated_at.or(Some(*at)),
                    state: S::Running { session: session.clone() },
                    ..self
                })
            }
            (S::Stopping { .. } | S::Ending | S::Ended { .. }, E::Authenticated { .. }) => {
                Err(impossible(&self, event))
            }

            (S::Running { .. }, E::Reported { result, at, linger }) => {
                let result = *result;
                let at = *at;
                let linger = *linger;
                Ok(Self { report: Some(result), ..self }.leaving(StopReason::Reported, at, linger))
            }
            (S::Running { .. }, E::LoggedOut { at, linger }) => {
                let at = *at;
                let linger = *linger;
                Ok(self.leaving(StopReason::LoggedOut, at, linger))
            }
            // A wanted stop does not refuse an agent that still has its session: its report counts.
            (S::Stopping { .. } | S::Ending, E::Reported { result, .. }) => {
                Ok(Self { report: self.report.or(Some(*result)), ..self })
            }
            (S::Stopping { .. } | S::Ending, E::LoggedOut { .. }) => Ok(self),
            (S::Starting { .. } | S::Ended { .. }, E::Reported { .. } | E::LoggedOut { .. }) => {
                Err(impossible(&self, event))
            }

            (S::Starting { .. } | S::Running { .. }, E::StopWanted { reason, at, exit_grace }) => {
                let reason = *reason;
                let at = *at;
                let exit_grace = *exit_grace;
                Ok(self.leaving(reason, at, exit_grace))
            }
            // A stop while it lingers keeps the reason and shortens the exit grace.
            (
                S::Stopping { reason, stop_at },
                E::StopWanted { at, exit_grace, .. } | E::ChatEnded { at, exit_grace },
            ) => {
                let reason = *reason;
                let stop_at = (*stop_at).min(*at + *exit_grace);
                let is_chat_over = self.is_chat_over || matches!(event, E::ChatEnded { .. });
                Ok(Self { state: S::Stopping { reason, stop_at }, is_chat_over, ..self })
            }
            (S::Starting { .. } | S::Running { .. }, E::ChatEnded { at, exit_grace }) => {
                let at = *at;
                let exit_grace = *exit_grace;
                Ok(Self { is_chat_over: true, ..self }.leaving(
                    StopReason::ChatEnded,
                    at,
                    exit_grace,
                ))
            }
            (S::Ending, E::ChatEnded { .. }) => Ok(Self { is_chat_over: true, ..self }),
            (S::Ending, E::StopWanted { .. })
            | (S::Ended { .. }, E::StopWanted { .. } | E::ChatEnded { .. }) => Ok(self),

            (
                S::Starting { .. } | S::Running { .. } | S::Stopping { .. } | S::Ending,
                E::SessionExpired { at },
            ) => {
                let at = *at;
                Ok(self.end(Outcome::TimedOut(TimeLimit::SessionIdle), at))
            }
            (S::Starting { .. } | S::Stopping { .. }, E::ClaimLapsed { at }) => {
                let at = *at;
                let end = ProcessEnd::StartFailed(
                    "no coordinator reported a process for this claim".to_owned(),
                );
                Ok(self.ended_with(end, at))
            }
            (S::Running { .. } | S::Ending, E::ClaimLapsed { .. }) => Err(impossible(&self, event)),
            (S::Ended { .. }, E::SessionExpired { .. } | E::ClaimLapsed { .. }) => Ok(self),
        }
    }

    /// Returns the launch on its way out. Without a shim there is no process to wait for, so it
    /// ends at once.
    fn leaving(self, reason: StopReason, at: Timestamp, linger: Duration) -> Self {
        let launch = Self { stop_reason: self.stop_reason.or(Some(reason)), ..self };
        if launch.is_kept() {
            Self { state: LaunchState::Stopping { reason, stop_at: at + linger }, ..launch }
        } else {
            launch.ended_with(ProcessEnd::Exited(ExitStatus::default()), at)
        }
    }

    fn ended_with(self, end: ProcessEnd, at: Timestamp) -> Self {
        let exit = end.exit().unwrap_or(self.exit);
        let is_lost = end == ProcessEnd::Lost;
        let outcome = self.outcome_of(end);
        let mut activity = self.activity.clone().at_end(&outcome, exit, self.stop_reason);
        if is_lost || outcome == Outcome::Lost || exit.is_by_signal() {
            activity.usage = activity.usage.of_killed();
        }
        Self { exit, activity, ..self }.end(outcome, at)
    }

    fn end(self, outcome: Outcome, at: Timestamp) -> Self {
        Self { state: LaunchState::Ended { outcome, at }, ..self }
    }

    /// Returns the outcome. The report counts most, then our reason to end it, then the exit of the
    /// process.
    fn outcome_of(&self, end: ProcessEnd) -> Outcome {
        match (self.report, self.stop_reason) {
            (Some(ReportResult::Success), _) => return Outcome::Completed,
            (Some(ReportResult::Failed), _) => return Outcome::Failed,
            (Some(ReportResult::Blocked), _) => return Outcome::Blocked,
            (None, Some(StopReason::LoggedOut)) if self.key.purpose == Purpose::Chat => {
                return Outcome::Completed;
            }
            // The start deadline of a check is the time limit of its command.
            (None, Some(StopReason::StartTimeout)) if self.key.purpose == Purpose::Check => {
                return Outcome::TimedOut(TimeLimit::Check);
            }
            (None, Some(StopReason::StartTimeout)) => return Outcome::NeverAuthenticated,
            (None, Some(StopReason::SessionMaximum)) => {
                return Outcome::TimedOut(TimeLimit::SessionMaximum);
            }
            (None, Some(StopReason::RunMaximum)) => {
                return Outcome::TimedOut(TimeLimit::RunMaximum);
            }
            (None, Some(StopReason::Silence)) => return Outcome::TimedOut(TimeLimit::Silence),
            (None, Some(StopReason::Unknown)) => return Outcome::Lost,
            (None, Some(StopReason::ChatEnded | StopReason::ChatIdle)) => {
                return Outcome::Completed;
            }
            (
                None,
                Some(
                    reason @ (StopReason::Person
                    | StopReason::StopAll
                    | StopReason::Shutdown
                    | StopReason::NoticeIgnored
                    | StopReason::Noticed
                    | StopReason::Unassigned
                    | StopReason::Closed
                    | StopReason::Gone
                    | StopReason::Moved
                    | StopReason::Paused),
                ),
            ) => return Outcome::Stopped(reason),
            (None, Some(StopReason::Reported | StopReason::LoggedOut) | None) => {}
        }
        match end {
            ProcessEnd::StartFailed(reason) => Outcome::StartFailed(reason),
            ProcessEnd::Lost => Outcome::Lost,
            ProcessEnd::StartDeadlinePassed if self.key.purpose == Purpose::Check => {
                Outcome::TimedOut(TimeLimit::Check)
            }
            // A signal that ends a check is no verdict: memory may have run out.
            ProcessEnd::Exited(exit) if self.key.purpose == Purpose::Check => {
                match exit.exit_code {
                    Some(0) => Outcome::Completed,
                    Some(_) => Outcome::Failed,
                    None => Outcome::ExitedWithoutReport,
                }
            }
            ProcessEnd::StartDeadlinePassed => Outcome::NeverAuthenticated,
            ProcessEnd::Exited(_) if self.authenticated_at.is_none() => Outcome::NeverAuthenticated,
            ProcessEnd::Exited(_) => Outcome::ExitedWithoutReport,
        }
    }
}

#[cfg(test)]
mod tests;
