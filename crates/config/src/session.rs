//! `session`: the limits of a session's life.

use std::time::Duration;

use super::declaration::keys;
use super::kinds::{DAY, HOUR, MINUTE, SECOND, YEAR, durations};

keys! {
    /// The limits of sessions.
    pub struct Session in "session" where default_timeout <= max_timeout {
        /// The time without a call after which a session ends if it belongs to no process of this
        /// daemon. A shorter time frees such an agent sooner. A longer one lets it think longer
        /// between two calls.
        pub default_timeout: Duration = HOUR, durations(SECOND..=YEAR), Now;

        /// The longest life of a session. After this time its process is ended first, then the
        /// session. At least `default_timeout`. A shorter time stops runaways sooner. A longer one
        /// allows longer tasks.
        pub max_timeout: Duration = DAY, durations(SECOND..=YEAR), Now;

        /// The time between two searches for expired sessions. A shorter time ends them more
        /// punctually.
        pub cleanup_interval: Duration = 5 * MINUTE, durations(SECOND..=DAY), Now;
    }
}
