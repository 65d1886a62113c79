//! What the process table knows of an instance: facts about processes, nothing about tasks or sessions.

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
    /// Found alive at the start of this daemon, not started by it.
    pub adopted: bool,
    /// The first reason its keeper was told to end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Whether its keeper knows that it authenticated.
    pub is_marked_authenticated: bool,
    /// What keeps it from going its way.
    #[serde(flatten)]
    pub condition: Condition,
    /// The process of its shim, once the shim has written it into its lock. The server is told with the start of the agent.
    #[serde(skip)]
    pub shim: Option<ShimIdentity>,
}

/// Which process a shim is: a pid alone says nothing after that process has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimIdentity {
    pub pid: i32,
    pub start_ticks: u64,
    pub boot_id: String,
    /// Inode of the pid namespace, without which the pid means nothing.
    pub pid_namespace: u64,
}

/// What may be wrong with an instance that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Condition {
    /// Its leader was stopped by a signal, not by us, and waits to be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<Timestamp>,
    /// Something of its tree was sent KILL some seconds ago and lives. It keeps its slot and is asked again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkillable_since: Option<Timestamp>,
    /// It neither called nor printed anything for half of `run.silence_timeout`. Its coordinator knows that, not its keeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

impl Condition {
    /// With its times as another clock shows them.
    pub fn moved(self, clock: impl Fn(Timestamp) -> Timestamp) -> Self {
        Self {
            suspended_since: self.suspended_since.map(&clock),
            unkillable_since: self.unkillable_since.map(&clock),
            silent_since: self.silent_since.map(&clock),
        }
    }
}

words! {
    /// What an exit status alone doesn't tell.
    pub enum ExitHint as "exit hint" {
        /// The kernel killed a process of its tree for want of memory.
        OutOfMemory = "out_of_memory",
        /// KILL, and not from its keeper: from the kernel, for want of memory, or from somebody's hand.
        KilledFromOutside = "killed_from_outside",
        CoreDumped = "core_dumped",
    }
}

/// How far an instance has come.
///
/// ```text
/// Starting ──► Running ──► Exited ──► Ended
///     └───────────┴──────────────────────►  (never ran; lost)
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Its keeper is being started, or is about to start it.
    Starting,
    Running {
        pid: i32,
        started_at: Timestamp,
    },
    /// The leader is gone, something of its tree may live: it still counts.
    Exited {
        pid: i32,
        started_at: Timestamp,
        exit: ExitStatus,
    },
    /// Nothing of it lives. It stays listed until it is forgotten.
    Ended {
        pid: Option<i32>,
        started_at: Option<Timestamp>,
        end: ProcessEnd,
        at: Timestamp,
        /// Processes that lived on when the leader was gone.
        n_leaked: u32,
    },
}

impl Phase {
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

impl Instance {
    /// With its times as another clock shows them.
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

    /// Whether something of it may be alive.
    pub const fn is_live(&self) -> bool {
        !self.phase.is_ended()
    }
}

/// The name by which the kernel knows a keeper (`/proc/<pid>/comm`), exactly: who has one among its ancestors is an agent.
pub const SHIM_COMM: &str = "ac-shim";
/// Variable in the environment of every agent, `<installation id>/<launch id>`: how a daemon finds what it once started.
pub const MARK_VARIABLE: &str = "AGENT_COORDINATOR_MARK";
