//! `retention`: the time for which the past is kept.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, HOUR, MIB, TIB, durations, numbers, sizes};
use domain::retention::Retention;

const CENTURY: Duration = Duration::from_hours(24 * 36_525);

keys! {
    /// The time for which the past is kept. Data is kept, however old it is, if it is in use, waits
    /// to be read, or belongs to an unfinished task.
    impl Retention in "retention" {
        /// Launches that have ended, with their sessions, notices and executions. A shorter time
        /// keeps the database small. A longer one shows for longer what was done and what it cost.
        history: durations(HOUR..=CENTURY), Now;

        /// Events, which live views and the history of tasks show. Older ones are removed.
        events: durations(HOUR..=CENTURY), Now;

        /// The greatest number of events that are kept.
        max_events: numbers(1_000..=100_000_000), Now;

        /// Answered messages of chats. `off` keeps them for ever. `chat.jsonl` is never cut.
        chats: durations(DAY..=CENTURY).or_off(), Now;

        /// The output of agents that have ended.
        output: durations(HOUR..=CENTURY), Now;

        /// The greatest total size of the output of agents that have ended. The oldest output is
        /// removed first.
        output_size: sizes(MIB..=1024 * TIB), Now;
    }
}
