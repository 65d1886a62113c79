//! Reads requests: path, query and body. Problems name the place.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::{Form, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::RestState;
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
                Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_path", rejection.body_text()))
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
                Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", rejection.body_text()))
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
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // Serde would take a list of the fields for a struct, so lists are refused here.
        if !text.trim_ascii_start().starts_with(b"{")
            && serde_json::from_slice::<IgnoredAny>(text).is_ok()
        {
            return Err(invalid_body(String::new(), &"expected an object"));
        }
        let mut json = serde_json::Deserializer::from_slice(text);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path =
                Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
            invalid_body(path, error.inner())
        })?;
        json.end().map_err(|error| invalid_body(String::new(), &error))?;
        Ok(Self(value))
    }
}

/// Returns the problem of a body at a place in it. The empty path is the whole body.
fn invalid_body(path: String, message: &dyn Display) -> Problem {
    let message = message.to_string();
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let detail = format!("the body is not as expected: {place}{message}");
    Problem::new(StatusCode::BAD_REQUEST, "invalid_body", detail)
        .with_problems(vec![FieldProblem { path, message }])
}

/// A form as browsers send it.
pub(super) struct InForm<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InForm<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Form::<T>::from_request(request, state).await {
            Ok(Form(value)) => Ok(Self(value)),
            Err(rejection) => {
                Err(Problem::new(rejection.status(), "invalid_form", rejection.body_text()))
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
