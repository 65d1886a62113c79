//! The facts of the process table about an instance. They concern processes only, not tasks or
//! sessions.

use serde::{Deserialize, Serialize};

use super::id::LaunchId;
use super::key::InstanceKey;
use super::launch::{ExitStatus, ProcessEnd, StopReason};
use super::time::Timestamp;
use super::words::words;

/// A launch as its coordinator sees it on its own machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    #[serde(rename = "launch_id")]
    pub launch: LaunchId,
    #[serde(flatten)]
    pub key: InstanceKey,
    #[serde(flatten)]
    pub phase: Phase,
    /// True if it was found alive at the start of this daemon, which did not start it.
    pub adopted: bool,
    /// The first reason for which its shim was told to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// True if its shim knows that it authenticated.
    pub is_marked_authenticated: bool,
    /// The problems of the instance while it lives.
    #[serde(flatten)]
    pub condition: Condition,
    /// The process of its shim, after the shim has written it into its lock. The server gets it
    /// with the report that the agent started.
    #[serde(skip)]
    pub shim: Option<ShimIdentity>,
}

/// The identity of the process of a shim. A pid alone has no meaning after that process has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimIdentity {
    pub pid: i32,
    pub start_ticks: u64,
    pub boot_id: String,
    /// The inode of the pid namespace, without which the pid has no meaning.
    pub pid_namespace: u64,
}

/// The problems that a living instance may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Condition {
    /// The time when its leader was stopped by a signal that was not ours. It waits to be
    /// continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<Timestamp>,
    /// Set while a process of its tree lives that was sent a KILL signal some seconds ago. The
    /// instance keeps its slot, and the signal is sent again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkillable_since: Option<Timestamp>,
    /// Set while it is silent: it neither called nor printed anything for half of
    /// `run.silence_timeout`. Its coordinator knows that, not its shim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

impl Condition {
    /// Returns the value with its times converted to another clock.
    pub fn moved(self, clock: impl Fn(Timestamp) -> Timestamp) -> Self {
        Self {
            suspended_since: self.suspended_since.map(&clock),
            unkillable_since: self.unkillable_since.map(&clock),
            silent_since: self.silent_since.map(&clock),
        }
    }
}

words! {
    /// A fact about an exit that the exit status does not contain.
    pub enum ExitHint as "exit hint" {
        /// The kernel killed a process of its tree for want of memory.
        OutOfMemory = "out_of_memory",
        /// SIGKILL came from outside the shim: from the kernel, if memory was short, or from another
        /// process.
        KilledFromOutside = "killed_from_outside",
        CoreDumped = "core_dumped",
    }
}

/// The progress of an instance.
///
/// ```text
/// Starting ──► Running ──► Exited ──► Ended
///     └───────────┴──────────────────────►  (never ran; lost)
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Its shim is being started, or is about to start the agent.
    Starting,
    Running {
        pid: i32,
        started_at: Timestamp,
    },
    /// The leader has ended. A process of its tree may live, so the instance still counts.
    Exited {
        pid: i32,
        started_at: Timestamp,
        exit: ExitStatus,
    },
    /// No process of it lives. It stays listed until it is forgotten.
    Ended {
        pid: Option<i32>,
        started_at: Option<Timestamp>,
        end: ProcessEnd,
        at: Timestamp,
        /// The number of processes that lived on after the leader ended.
        n_leaked: u32,
    },
}

impl Phase {
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

impl Instance {
    /// Returns the value with its times converted to another clock.
    pub fn moved(self, clock: impl Fn(Timestamp) -> Timestamp) -> Self {
        let phase = match self.phase {
            Phase::Starting => Phase::Starting,
            Phase::Running { pid, started_at } => {
                Phase::Running { pid, started_at: clock(started_at) }
            }
            Phase::Exited { pid, started_at, exit } => {
                Phase::Exited { pid, started_at: clock(started_at), exit }
            }
            Phase::Ended { pid, started_at, end, at, n_leaked } => Phase::Ended {
                pid,
                started_at: started_at.map(&clock),
                end,
                at: clock(at),
                n_leaked,
            },
        };
        Self { phase, condition: self.condition.moved(clock), ..self }
    }

    /// Returns whether a process of it may be alive.
    pub const fn is_live(&self) -> bool {
        !self.phase.is_ended()
    }
}

/// The exact name by which the kernel knows a shim (`/proc/<pid>/comm`). A process with such an
/// ancestor is an agent.
pub const SHIM_COMM: &str = "ac-shim";
/// The variable in the environment of every agent, with the value `<installation id>/<launch id>`.
/// By it a daemon finds the processes that it once started.
pub const MARK_VARIABLE: &str = "AGENT_COORDINATOR_MARK";
