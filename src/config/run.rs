//! `run`: limits of a running agent.

use std::time::Duration;

use super::reader::Section;
use crate::domain::plan::silence::SilenceLimits;

/// Limits of a running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How long an agent has to end by itself after it reported its result or logged out.
    pub linger: Duration,
    /// An agent whose process runs for longer is ended; `None`: it may run as long as it likes.
    pub max_runtime: Option<Duration>,
    /// An agent that neither called nor printed anything for this long is ended.
    pub silence_timeout: SilenceLimits,
}

/// Agents whose output is a stream of events print at least this often, unless they run a command.
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
        // What `humantime` calls a year.
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
