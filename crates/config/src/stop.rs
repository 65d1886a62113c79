//! `stop`: the deadlines of the steps that end an agent.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{HOUR, SECOND, durations};

keys! {
    /// The deadlines of the steps that end an agent.
    pub struct Stop in "stop" {
        /// The time from SIGTERM to SIGKILL. A shorter time ends agents sooner. A longer one lets
        /// an agent put its work in order.
        pub timeout: Duration = 10 * SECOND, durations(Duration::ZERO..=HOUR), Now;

        /// The same for processes that an agent left behind when it ended.
        pub leak_grace: Duration = 2 * SECOND, durations(Duration::ZERO..=HOUR), ToNewStarts;
    }
}
