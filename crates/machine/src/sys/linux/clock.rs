//! Clocks that cannot be set.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since boot, including the time that the machine slept.
pub fn with_sleep() -> Duration {
    since_boot(ClockId::Boottime)
}

/// Returns the time since boot, without the time that the machine slept.
pub fn without_sleep() -> Duration {
    since_boot(ClockId::Monotonic)
}

fn since_boot(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
