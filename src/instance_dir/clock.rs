//! The clocks of an instance folder: one for people, one that nobody sets and that goes on while the machine sleeps, and one that
//! nobody sets and that stands still then.

use std::ops::Add;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::domain::Timestamp;

/// A moment on `CLOCK_BOOTTIME`, in milliseconds since boot. Means nothing after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootInstant(u64);

impl BootInstant {
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
        Self(seconds * 1_000 + millis)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A moment on `CLOCK_MONOTONIC`, in milliseconds since boot. Means nothing after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicInstant(u64);

impl MonotonicInstant {
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let millis = u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0);
        Self(seconds * 1_000 + millis)
    }

    /// How long ago `earlier` was; zero if it is to come.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Wall-clock time, for records that people read.
pub fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
