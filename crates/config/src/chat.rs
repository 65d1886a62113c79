//! `chat`: the limits of chats.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, MINUTE, SECOND, durations};

keys! {
    /// The limits of chats.
    pub struct Chat in "chat" {
        /// The time for which the server holds an agent's question for its next action until there
        /// is something to do. 0 answers at once, and tells the agent to ask again in 5 s. A
        /// shorter time costs more turns of the model. Some agent CLIs do not wait for longer than
        /// 45 s.
        pub poll_hold: Duration = 45 * SECOND, durations(Duration::ZERO..=5 * MINUTE), Now;

        /// The time without a message after which a chat ends, and the process of its agent with
        /// it. A shorter time frees memory sooner. A longer one answers at once after longer
        /// pauses.
        pub idle_timeout: Duration = 10 * MINUTE, durations(SECOND..=DAY), Now;
    }
}
