//! `start`: how long a start may take.

use std::time::Duration;

use super::reader::Section;

/// Limits of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// An agent must have authenticated this long after its start was claimed, else it is ended.
    pub timeout: Duration,
    /// So many failures within `interval` suspend an agent in a project until a person resumes it; 0: any number.
    pub limit: usize,
    /// The time in which failures are counted; a run that lasts this long was stable.
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
