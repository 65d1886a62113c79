//! `stop`: the deadlines of the steps that end an agent.

use std::time::Duration;

use super::reader::Section;

/// The deadlines of the steps that end an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The time from SIGTERM to SIGKILL.
    pub timeout: Duration,
    /// The time from SIGTERM to SIGKILL for processes that an agent left behind when it ended.
    pub leak_grace: Duration,
}

impl Default for Stop {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), leak_grace: Duration::from_secs(2) }
    }
}

impl Stop {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let range = Duration::ZERO..=Duration::from_hours(1);
        Self {
            timeout: section.duration("timeout", default.timeout, range.clone()),
            leak_grace: section.duration("leak_grace", default.leak_grace, range),
        }
    }
}
