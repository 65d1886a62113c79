//! What the process table knows of an instance: facts about processes, nothing about tasks or sessions.

use super::id::LaunchId;
use super::key::InstanceKey;
use super::launch::{ExitStatus, ProcessEnd, StopReason};
use super::time::Timestamp;

/// A launch as its coordinator sees it on its own machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub phase: Phase,
    /// Found alive at the start of this daemon, not started by it.
    pub adopted: bool,
    /// The first reason its keeper was told to end it.
    pub stop: Option<StopReason>,
    /// Whether its keeper knows that it authenticated.
    pub is_marked_authenticated: bool,
}

/// How far its process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Its keeper lives; the agent is not reported yet.
    Starting,
    Running {
        pid: i32,
        started_at: Timestamp,
    },
    /// The leader is gone, something of its tree may live.
    Exited {
        pid: i32,
        started_at: Timestamp,
        exit: ExitStatus,
    },
    /// The tree is empty, or there never was one.
    Ended {
        pid: Option<i32>,
        started_at: Option<Timestamp>,
        end: ProcessEnd,
        at: Timestamp,
        n_leaked: u32,
    },
}

impl Instance {
    /// Whether something of it may be alive.
    pub const fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Ended { .. })
    }
}
