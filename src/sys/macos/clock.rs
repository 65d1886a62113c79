//! Clocks that nobody sets. Not `CLOCK_MONOTONIC`, which is made of the wall clock.

use std::time::Duration;

use nix::libc;
use nix::time::{ClockId, clock_gettime};

/// Since boot, with the time that the machine slept (`mach_continuous_time`).
pub fn with_sleep() -> Duration {
    since_boot(libc::CLOCK_MONOTONIC_RAW)
}

/// Since boot, without the time that the machine slept (`mach_absolute_time`).
pub fn without_sleep() -> Duration {
    since_boot(libc::CLOCK_UPTIME_RAW)
}

fn since_boot(clock: libc::clockid_t) -> Duration {
    clock_gettime(ClockId::from_raw(clock)).map(Duration::from).unwrap_or_default()
}
