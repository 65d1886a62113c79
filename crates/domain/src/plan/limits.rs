//! The limits that a coordinator enforces, with their defaults. `config` declares the keys.

use std::time::Duration;

use super::silence::SilenceLimits;

/// The limits of what is alive at once and of the free resources that a start needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartLimits {
    /// The greatest number of instances in one project; `None` allows any number.
    pub per_project: Option<usize>,
    /// The greatest number of instances of one agent.
    pub per_agent: Option<usize>,
    /// The greatest number of instances of one provider (`ai_type`).
    pub per_provider: Option<usize>,
    /// The number of slots of `max_concurrent` that tasks never take.
    pub chat_reserve: usize,
    /// The least free space on the file system of the state directory for a start, in bytes.
    pub min_free_disk: Option<u64>,
    /// The least free memory for a start, in bytes.
    pub min_free_memory: Option<u64>,
}

impl Default for StartLimits {
    fn default() -> Self {
        Self {
            per_project: None,
            per_agent: None,
            per_provider: None,
            chat_reserve: 0,
            min_free_disk: Some(1 << 30),
            min_free_memory: None,
        }
    }
}

/// The limits of a running agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// The longest time from a report to the stop sequence.
    pub linger: Duration,
    /// The longest time from the start of an agent to its stop; `None` sets no limit.
    pub max_runtime: Option<Duration>,
    /// The longest time from the last sign of life of an agent to its stop.
    pub silence_timeout: SilenceLimits,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            linger: Duration::from_secs(30),
            max_runtime: None,
            silence_timeout: SilenceLimits::AUTO,
        }
    }
}

/// All limits that a coordinator enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The greatest number of instances at the same time. Instances that start or are being ended
    /// count, too.
    pub max_concurrent: usize,
    pub start: StartLimits,
    pub run: RunLimits,
    /// The greatest number of agents that work on tasks in one git work tree, in projects without
    /// clones.
    pub shared_at_once: Option<usize>,
    /// The longest time that a slot waits for the clone of the start that is first in the order.
    pub clone_wait: Duration,
    /// The server's limit that corresponds to `max_runtime`, for an agent with a session.
    pub session_maximum: Option<Duration>,
    /// The server's limit on the time that an agent may take to authenticate.
    pub start_timeout: Option<Duration>,
}

impl StartLimits {
    /// Restricts nothing.
    pub const NONE: Self = Self {
        per_project: None,
        per_agent: None,
        per_provider: None,
        chat_reserve: 0,
        min_free_disk: None,
        min_free_memory: None,
    };
}

impl Limits {
    /// Returns limits of which only `max_concurrent` restricts starts.
    pub const fn of(max_concurrent: usize, linger: Duration) -> Self {
        Self {
            max_concurrent,
            start: StartLimits::NONE,
            run: RunLimits {
                linger,
                max_runtime: None,
                silence_timeout: SilenceLimits { streams: None, others: None },
            },
            shared_at_once: None,
            clone_wait: Duration::ZERO,
            session_maximum: None,
            start_timeout: None,
        }
    }
}
