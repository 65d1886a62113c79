//! The keys at the top level of the file, except for the places of files and sockets.

use std::path::PathBuf;
use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, Kind, SECOND, durations, numbers, path, secret, words};
use domain::{Language, Secret};

keys! {
    /// The keys that are in no section.
    pub struct General in "" {
        /// The longest time between two looks of the coordinator if no change is announced. It sees
        /// announced changes at once. A shorter time finds sooner what was missed, and costs more
        /// wake-ups.
        pub polling_interval: Duration = 10 * SECOND, durations(SECOND / 10..=DAY), Now;

        /// The number of agents that may live at once, including those that start or end. A greater
        /// number works on more tasks at a time, and takes more memory and tokens. Other starts
        /// wait for a free slot.
        pub max_concurrent: usize = 3, numbers(1..=100_000), Now;

        /// The number of times that an agent works again after a check of its task failed. Then the
        /// task is blocked. See `checks`.
        pub checks_rounds: u32 = 2, numbers(0..=100), Now;

        /// The language of the texts that agents read. `ja` has the wording of the original
        /// specification.
        pub language: Language = Language::English, language(), Now;

        /// The token that coordinators on other machines, and all requests over HTTP, must show.
        /// Without it, the first start makes one and keeps it in the file `coordinator_token` of
        /// `state_dir`. Take it from a variable, `"${COORDINATOR_TOKEN}"`, rather than writing it
        /// here.
        pub coordinator_token: Option<Secret> = None, secret().or_none(), Now;

        /// A manifest (see `agent-coordinator apply`) that is applied at each start, and when it
        /// changes.
        pub manifest: Option<PathBuf> = None, path().or_none(), Now;
    }
}

fn language() -> Kind<Language> {
    words(Language::ALL.iter().map(|language| (language.as_str(), *language)).collect::<Vec<_>>())
}
