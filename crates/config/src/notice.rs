//! `notice`: the deadline after a notice to an agent.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, MINUTE, durations};

keys! {
    /// The deadline for agents that were told that their work changed.
    pub struct Notice in "notice" {
        /// An agent that is told that its task was blocked, cancelled or given to another agent
        /// ends its session by itself. If it does not, it is stopped after this time. The time
        /// counts from the notice, and again from the moment when the agent read it. A shorter
        /// time frees the agent's slot sooner. A longer one lets the agent save its work.
        pub grace: Duration = 10 * MINUTE, durations(Duration::ZERO..=DAY), Now;
    }
}
