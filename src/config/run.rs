//! `run`: limits of a running agent.

use std::time::Duration;

use super::reader::Section;

/// Limits of a running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How long an agent has to end by itself after it reported its result or logged out.
    pub linger: Duration,
}

impl Default for Run {
    fn default() -> Self {
        Self { linger: Duration::from_secs(30) }
    }
}

impl Run {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let range = Duration::ZERO..=Duration::from_hours(24);
        Self { linger: section.duration("linger", Self::default().linger, range) }
    }
}
