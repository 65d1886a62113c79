//! Kinds of trouble, from the text of a program that passes on the answer of the model's service.

use std::time::Duration;

use domain::{Failure, FailureClass, OutputFact, Timestamp};

/// The statuses that are searched for in texts. They identify their kind without doubt.
const STATUSES: [u64; 10] = [400, 401, 403, 404, 429, 500, 502, 503, 504, 529];

/// Parts of words, in lower case. A request to log in comes before the rest, because some texts
/// about quotas offer a login.
const WORDS: [(FailureClass, &[&str]); 4] = [
    (
        FailureClass::Quota,
        &[
            "usage limit",
            "rate limit",
            "ratelimit",
            "too many requests",
            "quota",
            "billing",
            "credit balance",
            "resource_exhausted",
        ],
    ),
    (
        FailureClass::Auth,
        &[
            "unauthorized",
            "unauthenticated",
            "authenticat",
            "api key",
            "not logged in",
            "/login",
            "forbidden",
        ],
    ),
    (
        FailureClass::Overload,
        &["overloaded", "unavailable", "at capacity", "high demand", "stream disconnected"],
    ),
    (
        FailureClass::Config,
        &["invalid_request", "unknown model", "model not found", "does not exist", "not supported"],
    ),
];

/// Returns the kind of trouble that the text of an error describes.
pub(super) fn of_text(text: &str) -> Option<FailureClass> {
    let numbers =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| word.parse().ok());
    let status =
        numbers.filter(|number| STATUSES.contains(number)).find_map(FailureClass::of_status);
    status.or_else(|| {
        let text = text.to_lowercase();
        let class = WORDS.iter().find(|(_, words)| words.iter().any(|word| text.contains(word)));
        class.map(|(class, _)| *class)
    })
}

pub(super) fn failed(class: FailureClass) -> OutputFact {
    OutputFact::Failed(class.into())
}

/// Returns the trouble. A trouble with a quota ends `wait` after `since`.
pub(super) fn failed_for(
    class: FailureClass,
    wait: Option<Duration>,
    since: Option<Timestamp>,
) -> OutputFact {
    let resets_at =
        wait.zip(since).filter(|_| class == FailureClass::Quota).map(|(wait, since)| since + wait);
    OutputFact::Failed(Failure { class, resets_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: impl Into<Option<FailureClass>>) {
        assert_eq!(of_text(text), expected.into(), "{text}");
    }

    #[test]
    fn a_status_in_a_text_tells_the_kind() {
        check(
            "unexpected status 401 Unauthorized: invalid x-api-key, url: http://h/v1",
            FailureClass::Auth,
        );
        check(
            r#"[API Error: {"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#,
            FailureClass::Quota,
        );
        check(
            "Failed; retried 5 times (total retry wait time: 15.15 seconds) Last error: 503",
            FailureClass::Overload,
        );
    }

    #[test]
    fn words_tell_the_kind_where_no_status_does() {
        check("You’ve hit your usage limit. Try again later.", FailureClass::Quota);
        check("We're currently experiencing high demand", FailureClass::Overload);
        check("Not logged in · Please run /login", FailureClass::Auth);
        check("the model `x` does not exist", FailureClass::Config);
    }

    #[test]
    fn other_texts_tell_nothing() {
        check("line 4012 of 12: no such file", None);
        check("exit code 1", None);
        check("", None);
    }
}
