//! The time at which a quota begins anew, as a text names it:
//! - codex: "try again at 3:34 PM." or "try again at Nov 26th, 2026 2:04 PM."
//! - codex of older releases, and services: "try again in 5 days 22 hours 11 minutes." or
//!   "in 11.05s."
//! - claude: "resets 9am (UTC)", "resets Dec 1, 4:10am (Europe/Berlin)"

use std::time::Duration;

use jiff::civil::{Date, Time, time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Zoned};

use super::PrintedAt;
use domain::{Failure, FailureClass, OutputFact, Timestamp};

/// A moment that is past by less than this is not the same time of the next day: clocks differ, and
/// the texts leave the seconds out.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// A day without a year that is past by more than this is one of the next year.
const HALF_A_YEAR: SignedDuration = SignedDuration::from_hours(24 * 183);
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Returns the trouble that a text describes. A quota gets the end that the text names.
pub(super) fn refused(class: FailureClass, text: &str, at: PrintedAt<'_>) -> OutputFact {
    let is_quota = class == FailureClass::Quota;
    let resets_at = at.filter(|_| is_quota).and_then(|at| named(text, at));
    OutputFact::Failed(Failure { class, resets_at })
}

/// Returns the end that a text names; of several, the last one.
fn named(text: &str, now: &Zoned) -> Option<Timestamp> {
    let after = |words: &'static str| {
        text.match_indices(words).map(move |(place, _)| &text[place + words.len()..])
    };
    let moments = after("ry again at ").chain(after("resets "));
    let moments = moments.filter_map(|named| named_moment(named, now));
    let pauses =
        after("ry again in ").filter_map(|named| now.checked_add(named_pause(named)?).ok());
    let end = moments.chain(pauses).max()?;
    // The texts leave the seconds out.
    Some(Timestamp::from_millis(end.timestamp().as_millisecond()) + Duration::from_mins(1))
}

/// Returns a moment in the zone in parentheses, or else in the zone of the agent; `None` if the zone
/// is unknown. Several words in parentheses name no zone. A time without a day is the next one.
fn named_moment(text: &str, now: &Zoned) -> Option<Zoned> {
    let text = text.split(['.', '·', '\n']).next()?;
    let mut parts = text.split(['(', ')']);
    let moment = parts.next()?.replace(',', " ");
    let in_parentheses: Vec<&str> = parts.next().unwrap_or_default().split_whitespace().collect();
    let now = match in_parentheses.as_slice() {
        [zone] => now.with_time_zone(TimeZone::get(zone).ok()?),
        _ => now.clone(),
    };
    let words: Vec<&str> = moment.split_whitespace().filter(|word| *word != "at").collect();
    let [first, rest @ ..] = words.as_slice() else {
        return None;
    };
    if !first.starts_with(char::is_alphabetic) {
        return next(named_time(&words.concat())?, &now);
    }
    let is_month = |month: &&str| first.to_lowercase().starts_with(*month);
    let month = i8::try_from(MONTHS.iter().position(is_month)? + 1).ok()?;
    let [day, rest @ ..] = rest else {
        return None;
    };
    let day: i8 = day.trim_end_matches(char::is_alphabetic).parse().ok()?;
    let year: Option<i16> = rest.first().filter(|it| it.len() == 4).and_then(|it| it.parse().ok());
    let rest = &rest[usize::from(year.is_some())..];
    let time = named_time(&rest.concat())?;
    let at = |year| {
        let day = Date::new(year, month, day).ok()?;
        day.to_datetime(time).to_zoned(now.time_zone().clone()).ok()
    };
    if let Some(year) = year {
        return at(year);
    }
    let this_year = at(now.year()).filter(|at| now.duration_since(at) < HALF_A_YEAR);
    this_year.or_else(|| at(now.year() + 1))
}

/// Returns the next moment with this time of the day. A time that a clock change repeats has two
/// moments.
fn next(time: Time, now: &Zoned) -> Option<Zoned> {
    let on = |day: Date| {
        let at = now.time_zone().to_ambiguous_zoned(day.to_datetime(time));
        [at.clone().earlier(), at.later()]
    };
    let days = [now.date(), now.date().tomorrow().ok()?];
    let mut moments = days.into_iter().flat_map(on).filter_map(Result::ok);
    moments.find(|at| now.duration_since(at) < SKEW)
}

/// Returns a time of the day, such as "9am", "4:10am" or "12:30AM".
fn named_time(text: &str) -> Option<Time> {
    let text = text.to_lowercase();
    let is_afternoon = text.ends_with("pm");
    let text = text.strip_suffix(if is_afternoon { "pm" } else { "am" })?;
    let (hour, minute) = text.split_once(':').unwrap_or((text, "0"));
    let hour: i8 = hour.parse().ok().filter(|hour| (1..=12).contains(hour))?;
    let minute: i8 = minute.parse().ok().filter(|minute| (0..60).contains(minute))?;
    Some(time(hour % 12 + if is_afternoon { 12 } else { 0 }, minute, 0, 0))
}

/// Returns the numbers with their units, up to the end of the sentence.
fn named_pause(named: &str) -> Option<Span> {
    let named = named.split_once(". ").map_or(named, |(named, _)| named);
    let named = named.trim_end().trim_end_matches('.');
    if named == "less than a minute" {
        return Some(Span::new());
    }
    let pause: Span = named.parse().ok()?;
    (!pause.is_negative()).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_end_of_a_quota_in_its_zone_or_in_that_of_the_agent() {
        // The time of the agent, the text, and the end with the minute that is added.
        let cases = [
            ("2026-11-29T10:00[UTC]", "limit · resets 9am (UTC)", "2026-11-30T09:01:00Z"),
            ("2026-11-29T08:59[UTC]", "limit · resets 9am (UTC)", "2026-11-29T09:01:00Z"),
            ("2026-11-29T12:00[Asia/Tokyo]", "limit · resets 9am (UTC)", "2026-11-29T09:01:00Z"),
            (
                "2026-11-29T12:00[UTC]",
                "limit · resets Dec 1, 4:10am (Europe/Berlin)",
                "2026-12-01T03:11:00Z",
            ),
            ("2026-11-29T12:00[UTC]", "resets Nov 30 at 9pm (UTC)", "2026-11-30T21:01:00Z"),
            ("2026-11-29T12:00[UTC]", "resets Nov 30, 12am (UTC)", "2026-11-30T00:01:00Z"),
            ("2026-12-31T12:00[UTC]", "resets Jan 1, 9am (UTC)", "2027-01-01T09:01:00Z"),
            ("2026-11-29T12:00[UTC]", "resets Jan 2, 2028, 9am (UTC)", "2028-01-02T09:01:00Z"),
            // A past day is no day of the next year, and a minute ago is not tomorrow.
            ("2026-11-29T12:00[UTC]", "resets Nov 20, 9am (UTC)", "2026-11-20T09:01:00Z"),
            ("2026-11-29T09:02[UTC]", "resets 9am (UTC)", "2026-11-29T09:01:00Z"),
            (
                "2026-11-29T12:00[UTC]",
                "resets 9pm · week resets Dec 2, 1am",
                "2026-12-02T01:01:00Z",
            ),
            ("2026-11-29T12:00[UTC]", "resets 9pm (in 9 hours)", "2026-11-29T21:01:00Z"),
            ("2026-11-29T12:00[Asia/Tokyo]", "resets 9pm ()", "2026-11-29T12:01:00Z"),
            ("2026-11-29T23:50[Europe/Berlin]", "try again at 12:30 AM.", "2026-11-29T23:31:00Z"),
            // The nights of clock changes: the day has 23 hours, then 25.
            ("2026-03-28T23:50[Europe/Berlin]", "try again at 3:30 AM.", "2026-03-29T01:31:00Z"),
            ("2026-03-29T23:50[Europe/Berlin]", "try again at 12:30 AM.", "2026-03-29T22:31:00Z"),
            ("2026-10-24T23:50[Europe/Berlin]", "try again at 12:30 AM.", "2026-10-24T22:31:00Z"),
            // 2:45 in summer time; the next 2:30 is in winter time.
            (
                "2026-10-25T02:45+02:00[Europe/Berlin]",
                "try again at 2:30 AM.",
                "2026-10-25T01:31:00Z",
            ),
        ];
        for (now, text, expected) in cases {
            let now: Zoned = now.parse().unwrap();
            let expected: jiff::Timestamp = expected.parse().unwrap();
            let expected = Timestamp::from_millis(expected.as_millisecond());
            assert_eq!(named(text, &now), Some(expected), "{text} at {now}");
        }
        let now: Zoned = "2026-11-29T12:00[UTC]".parse().unwrap();
        let unknown = "resets 9pm (Nowhere/None)";
        for text in [
            "resets",
            "resets soon",
            "resets 13pm",
            "resets 0am",
            "resets Dec 32, 9am",
            unknown,
            "",
        ] {
            assert_eq!(named(text, &now), None, "{text}");
        }
    }
}
