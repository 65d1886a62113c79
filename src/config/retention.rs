//! `retention`: the time that the past is kept.

use std::time::Duration;

use super::reader::Section;
use crate::domain::retention::Retention;

const DAY: Duration = Duration::from_hours(24);
const CENTURY: Duration = Duration::from_hours(24 * 36_525);

pub(super) fn read(mut section: Section<'_, '_>) -> Retention {
    let default = Retention::default();
    let range = Duration::from_hours(1)..=CENTURY;
    let events = section.field("max_events").and_then(|field| field.integer(1_000..=100_000_000));
    let size = section.field("output_size").and_then(|field| field.size(1024 * 1024..=1 << 50));
    Retention {
        history: section.duration("history", default.history, range.clone()),
        events: section.duration("events", default.events, range.clone()),
        max_events: events.map_or(default.max_events, |events| events as u64),
        chats: section.field("chats").and_then(|field| field.duration_or_off(DAY..=CENTURY)),
        output: section.duration("output", default.output, range),
        output_size: size.unwrap_or(default.output_size),
    }
}
