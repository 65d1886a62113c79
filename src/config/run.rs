//! `run`: limits of a running agent.

use std::time::Duration;

use super::reader::Section;
use crate::domain::plan::silence::SilenceLimits;

/// Limits of a running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The time that an agent has to end by itself after it reported its result or logged out.
    pub linger: Duration,
    /// The longest run of an agent's process. A longer one is ended; `None` is unlimited.
    pub max_runtime: Option<Duration>,
    /// The time without a call and without output after which an agent is ended.
    pub silence_timeout: SilenceLimits,
}

/// The default for agents whose output is a stream of events. They print more often than this
/// unless they run a command.
const OF_STREAMS: Duration = Duration::from_mins(30);

impl Default for Run {
    fn default() -> Self {
        let silence_timeout = SilenceLimits { streams: Some(OF_STREAMS), others: None };
        Self { linger: Duration::from_secs(30), max_runtime: None, silence_timeout }
    }
}

impl Run {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let range = Duration::ZERO..=Duration::from_hours(24);
        // This is the length of a year in `humantime`.
        let most = Duration::from_hours(8_766);
        let limits = || Duration::from_secs(1)..=most;
        let max_runtime =
            section.field("max_runtime").and_then(|field| field.duration_or_off(limits()));
        let auto = Self::default().silence_timeout;
        let silence_timeout = section.field("silence_timeout");
        let silence_timeout = silence_timeout
            .and_then(|field| field.duration_off_or_auto(limits(), auto, SilenceLimits::all));
        let silence_timeout = silence_timeout.unwrap_or(auto);
        Self {
            linger: section.duration("linger", Self::default().linger, range),
            max_runtime,
            silence_timeout,
        }
    }
}
