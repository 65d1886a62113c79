//! `shutdown`: the treatment of running agents when the daemon ends.

use super::declaration::keys;
use super::kinds::{Kind, words};

/// The treatment of running agents at the daemon's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtShutdown {
    /// The agents run on under their shims, and the next daemon adopts them.
    Keep,
    /// The agents are ended, with a chance to report.
    Stop,
}

keys! {
    /// The treatment of running agents, by the signal that ends the daemon.
    pub struct Shutdown in "shutdown" {
        /// The treatment on SIGTERM, which service managers send. `stop` ends the agents, with a
        /// chance to report. `keep` leaves them running for the next daemon, so that an upgrade
        /// loses no work. SIGUSR1 keeps them in any case.
        pub sigterm: AtShutdown = AtShutdown::Stop, treatment(), Now;

        /// The same for SIGINT, which Ctrl-C in a terminal sends.
        pub sigint: AtShutdown = AtShutdown::Stop, treatment(), Now;
    }
}

fn treatment() -> Kind<AtShutdown> {
    words([("keep", AtShutdown::Keep), ("stop", AtShutdown::Stop)])
}
