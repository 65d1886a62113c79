//! `shutdown`: what becomes of running agents when the daemon is told to end.

use super::reader::Section;

/// The fate of running agents at the daemon's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtShutdown {
    /// They run on under their keepers, and the next daemon adopts them.
    Keep,
    /// They are ended, with a chance to report.
    Stop,
}

/// What becomes of running agents, by the signal that ends the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// On SIGTERM, as service managers send it.
    pub sigterm: AtShutdown,
    /// On SIGINT: Ctrl-C in a terminal.
    pub sigint: AtShutdown,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { sigterm: AtShutdown::Stop, sigint: AtShutdown::Stop }
    }
}

impl Shutdown {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let words = [("keep", AtShutdown::Keep), ("stop", AtShutdown::Stop)];
        Self {
            sigterm: section.one_of("sigterm", default.sigterm, &words),
            sigint: section.one_of("sigint", default.sigint, &words),
        }
    }
}
