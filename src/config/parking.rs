//! `parking`: how long a provider waits whose account failed.

use std::time::Duration;

use super::reader::{Field, Section};
use super::report::Problem;

/// Waits of all agents of a provider whose login or quota failed, where the failure doesn't say when it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parking {
    /// After the first failure; doubled by each further one.
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
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let (initial, max) = (section.field("initial"), section.field("max"));
        let span = max.as_ref().or(initial.as_ref()).map(Field::span);
        let duration = |field: Option<Field<'_, '_>>, default| {
            let range = Duration::from_secs(1)..=Duration::from_hours(8 * 24);
            field.and_then(|field| field.duration(range)).unwrap_or(default)
        };
        let initial = duration(initial, default.initial);
        let max = duration(max, default.max);
        if max < initial {
            let problem = Problem::new("`parking.max` is shorter than `parking.initial`", span);
            section.reader().note(problem.help("raise `parking.max` or lower `parking.initial`"));
        }
        Self { initial, max }
    }
}
