//! Reads requests: path, query and body. Problems name the place.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{Form, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::RestState;
use super::malformed::{json_message, malformed, refused};
use super::problem::{FieldProblem, Problem};
use domain::{Refusal, TaskId};

/// The parameters of the path.
pub(super) struct InPath<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                let text = rejection.body_text();
                Err(refused(StatusCode::BAD_REQUEST, "invalid_path", "path", &text))
            }
        }
    }
}

/// The task that the path names by its full id or its short id.
pub(super) struct InTask(pub(super) TaskId);

impl FromRequestParts<RestState> for InTask {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &RestState) -> Result<Self, Problem> {
        let InPath(id) = InPath::<TaskId>::from_request_parts(parts, state).await?;
        Ok(Self(state.service.tasks.full_id(id).await?))
    }
}

/// The query string.
pub(super) struct InQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                let text = rejection.body_text();
                Err(refused(StatusCode::BAD_REQUEST, "invalid_query", "query", &text))
            }
        }
    }
}

/// A JSON body. An empty body is an empty object.
pub(super) struct InBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            Problem::new(rejection.status(), "unreadable_body", rejection.body_text())
        })?;
        Ok(Self(parse_json(if bytes.is_empty() { b"{}" } else { &bytes })?))
    }
}

/// Parses the object of a body.
fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    // Serde would take a list of the fields for a struct, so lists are refused here.
    if !text.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice::<IgnoredAny>(text).is_ok()
    {
        return Err(invalid_body("", "expected an object".to_owned()));
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
        invalid_body(&path, json_message(error.inner(), text))
    })?;
    json.end().map_err(|error| invalid_body("", json_message(&error, text)))?;
    Ok(value)
}

fn invalid_body(path: &str, message: String) -> Problem {
    malformed(StatusCode::BAD_REQUEST, "invalid_body", "body", path, message)
}

/// A form as browsers send it.
pub(super) struct InForm<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InForm<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Form::<T>::from_request(request, state).await {
            Ok(Form(value)) => Ok(Self(value)),
            Err(rejection) => {
                Err(refused(rejection.status(), "invalid_form", "form", &rejection.body_text()))
            }
        }
    }
}

/// Returns the value of a form's field; `None` if it was left empty.
pub(super) fn given<T: FromStr<Err: Display>>(
    field: &str,
    text: &str,
) -> Result<Option<T>, Problem> {
    let text = text.trim();
    if text.is_empty() { Ok(None) } else { parsed(field, text).map(Some) }
}

/// Returns the value of a form's field.
pub(super) fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| {
        let problem = FieldProblem { path: field.to_owned(), message: error.to_string() };
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_form", format!("{field}: {error}"))
            .with_problems(vec![problem])
    })
}

/// Returns the text of a form's field that must not be left blank.
pub(super) fn needed(field: &'static str, text: String) -> Result<String, Problem> {
    if text.trim().is_empty() {
        let problem = "a text is needed here";
        return Err(Refusal::Missing { text: field, problem }.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Uri;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Wanted {
        title: String,
        #[serde(default)]
        is_urgent: bool,
        limit: Option<u16>,
        #[serde(default)]
        words: Vec<Word>,
        id: Option<TaskId>,
        inner: Option<Inner>,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Inner {
        word: Word,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        One,
        Two,
    }

    #[track_caller]
    fn check_body(body: &str, expected: &str) {
        let problem = parse_json::<Wanted>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.detail, format!("the body is not as expected: {expected}"), "{body}");
    }

    #[test]
    fn a_body_of_another_form_is_told_the_place_and_what_was_expected() {
        for (body, expected) in [
            ("{}", "`title` is missing"),
            (r#"{"title": 7}"#, "title: expected a string, found `7`"),
            (r#"{"title": null}"#, "title: expected a string, found null"),
            (r#"{"title": "", "title": ""}"#, "`title` is there twice"),
            (
                r#"{"title": "", "isUrgent": "no"}"#,
                "isUrgent: expected `true` or `false`, found \"no\"",
            ),
            (r#"{"limit": []}"#, "limit: expected an integer from 0 to 65535, found an array"),
            (r#"{"limit": 1.5}"#, "limit: expected an integer from 0 to 65535, found `1.5`"),
            (r#"{"limit": -1}"#, "limit: expected an integer from 0 to 65535, found `-1`"),
            (r#"{"words": {}}"#, "words: expected an array, found an object"),
            (
                r#"{"words": ["one", "three"]}"#,
                "words[1]: `three` is not valid: expected `one` or `two`",
            ),
            (r#"{"words": ["one", 2]}"#, "words[1]: expected a string"),
            (r#"{"inner": "x"}"#, "inner: expected an object, found \"x\""),
            ("[]", "expected an object"),
        ] {
            check_body(body, expected);
        }
        let unknown = parse_json::<Wanted>(br#"{"titel": ""}"#).unwrap_err().detail.clone();
        assert!(
            unknown.contains(": titel: unknown field `titel`, expected one of `title`"),
            "{unknown}"
        );
        let id = parse_json::<Wanted>(br#"{"id": "a b"}"#).unwrap_err().detail.clone();
        assert!(id.contains(": id: `a b` is not ") && !id.contains(" column "), "{id}");
    }

    #[test]
    fn a_body_that_is_not_json_is_told_where_that_shows() {
        for (body, expected) in [
            ("garbage", "not valid JSON at line 1, column 1: expected a value"),
            (
                "{\n\"title\": ",
                "title: not valid JSON at line 2, column 9: the end is within a value",
            ),
            (
                "{\"title\": \"\"} {",
                "not valid JSON at line 1, column 15: expected the end, found more",
            ),
        ] {
            check_body(body, expected);
        }
    }

    #[test]
    fn a_query_of_another_form_is_told_the_place_and_what_was_expected() {
        for (query, expected) in [
            ("limit=1", "`title` is missing"),
            ("title=x&limit=many", "limit: expected digits"),
            ("title=x&limit=99999", "limit: the number is too large"),
            ("title=x&isUrgent=maybe", "isUrgent: expected `true` or `false`"),
        ] {
            let uri: Uri = format!("http://x/?{query}").parse().unwrap();
            let text = Query::<Wanted>::try_from_uri(&uri).unwrap_err().body_text();
            let problem = refused(StatusCode::BAD_REQUEST, "invalid_query", "query", &text);
            let expected = format!("the query is not as expected: {expected}");
            assert_eq!(problem.detail, expected, "{query}");
        }
        let path = "Invalid URL: Cannot parse `id` with value `a b`: `a b` is not a valid task id";
        let problem = refused(StatusCode::BAD_REQUEST, "invalid_path", "path", path);
        let expected = "the path is not as expected: id: `a b` is not a valid task id";
        assert_eq!(problem.detail, expected);
        let other = "Form requests must have a content type";
        assert_eq!(refused(StatusCode::BAD_REQUEST, "x", "form", other).detail, other);
    }
}
