//! `backoff`: how long a failing agent waits for its next start.

use std::time::Duration;

use super::reader::{Field, Section};
use super::report::Problem;

/// Waits between a failure and the next start of the same agent in the same project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; doubled by each further one.
    pub initial: Duration,
    /// The longest wait; at least `initial`.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_mins(5) }
    }
}

impl Backoff {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let range = Duration::from_millis(1)..=Duration::from_hours(24);
        let (initial, max) = (section.field("initial"), section.field("max"));
        let span = max.as_ref().or(initial.as_ref()).map(Field::span);
        let duration = |field: Option<Field<'_, '_>>, default| {
            field.and_then(|field| field.duration(range.clone())).unwrap_or(default)
        };
        let initial = duration(initial, default.initial);
        let max = duration(max, default.max);
        if max < initial {
            let problem = Problem::new("`backoff.max` is shorter than `backoff.initial`", span);
            section.reader().note(problem.help("raise `backoff.max` or lower `backoff.initial`"));
        }
        Self { initial, max }
    }
}
