//! Moments on the wall clock, as values. The domain has no clock, so the caller passes the time.
//! [`super::stopwatch`] says which clock is used for what.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment of wall-clock time, in whole milliseconds since 1970-01-01T00:00:00Z. It is written as
/// RFC 3339, with milliseconds unless the format has another precision. A moment outside of the
/// years of that format is written as the nearest moment inside of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl schemars::JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Returns a duration in whole milliseconds, or the greatest number if it has more.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let farthest = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let n_digits = f.precision().unwrap_or(3);
        write!(f, "{:.n_digits$}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(farthest))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let moment = jiff::Timestamp::deserialize(deserializer)?;
        Ok(Self(moment.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_written_as_rfc_3339_with_milliseconds() {
        let moment = Timestamp::from_millis(1_736_157_600_007);
        assert_eq!(moment.to_string(), "2025-01-06T10:00:00.007Z");
        assert_eq!(format!("{moment:.0}"), "2025-01-06T10:00:00Z");
        let json = serde_json::to_string(&moment).expect("a timestamp is serializable");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).expect("what we wrote"), moment);
    }

    #[test]
    fn what_is_written_can_be_read_whatever_it_is() {
        for millis in [i64::MIN, -1, 0, 253_402_300_799_000, 1_795_344_326_000_000, i64::MAX] {
            let json = serde_json::to_string(&Timestamp::from_millis(millis))
                .expect("a timestamp is serializable");
            serde_json::from_str::<Timestamp>(&json)
                .unwrap_or_else(|error| panic!("{json}: {error}"));
        }
    }

    #[test]
    fn the_future_is_zero_ago() {
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
    }
}
