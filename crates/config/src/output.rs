//! `output`: the limits of the stored output of agents.

use super::declaration::keys;
use super::kinds::{KIB, MIB, TIB, numbers, sizes};

keys! {
    /// The stored output of agents, which `agent-coordinator logs` shows.
    pub struct Output in "output" {
        /// The size at which the log of an agent is rotated.
        pub max_file: u64 = 10 * MIB, sizes(64 * KIB..=TIB), ToNewStarts;

        /// The number of files kept per start of an agent, with the current one. More files keep
        /// more of the past, and use more disk.
        pub files: u32 = 5, numbers(1..=1_000), ToNewStarts;
    }
}
