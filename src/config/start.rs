//! `start`: how long a start may take.

use std::time::Duration;

use super::reader::Section;

/// Limits of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// An agent must have authenticated this long after its start was claimed, else it is ended.
    pub timeout: Duration,
}

impl Default for Start {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(2) }
    }
}

impl Start {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let range = Duration::from_secs(1)..=Duration::from_hours(24);
        Self { timeout: section.duration("timeout", Self::default().timeout, range) }
    }
}
