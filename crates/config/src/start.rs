//! `start`: the limits of a start.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, HOUR, MINUTE, SECOND, durations, numbers};
use domain::start_history::StartLimit;

keys! {
    /// The limits of a start.
    pub struct Start in "start" {
        /// An agent that has not authenticated after this time is ended. The time counts from the
        /// claim of its start. A shorter time notices broken agents sooner. A longer one suits slow
        /// machines. `supervise` does not use it if its server knows only the three steps of the
        /// specification, because such a server does not say which agent has authenticated.
        pub timeout: Duration = 2 * MINUTE, durations(SECOND..=DAY), ToNewStarts;

        /// A start that waits longer than this counts as urgent, with any priority of its task.
        /// Urgent starts come first, and the longest waiting before all others. A shorter time
        /// makes the order fairer. A longer one follows the priorities for longer.
        pub aging: Duration = 60 * MINUTE, durations(SECOND..=30 * DAY), Now;

        /// The longest time that a free slot waits while the clone of the first start in the order
        /// is prepared. A shorter time fills slots sooner. A longer one keeps the order also if
        /// clones are made slowly. 0 starts the agents whose clones are ready.
        pub clone_wait: Duration = 30 * SECOND, durations(Duration::ZERO..=HOUR), Now;

        /// The number of failures within `interval` that suspend an agent in a project until
        /// `resume`, or until a task of it is set in progress again. 0 allows any number. A smaller
        /// number spares tokens. A greater one survives longer troubles of other systems.
        pub limit: usize = 5, numbers(0..=1000), Now;

        /// The time in which failures count. A run that lasts this long was stable: the next
        /// failure is the first one again.
        pub interval: Duration = 10 * MINUTE, durations(SECOND..=DAY), Now;
    }
}

impl Start {
    /// Returns the number of failures that suspends an agent in a project.
    pub const fn failure_limit(&self) -> StartLimit {
        StartLimit { failures: self.limit, interval: self.interval }
    }
}
