//! Clocks that nobody sets.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since boot, with the time that the machine slept.
pub fn with_sleep() -> Duration {
    since_boot(ClockId::Boottime)
}

/// Since boot, without the time that the machine slept.
pub fn without_sleep() -> Duration {
    since_boot(ClockId::Monotonic)
}

fn since_boot(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
