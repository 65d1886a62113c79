//! `run`: limits of a running agent.

use std::time::Duration;

use super::reader::Section;

/// Limits of a running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How long an agent has to end by itself after it reported its result or logged out.
    pub linger: Duration,
    /// An agent whose process runs for longer is ended; `None`: it may run as long as it likes.
    pub max_runtime: Option<Duration>,
    /// An agent that neither called nor printed anything for this long is ended.
    pub silence_timeout: Option<Duration>,
}

impl Default for Run {
    fn default() -> Self {
        Self { linger: Duration::from_secs(30), max_runtime: None, silence_timeout: None }
    }
}

impl Run {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let range = Duration::ZERO..=Duration::from_hours(24);
        // What `humantime` calls a year.
        let most = Duration::from_hours(8_766);
        let mut limit = |key| section.field(key).and_then(|field| field.duration_or_off(Duration::from_secs(1)..=most));
        let (max_runtime, silence_timeout) = (limit("max_runtime"), limit("silence_timeout"));
        Self { linger: section.duration("linger", Self::default().linger, range), max_runtime, silence_timeout }
    }
}
