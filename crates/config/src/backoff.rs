//! `backoff`: the waits of a failing agent before its next start.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, durations};
use domain::start_history::Backoff;

const SHORTEST: Duration = Duration::from_millis(1);

keys! {
    /// The waits between a failure and the next start of the same agent in the same project.
    impl Backoff in "backoff" where initial <= max {
        /// The wait after the first failure. Each further failure doubles it, and up to a quarter
        /// is added. A shorter wait retries sooner. A longer one spares the tokens of a broken
        /// agent.
        initial: durations(SHORTEST..=DAY), Now;

        /// The longest wait, with the addition. At least `initial`.
        max: durations(SHORTEST..=DAY), Now;
    }
}
