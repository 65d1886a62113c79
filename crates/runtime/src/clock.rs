//! The clock for deadlines and durations. Nothing can set it, unlike the time of day
//! (`service::world`). It stands still while the machine sleeps; `instance_dir::clock` does not.
//!
//! Other modules do not ask the system or the runtime themselves, so that this file decides which
//! clock counts.

/// Returns the time for a task. The clock is the one of the runtime's sleeps, which tests can
/// pause.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Returns the time for threads that block, and for limits that count real time. Tests cannot pause
/// it.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn unpaused() -> std::time::Instant {
    std::time::Instant::now()
}
