//! The means that all parts of the daemon share: the clock for deadlines, nudges between tasks of the
//! runtime, looks at files that may hang, watched folders, connections and their peers, HTTP,
//! limits on calls and guesses, logs and figures. This crate does not know the tasks of agents.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod clock;
pub mod connections;
pub mod folder_watch;
pub mod http;
pub mod lru;
pub mod nudge;
pub mod peer;
pub mod rate_limiter;
pub mod single_look;
pub mod telemetry;
pub mod throttle;
