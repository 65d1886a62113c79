//! `start`: the limits of a start.

use std::time::Duration;

use super::reader::Section;

/// Limits of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The time from the claim of a start to its authentication. An agent that takes longer is
    /// ended.
    pub timeout: Duration,
    /// The number of failures within `interval` that suspend an agent in a project until a person
    /// resumes it; 0 allows any number.
    pub limit: usize,
    /// The time in which failures are counted. A run that lasts this long was stable.
    pub interval: Duration,
}

impl Default for Start {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(2), limit: 5, interval: Duration::from_mins(10) }
    }
}

impl Start {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let range = || Duration::from_secs(1)..=Duration::from_hours(24);
        let default = Self::default();
        Self {
            timeout: section.duration("timeout", default.timeout, range()),
            limit: section.integer("limit", default.limit, 0..=1000),
            interval: section.duration("interval", default.interval, range()),
        }
    }
}
