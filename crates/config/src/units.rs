//! Durations and sizes in the forms that people write.

use std::time::Duration;

/// Returns a duration such as `10`, `2.5` (seconds), `10s`, `1h 30m` or `250ms`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if is_decimal(text) {
        return Duration::try_from_secs_f64(text.parse().ok()?).ok();
    }
    humantime::parse_duration(text).ok()
}

/// Returns a size such as `1048576` (bytes), `64 KiB`, `10MiB` or `1.5 GiB`, in bytes. `kB`, `MB`
/// and `GB` count by thousands.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    if !is_decimal(number) {
        return None;
    }
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    // A fraction is counted in thousandths. That is finer than people write, and needs no rounding.
    let (whole, fraction) = number.split_once('.')?;
    let thousandths: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(factor)?.checked_add(thousandths * factor / 1_000)
}

const DAY: u64 = 24 * 60 * 60;
/// The length of a year in `humantime`, in seconds.
const YEAR: u64 = 8_766 * 60 * 60;

/// Returns a duration as the messages name it: in days, as people write it, and not in months.
pub(super) fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let days = seconds / DAY;
    if days < 2 || (seconds.is_multiple_of(YEAR) && duration.subsec_nanos() == 0) {
        return humantime::format_duration(duration).to_string();
    }
    match Duration::new(seconds % DAY, duration.subsec_nanos()) {
        Duration::ZERO => format!("{days}days"),
        rest => format!("{days}days {}", humantime::format_duration(rest)),
    }
}

/// Returns a size as the messages name it.
pub(super) fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Returns whether the text consists of digits with at most one point between them. A sign, an
/// exponent and infinity are not decimal.
fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    [whole, fraction]
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_have_units() {
        let cases = [
            ("10", Some(10_000)),
            ("0", Some(0)),
            ("2.5", Some(2_500)),
            ("10s", Some(10_000)),
            ("1h 30m", Some(5_400_000)),
            ("250ms", Some(250)),
            ("5 min", Some(300_000)),
            ("-1", None),
            ("1e3", None),
            (".5", None),
            ("inf", None),
            ("ten", None),
            ("", None),
            ("99999999999999999999999999", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_in_days_and_read_again() {
        let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
        let cases = [
            (Duration::ZERO, "0s"),
            (90 * hour / 60, "1h 30m"),
            (day, "1day"),
            (14 * day, "14days"),
            (90 * day, "90days"),
            (90 * day + 90 * hour / 60, "90days 1h 30m"),
            (365 * day, "365days"),
            (8_766 * hour, "1year"),
        ];
        for (duration, text) in cases {
            assert_eq!(show_duration(duration), text);
            assert_eq!(parse_duration(text), Some(duration), "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_units() {
        let cases = [
            ("1024", Some(1024)),
            ("64 KiB", Some(65_536)),
            ("10MiB", Some(10_485_760)),
            ("1.5 GiB", Some(1_610_612_736)),
            ("2 MB", Some(2_000_000)),
            ("7 B", Some(7)),
            ("1 parsec", None),
            ("-1", None),
            ("MiB", None),
            ("", None),
            ("99999999999999999999", None),
            ("99999999999 GiB", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
