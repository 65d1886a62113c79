//! `session`: the limits of a session's life.

use std::time::Duration;

use super::reader::{Field, Section};
use super::report::Problem;

/// The limits of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The time without a call after which a session without a process of ours ends.
    pub default_timeout: Duration,
    /// The longest life of a session, from its beginning. Its process ends first. At least
    /// `default_timeout`.
    pub max_timeout: Duration,
    /// The time between two searches for expired sessions.
    pub cleanup_interval: Duration,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            default_timeout: Duration::from_hours(1),
            max_timeout: Duration::from_hours(24),
            cleanup_interval: Duration::from_mins(5),
        }
    }
}

impl Session {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let second = Duration::from_secs(1);
        // This is the length of a year in `humantime`.
        let most = Duration::from_hours(8_766);
        let (default_timeout, max_timeout) =
            (section.field("default_timeout"), section.field("max_timeout"));
        let span = max_timeout.as_ref().or(default_timeout.as_ref()).map(Field::span);
        let duration = |field: Option<Field<'_, '_>>, default| {
            field.and_then(|field| field.duration(second..=most)).unwrap_or(default)
        };
        let default_timeout = duration(default_timeout, default.default_timeout);
        let max_timeout = duration(max_timeout, default.max_timeout);
        if max_timeout < default_timeout {
            section.reader().note(
                Problem::new(
                    "`session.max_timeout` is shorter than `session.default_timeout`",
                    span,
                )
                .help("raise `session.max_timeout` or lower `session.default_timeout`"),
            );
        }
        let cleanup_interval = section.duration(
            "cleanup_interval",
            default.cleanup_interval,
            second..=Duration::from_hours(24),
        );
        Self { default_timeout, max_timeout, cleanup_interval }
    }
}
