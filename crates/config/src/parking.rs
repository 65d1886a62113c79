//! `parking`: the waits of a provider whose account failed.

use super::declaration::keys;
use super::kinds::{DAY, SECOND, durations};
use domain::account::Parking;

keys! {
    /// An agent that ends because its login or its quota failed parks its account: no agent with
    /// the same `ai_type` starts until the time that the failure names, and a tenth longer, at most
    /// 8 days. These are the waits if the failure names no time. When the time is over, one agent
    /// starts. The others follow when that agent has authenticated. `resume --provider` lets all
    /// start at once.
    impl Parking in "parking" where initial <= max {
        /// The wait after the first failure. Each further failure in a row doubles it. A shorter
        /// wait finds sooner that the account works again. A longer one makes fewer vain attempts.
        initial: durations(SECOND..=8 * DAY), Now;

        /// The longest wait. At least `initial`.
        max: durations(SECOND..=8 * DAY), Now;
    }
}
