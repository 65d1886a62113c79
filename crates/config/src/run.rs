//! `run`: the limits of a running agent.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, Kind, SECOND, YEAR, durations};
use super::units::show_duration;
use domain::plan::RunLimits;
use domain::plan::silence::SilenceLimits;

keys! {
    /// The limits of a running agent.
    impl RunLimits in "run" {
        /// The time that an agent has to end by itself after it reported its result or logged out.
        /// A shorter time frees its slot sooner. A longer one lets the agent clean up.
        linger: durations(Duration::ZERO..=DAY), Now;

        /// The longest run of an agent's process. A longer one is ended, also if the agent works.
        /// The time that the machine sleeps does not count. A shorter time stops runaways sooner. A
        /// longer one allows longer tasks.
        max_runtime: durations(SECOND..=YEAR).or_off(), Now;

        /// An agent that called none of the server's tools and printed nothing for this time is
        /// ended. A call that waits for its answer is a sign of life, and so is a child process
        /// that uses the processor. An error that a CLI repeats is not. `auto` is 30 min for
        /// presets and `off` for entries with a command line of their own. Other values hold for
        /// all agents. A shorter time notices sooner that an agent hangs. `status` shows a silence
        /// from half of this time on.
        silence_timeout: silence(), Now;
    }
}

fn silence() -> Kind<SilenceLimits> {
    let show = |limits: &SilenceLimits| match (limits.streams, limits.others) {
        (Some(limit), None) => format!("{} for presets", show_duration(limit)),
        (Some(limit), Some(_)) => show_duration(limit),
        (None, _) => "off".to_owned(),
    };
    let limit = durations(SECOND..=YEAR).or_off();
    limit.or_word("auto", SilenceLimits::AUTO, SilenceLimits::all, show).written_as("auto")
}
