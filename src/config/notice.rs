//! `notice`: what agents are told while they work.

use std::time::Duration;

use super::reader::Section;

/// Patience with agents that were told that their work was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// An agent that was told to end its session and doesn't is stopped after this.
    pub grace: Duration,
}

impl Default for Notice {
    fn default() -> Self {
        Self { grace: Duration::from_mins(10) }
    }
}

impl Notice {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let range = Duration::ZERO..=Duration::from_hours(24);
        Self { grace: section.duration("grace", Self::default().grace, range) }
    }
}
