//! `continue`: the settings about the conversations of agent CLIs.

use super::declaration::keys;
use super::kinds::{HOUR, YEAR, durations, switch};
use domain::conversation::ContinueLimits;

keys! {
    /// The next launch of a task continues the conversation of the agent's CLI, if the CLI can do
    /// that. docs/providers.md says which can, and when a launch begins afresh.
    impl ContinueLimits in "continue" {
        /// `off` begins each launch with a conversation of its own.
        enabled: switch(), ToNewStarts;

        /// A conversation that was not used for longer begins afresh.
        max_age: durations(HOUR..=YEAR), ToNewStarts;
    }
}
