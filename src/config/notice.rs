//! `notice`: the deadline after a notice to an agent.

use std::time::Duration;

use super::reader::Section;

/// The deadline for agents that were told that their work changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// An agent that was told to end its session is stopped after this time if it ignores that.
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
