//! The clocks of an instance folder. The wall clock is for people. Another clock continues while
//! the machine sleeps, and a third one stands still meanwhile. The last two cannot be set.

use std::ops::Add;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::sys;
use domain::Timestamp;
use domain::time::millis;

/// A moment on a clock that continues while the machine sleeps, in milliseconds since boot. It is
/// meaningless after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootInstant(u64);

impl BootInstant {
    pub fn now() -> Self {
        Self(millis(sys::clock::with_sleep()))
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

/// A moment on a clock that stands still while the machine sleeps, in milliseconds since boot. It
/// is meaningless after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicInstant(u64);

impl MonotonicInstant {
    pub fn now() -> Self {
        Self(millis(sys::clock::without_sleep()))
    }

    /// Returns the time since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the wall-clock time, for records that people read.
pub fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
