//! Clocks that cannot be set. `CLOCK_MONOTONIC` is not used, because it is derived from the wall
//! clock.

use std::time::Duration;

use nix::libc;
use nix::time::{ClockId, clock_gettime};

/// Returns the time since boot, including the time that the machine slept (`mach_continuous_time`).
pub fn with_sleep() -> Duration {
    since_boot(libc::CLOCK_MONOTONIC_RAW)
}

/// Returns the time since boot, without the time that the machine slept (`mach_absolute_time`).
pub fn without_sleep() -> Duration {
    since_boot(libc::CLOCK_UPTIME_RAW)
}

fn since_boot(clock: libc::clockid_t) -> Duration {
    clock_gettime(ClockId::from_raw(clock)).map(Duration::from).unwrap_or_default()
}
