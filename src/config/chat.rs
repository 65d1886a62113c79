//! `chat`: the limits of chats.

use std::time::Duration;

use super::reader::Section;

/// The limits of chats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    /// The time that the server holds an agent's question for its next action. Zero answers at
    /// once.
    pub poll_hold: Duration,
    /// The time without a message after which a chat ends.
    pub idle_timeout: Duration,
}

impl Default for Chat {
    fn default() -> Self {
        Self { poll_hold: Duration::from_secs(45), idle_timeout: Duration::from_mins(10) }
    }
}

impl Chat {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let (hold, idle) = (
            Duration::ZERO..=Duration::from_mins(5),
            Duration::from_secs(1)..=Duration::from_hours(24),
        );
        let default = Self::default();
        Self {
            poll_hold: section.duration("poll_hold", default.poll_hold, hold),
            idle_timeout: section.duration("idle_timeout", default.idle_timeout, idle),
        }
    }
}
