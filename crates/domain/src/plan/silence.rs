//! Decides when an agent that neither calls nor prints anything counts as hung.

use std::time::Duration;

use super::Elapsed;
use crate::launch::{LaunchFacts, LaunchState};

/// The time from the first look at a silent agent to the second, which decides. By then all calls
/// and output that arrived while this program did not run have been read.
pub const SECOND_LOOK: Duration = Duration::from_secs(2);

/// The longest time from the last sign of life of an agent to its stop; `None` sets no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SilenceLimits {
    /// The limit for agents whose output is a stream of events.
    pub streams: Option<Duration>,
    /// The limit for all other agents.
    pub others: Option<Duration>,
}

impl SilenceLimits {
    /// The default. The output of a preset is a stream of events, and a preset prints more often
    /// than this unless it runs a command.
    pub const AUTO: Self = Self { streams: Some(Duration::from_mins(30)), others: None };

    /// Returns the same limit for all agents.
    pub const fn all(limit: Option<Duration>) -> Self {
        Self { streams: limit, others: limit }
    }

    pub const fn of(self, elapsed: &Elapsed) -> Option<Duration> {
        if elapsed.is_stream { self.streams } else { self.others }
    }
}

/// Returns the time for which an agent neither called nor printed anything; `None` if that is not
/// known.
pub fn silence(elapsed: &Elapsed, launch: &LaunchFacts) -> Option<Duration> {
    let idle = launch.idle_ms.filter(|_| matches!(launch.state, LaunchState::Running { .. }))?;
    Some(elapsed.quiet?.min(Duration::from_millis(idle)))
}

/// Returns whether this silence is worth a warning. It is, from half of the limit that ends the
/// agent.
pub fn is_long(silence: Duration, limit: Duration) -> bool {
    silence >= limit / 2
}

/// Returns whether the children of an agent were at work, by the processor time that they used. A
/// process that only waits uses less.
pub fn is_work(used: Duration, within: Duration) -> bool {
    used >= within / 100
}

/// Returns the time until a silent agent must be looked at again or ended; `None` without a limit.
pub fn time_left(
    elapsed: &Elapsed,
    launch: &LaunchFacts,
    limits: SilenceLimits,
) -> Option<Duration> {
    let limit = limits.of(elapsed)?;
    if let Some(suspected) = elapsed.suspected {
        return Some(SECOND_LOOK.saturating_sub(suspected));
    }
    let silence = silence(elapsed, launch)?;
    let next = if is_long(silence, limit) { limit } else { limit / 2 };
    Some(next.saturating_sub(silence).max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_a_hundredth_of_a_processor() {
        let minute = Duration::from_mins(1);
        assert!(is_work(Duration::from_millis(600), minute));
        assert!(!is_work(Duration::from_millis(599), minute));
    }

    #[test]
    fn each_kind_of_output_has_its_limit() {
        let limits = SilenceLimits { streams: Some(Duration::from_mins(30)), others: None };
        let elapsed = |is_stream| Elapsed { is_stream, ..Elapsed::default() };
        assert_eq!(limits.of(&elapsed(true)), Some(Duration::from_mins(30)));
        assert_eq!(limits.of(&elapsed(false)), None);
    }
}
