//! Waits that grow with each failure: `initial` and `max` of a section.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::reader::{Field, Section};
use super::report::Problem;

/// Reads the first and the longest wait. The longest must not be shorter than the first. `name` is
/// the name of the section.
pub(super) fn read(
    mut section: Section<'_, '_>,
    name: &str,
    default: [Duration; 2],
    range: &RangeInclusive<Duration>,
) -> [Duration; 2] {
    let fields = [section.field("initial"), section.field("max")];
    let span = fields[1].as_ref().or(fields[0].as_ref()).map(Field::span);
    let [mut initial, mut max] = default;
    for (field, value) in fields.into_iter().zip([&mut initial, &mut max]) {
        *value = field.and_then(|field| field.duration(range.clone())).unwrap_or(*value);
    }
    if max < initial {
        let problem = Problem::new(format!("`{name}.max` is shorter than `{name}.initial`"), span);
        section
            .reader()
            .note(problem.help(format!("raise `{name}.max` or lower `{name}.initial`")));
    }
    [initial, max]
}
