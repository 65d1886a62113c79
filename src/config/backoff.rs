//! `backoff`: the waits of a failing agent before its next start.

use std::time::Duration;

use super::growing;
use super::reader::Section;

/// The waits between a failure and the next start of the same agent in the same project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure. Each further failure doubles it.
    pub initial: Duration,
    /// The longest wait; at least `initial`.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_mins(5) }
    }
}

impl Backoff {
    pub(super) fn read(section: Section<'_, '_>) -> Self {
        let Self { initial, max } = Self::default();
        let [initial, max] = growing::read(
            section,
            "backoff",
            [initial, max],
            &(Duration::from_millis(1)..=Duration::from_hours(24)),
        );
        Self { initial, max }
    }
}
