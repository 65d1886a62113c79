//! `parking`: the waits of a provider whose account failed.

use std::time::Duration;

use super::growing;
use super::reader::Section;

/// The waits of all agents of a provider whose login or quota failed, if the failure does not say
/// when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parking {
    /// The wait after the first failure. Each further failure doubles it.
    pub initial: Duration,
    /// The longest wait; at least `initial`.
    pub max: Duration,
}

impl Default for Parking {
    fn default() -> Self {
        Self { initial: Duration::from_mins(5), max: Duration::from_hours(1) }
    }
}

impl Parking {
    pub(super) fn read(section: Section<'_, '_>) -> Self {
        let Self { initial, max } = Self::default();
        let [initial, max] = growing::read(
            section,
            "parking",
            [initial, max],
            &(Duration::from_secs(1)..=Duration::from_hours(8 * 24)),
        );
        Self { initial, max }
    }
}
