//! The meaning of a forge's answer, from its status, its headers and its text. Pure.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use crate::ForgeError;
use domain::printable::one_line;

/// The wait for a limit that does not name its end.
const WAIT_WHERE_UNSAID: Duration = Duration::from_mins(1);
/// The longest wait for a limit. After that, the host is asked again.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// The number of characters of a forge's message that are shown.
const MAX_MESSAGE: usize = 200;
/// The number of characters of a new place. It is also compared, so a path must fit.
const MAX_PLACE: usize = 2_000;

/// Returns the error that an unsuccessful answer means.
pub(super) fn refusal(
    request: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
) -> ForgeError {
    let message = message(body, status);
    let code = status.as_u16();
    if let Some(wait) = limit(status, headers, &message) {
        return ForgeError::Limited { wait, message };
    }
    match code {
        401 => ForgeError::Unauthorized { message },
        403 => ForgeError::Forbidden { message },
        404 | 410 => ForgeError::NotFound { status: code, message },
        301 | 302 | 303 | 307 | 308 => {
            let to = text(headers, LOCATION.as_str()).unwrap_or("an unnamed place");
            ForgeError::Moved { status: code, to: one_line(to, MAX_PLACE) }
        }
        408 | 425 | 500.. => ForgeError::Unavailable { message: format!("{code}: {message}") },
        400..500 => ForgeError::Refused { status: code, message },
        _ => ForgeError::NotUnderstood {
            request: request.to_owned(),
            problem: format!("unexpected answer with status {status}"),
        },
    }
}

/// Returns the wait, if an answer says that there were too many requests.
fn limit(status: StatusCode, headers: &HeaderMap, message: &str) -> Option<Duration> {
    let number = |name| text(headers, name).and_then(|text| text.trim().parse::<u64>().ok());
    let is_used_up =
        ["x-ratelimit-remaining", "ratelimit-remaining"].iter().any(|name| number(name) == Some(0));
    let is_limit = match status.as_u16() {
        429 => true,
        403 => {
            let message = message.to_lowercase();
            is_used_up
                || headers.contains_key("retry-after")
                || ["rate limit", "abuse detection"].iter().any(|sign| message.contains(sign))
        }
        _ => false,
    };
    let wait = || {
        // The forge's clock counts if it is known, because ours may be wrong.
        let now =
            text(headers, "date").and_then(date).unwrap_or_else(|| Timestamp::now().as_second());
        let until = |at: i64| Duration::from_secs(u64::try_from(at - now).unwrap_or(0));
        if let Some(said) = text(headers, "retry-after") {
            return match said.trim().parse() {
                Ok(secs) => Some(Duration::from_secs(secs)),
                Err(_) => date(said).map(until),
            };
        }
        let reset = number("x-ratelimit-reset").or_else(|| number("ratelimit-reset"))?;
        // Without a sign that nothing remains, the reset belongs to another limit.
        (is_used_up || status == StatusCode::TOO_MANY_REQUESTS)
            .then(|| until(reset.try_into().unwrap_or(i64::MAX)))
    };
    is_limit
        .then(|| wait().unwrap_or(WAIT_WHERE_UNSAID).clamp(Duration::from_secs(1), LONGEST_WAIT))
}

/// Returns the message of a forge, short and printable: GitHub's `message` and `errors`, GitLab's
/// `message` or `error`, which may be any JSON.
fn message(body: &str, status: StatusCode) -> String {
    let said = serde_json::from_str::<Value>(body).ok().and_then(|body| {
        let parts =
            ["message", "error", "error_description", "errors"].map(|name| match body.get(name) {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(other) => Some(other.to_string()),
            });
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    });
    let reason = || status.canonical_reason().unwrap_or("it says no more").to_owned();
    one_line(&said.unwrap_or_else(reason), MAX_MESSAGE)
}

/// Returns whether an item was transferred, if the request to `asked` was answered with `to`. If
/// the path is the same, the host has moved, or has become `https`, and the item has not.
pub(super) fn is_over_itself(asked: &str, to: &str) -> bool {
    match (Url::parse(asked), Url::parse(asked).and_then(|asked| asked.join(to))) {
        (Ok(asked), Ok(to)) => asked.path() != to.path(),
        _ => false,
    }
}

/// Returns the number `7` of a redirect to `/collection/7`, if that is at the host of `base`: only
/// there the number means the same repository.
pub(super) fn linked_number(base: &str, to: &str, collection: &str) -> Option<u64> {
    let base = Url::parse(base).ok()?;
    let to = base.join(to).ok()?;
    let (rest, number) = to.path().rsplit_once('/')?;
    let is_there = to.host_str() == base.host_str() && rest.rsplit('/').next() == Some(collection);
    number.parse().ok().filter(|_| is_there)
}

/// Returns the number of a page that a `Link` header names.
pub(super) fn linked_page(headers: &HeaderMap, relation: &str) -> Option<u32> {
    let link = link(headers, relation)?;
    let url = Url::parse(&link).ok()?;
    let (_, page) = url.query_pairs().find(|(name, _)| name == "page")?;
    page.parse().ok()
}

/// Returns the target of a `Link` header.
pub(super) fn link(headers: &HeaderMap, relation: &str) -> Option<String> {
    let links = text(headers, "link")?;
    // A URL may contain a comma. Links are separated by a comma between `;…` and `<`.
    links.split('<').skip(1).find_map(|link| {
        let (url, parameters) = link.split_once('>')?;
        let mut parameters =
            parameters.split([';', ',']).filter_map(|parameter| parameter.trim().split_once('='));
        let is_it = parameters.any(|(name, value)| {
            name.eq_ignore_ascii_case("rel")
                && value.trim_matches('"').split_ascii_whitespace().any(|rel| rel == relation)
        });
        is_it.then(|| url.to_owned())
    })
}

/// Returns the place of an error in JSON, without its contents.
pub(super) fn problem(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let inner = error.inner();
    let said = inner.to_string();
    let what = match inner.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
        // This names a field of ours. Other errors quote values.
        serde_json::error::Category::Data if said.starts_with("missing field") => {
            said.split(" at line").next().unwrap_or(&said)
        }
        serde_json::error::Category::Data => "a value does not have the documented form",
    };
    let path = error.path().to_string();
    if path == "." { what.to_owned() } else { format!("{what}, at `{}`", one_line(&path, 80)) }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns an HTTP date in seconds since 1970.
fn date(text: &str) -> Option<i64> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    PARSER.parse_timestamp(text.trim()).ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let named = |&(name, value): &(&'static str, &str)| {
            (reqwest::header::HeaderName::from_static(name), value.parse().expect("a value"))
        };
        headers.iter().map(named).collect()
    }

    #[track_caller]
    fn check(status: u16, given: &[(&'static str, &'static str)], body: &str, expected: &str) {
        let status = StatusCode::from_u16(status).expect("a status");
        let error = refusal("GET /", status, &headers(given), body);
        assert_eq!(
            format!("{error:?}").split_once(" {").expect("a variant").0,
            expected.split(':').next().expect("a name")
        );
        if let (ForgeError::Limited { wait, .. }, Some((_, secs))) =
            (&error, expected.split_once(':'))
        {
            assert_eq!(wait.as_secs().to_string(), secs, "{given:?} {body}");
        }
    }

    #[test]
    fn each_status_has_its_meaning() {
        check(401, &[], r#"{"message": "Bad credentials"}"#, "Unauthorized");
        check(403, &[], r#"{"message": "Resource not accessible"}"#, "Forbidden");
        check(403, &[("x-ratelimit-remaining", "4999")], "{}", "Forbidden");
        check(404, &[], "", "NotFound");
        check(410, &[], "", "NotFound");
        check(301, &[("location", "https://x.example/a")], "", "Moved");
        check(307, &[("location", "https://x.example/a")], "", "Moved");
        check(302, &[], "", "Moved");
        for status in [500, 502, 503, 504, 408] {
            check(status, &[], "<html>", "Unavailable");
        }
        for status in [400, 405, 409, 422] {
            check(status, &[], "", "Refused");
        }
        check(304, &[], "", "NotUnderstood");
    }

    #[test]
    fn a_limit_says_how_long_or_it_is_a_minute() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        check(429, &[], "", "Limited:60");
        check(403, &[("retry-after", "7")], "", "Limited:7");
        check(403, &[("retry-after", "0")], "", "Limited:1");
        check(429, &[date, ("retry-after", "Sun, 06 Nov 1994 08:51:37 GMT")], "", "Limited:120");
        check(429, &[("retry-after", "soon")], "", "Limited:60");
        check(
            403,
            &[date, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "784111877")],
            "",
            "Limited:100",
        );
        check(
            429,
            &[date, ("ratelimit-remaining", "0"), ("ratelimit-reset", "784111777")],
            "",
            "Limited:1",
        );
        check(429, &[("x-ratelimit-reset", "99999999999")], "", "Limited:3600");
        check(
            403,
            &[("x-ratelimit-reset", "784111877")],
            r#"{"message": "a secondary Rate Limit"}"#,
            "Limited:60",
        );
    }

    #[test]
    fn what_a_forge_says_is_short_and_printable() {
        let said = |body: &str| message(body, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(said("<html>"), "Unprocessable Entity");
        assert_eq!(said(r#"{"message": {"base": ["no"]}}"#), r#"{"base":["no"]}"#);
        assert_eq!(
            said(r#"{"message": "a\u001b[1m\nb", "errors": [{"code": "x"}]}"#),
            r#"a [1m b: [{"code":"x"}]"#
        );
        assert_eq!(said(&format!(r#"{{"error": "{}"}}"#, "é".repeat(9_999))).chars().count(), 200);
    }

    #[test]
    fn links_are_read() {
        let links = headers(&[(
            "link",
            r#"<https://x.example/i?page=1>; rel="prev", <https://x.example/i?a=1,2&page=3>; rel="next", <https://x.example/i?page=9>; title="a"; rel="last""#,
        )]);
        assert_eq!(linked_page(&links, "next"), Some(3));
        assert_eq!(linked_page(&links, "last"), Some(9));
        assert_eq!(linked_page(&links, "first"), None);
        assert_eq!(link(&HeaderMap::new(), "next"), None);
    }

    #[test]
    fn a_redirect_to_a_repository_tells_its_number() {
        let number = |to: &str| linked_number("https://code.example/api/v3", to, "repositories");
        assert_eq!(number("https://code.example/api/v3/repositories/5"), Some(5));
        assert_eq!(number("/api/v3/repositories/5"), Some(5));
        assert_eq!(number("https://other.example/api/v3/repositories/5"), None);
        assert_eq!(number("https://code.example/api/v3/repos/a/b"), None);
        assert_eq!(number("https://code.example/api/v3/repositories/5/issues"), None);
        assert_eq!(number("an unnamed place"), None);
    }

    #[test]
    fn a_host_that_moves_takes_no_item_with_it() {
        let asked = "http://code.example/repos/a/b/issues/7";
        assert!(!is_over_itself(asked, "https://code.example/repos/a/b/issues/7"));
        assert!(is_over_itself(asked, "https://code.example/repositories/5/issues/9"));
        assert!(is_over_itself(asked, "/repos/a/c/issues/1"));
    }
}
