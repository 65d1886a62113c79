//! `shutdown`: the treatment of running agents when the daemon ends.

use super::reader::Section;

/// The treatment of running agents at the daemon's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtShutdown {
    /// The agents run on under their keepers, and the next daemon adopts them.
    Keep,
    /// The agents are ended, with a chance to report.
    Stop,
}

/// The treatment of running agents, by the signal that ends the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// The treatment on SIGTERM, which service managers send.
    pub sigterm: AtShutdown,
    /// The treatment on SIGINT, which Ctrl-C in a terminal sends.
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
