//! The types for the end of launches: the reason to stop one, its outcome, and the effect on the
//! next start.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason to end an agent before it ends by itself. The first reason wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It reported its result, and has `run.linger` to end by itself.
    Reported,
    /// It called `logout`, and has `run.linger` to end by itself.
    LoggedOut,
    /// A person asked for it (`stop AGENT PROJECT`).
    Person,
    /// A person asked to stop everything (`stop --all`).
    StopAll,
    /// The daemon ends and its policy is to end its agents.
    Shutdown,
    /// It was told of a change of its work and did not end its session within `notice.grace`.
    NoticeIgnored,
    /// It was told to stop and logged out.
    Noticed,
    /// A person ended the chat, or the work of its pair. Its agent is not wanted again.
    ChatEnded,
    /// The chat had no message for `chat.idle_timeout`.
    ChatIdle,
    /// It did not authenticate by `start.timeout`.
    StartTimeout,
    /// Its session is older than `session.max_timeout`.
    SessionMaximum,
    /// Its process runs for longer than `run.max_runtime`.
    RunMaximum,
    /// It neither called nor printed anything for `run.silence_timeout`.
    Silence,
    /// The bot was taken off the item of a forge that it worked on.
    Unassigned,
    /// The item that it worked on was closed.
    Closed,
    /// The item that it worked on is gone.
    Gone,
    /// The item that it worked on is part of another repository now.
    Moved,
    /// Its work was paused before it asked for its work.
    Paused,
    /// The server does not know the launch any more, or knows it as ended.
    Unknown,
}

impl StopReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::LoggedOut => "logged_out",
            Self::Person => "person",
            Self::StopAll => "stop_all",
            Self::Shutdown => "shutdown",
            Self::NoticeIgnored => "notice_ignored",
            Self::Noticed => "noticed",
            Self::ChatEnded => "chat_ended",
            Self::ChatIdle => "chat_idle",
            Self::StartTimeout => "start_timeout",
            Self::SessionMaximum => "session_maximum",
            Self::RunMaximum => "run_maximum",
            Self::Silence => "silence",
            Self::Unassigned => "unassigned",
            Self::Closed => "closed",
            Self::Gone => "gone",
            Self::Moved => "moved",
            Self::Paused => "paused",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The limit of time that ended a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimit {
    /// `session.default_timeout`: a session without a shim made no call for that long.
    SessionIdle,
    /// `session.max_timeout`.
    SessionMaximum,
    /// `run.max_runtime`.
    RunMaximum,
    /// `run.silence_timeout`.
    Silence,
    /// The `timeout` of a check.
    Check,
}

impl TimeLimit {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SessionIdle => "session_idle",
            Self::SessionMaximum => "session_maximum",
            Self::RunMaximum => "run_maximum",
            Self::Silence => "silence",
            Self::Check => "check",
        }
    }
}

/// The outcome of a launch. Success is what the server saw (`report_completed`), never an exit
/// code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    /// It reported success, or its chat ended normally.
    Completed,
    /// It reported that it is blocked.
    Blocked,
    /// It reported failure.
    Failed,
    Stopped(StopReason),
    /// It authenticated and ended without a report, with any exit code.
    ExitedWithoutReport,
    /// It ended, or was ended, without ever authenticating.
    NeverAuthenticated,
    /// No agent process was started. The text says which object failed and how.
    StartFailed(String),
    TimedOut(TimeLimit),
    /// Its end was not observed: its shim was killed, or its files are gone.
    Lost,
}

/// The end of the reason of a failed start that no further attempt changes.
const FOR_PERSON: &str = "; only a person can mend that";

/// Returns the reason of a failed start that no further attempt changes.
pub fn for_person(reason: &str) -> String {
    format!("{reason}{FOR_PERSON}")
}

/// Returns the reason of a failed start in at most `n` characters. It still tells whether a further
/// attempt can change it.
pub fn shortened(reason: &str, n: usize) -> String {
    match reason.strip_suffix(FOR_PERSON) {
        Some(reason) => {
            let n = n.saturating_sub(FOR_PERSON.len());
            for_person(&reason.chars().take(n).collect::<String>())
        }
        None => reason.chars().take(n).collect(),
    }
}

impl Outcome {
    /// Returns whether no further attempt changes the outcome of a failed start.
    pub(super) fn is_for_person(&self) -> bool {
        matches!(self, Self::StartFailed(reason) if reason.ends_with(FOR_PERSON))
    }

    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
            Self::Stopped(_) => "stopped",
            Self::ExitedWithoutReport => "exited_without_report",
            Self::NeverAuthenticated => "never_authenticated",
            Self::StartFailed(_) => "start_failed",
            Self::TimedOut(_) => "timed_out",
            Self::Lost => "lost",
        }
    }

    /// The words of the outcomes that [`Outcome::is_bad`] means.
    pub const BAD: [&str; 6] = [
        "failed",
        "exited_without_report",
        "never_authenticated",
        "start_failed",
        "timed_out",
        "lost",
    ];

    /// Returns whether the launch ended so that people want to look at it.
    pub const fn is_bad(&self) -> bool {
        match self {
            Self::Completed | Self::Blocked | Self::Stopped(_) => false,
            Self::Failed
            | Self::ExitedWithoutReport
            | Self::NeverAuthenticated
            | Self::StartFailed(_)
            | Self::TimedOut(_)
            | Self::Lost => true,
        }
    }

    /// Returns the detail behind the word, if there is one.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Stopped(reason) => Some(reason.to_string()),
            Self::StartFailed(reason) => Some(reason.clone()),
            Self::TimedOut(limit) => Some(limit.as_str().to_owned()),
            _ => None,
        }
    }
}

/// The effect of an end on the next start of its pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// The pair waits before it is started again. The wait grows with each failure in a row.
    Failure,
    /// Its account failed, and all agents with this account wait. The end says nothing about the
    /// pair.
    AccountFailed,
    /// It cannot work as it is configured, so the pair waits for a person.
    Misconfigured,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        self.reason().map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

/// The result that an agent reports (`report_completed`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportResult {
    Success,
    Failed,
    Blocked,
}

impl ReportResult {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
        }
    }
}

/// The exit of the leading process of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExitStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

impl ExitStatus {
    /// Returns whether a signal ended the process. A shell or a CLI that handles the signal exits
    /// with 128 plus its number.
    pub const fn is_by_signal(self) -> bool {
        self.signal.is_some() || matches!(self.exit_code, Some(129..=159))
    }
}

/// The report of a shim about the end of the whole process tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessEnd {
    /// The leader ran and exited, and its tree is empty.
    Exited(ExitStatus),
    /// No agent process was started. The text says which object failed and how.
    StartFailed(String),
    /// The shim did not execute the agent, because the start deadline had passed. Shims and daemons
    /// of other versions know it by this name.
    #[serde(rename = "fuse_burnt")]
    StartDeadlinePassed,
    /// The end was not observed.
    Lost,
}

impl ProcessEnd {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::StartFailed(_) => "start_failed",
            Self::StartDeadlinePassed => "fuse_burnt",
            Self::Lost => "lost",
        }
    }

    /// Returns the exit of the leader, if it ran.
    pub const fn exit(&self) -> Option<ExitStatus> {
        match self {
            Self::Exited(exit) => Some(*exit),
            Self::StartFailed(_) | Self::StartDeadlinePassed | Self::Lost => None,
        }
    }
}
