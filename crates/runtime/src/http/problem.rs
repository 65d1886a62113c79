//! The one form of an error over HTTP: `application/problem+json` with `code`, the word on which
//! programs branch.

use std::any::Any;
use std::borrow::Cow;

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use domain::Refusal;

/// A problem (RFC 9457). Its type is always `about:blank`, because `code` says more than a page
/// would.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename = "about:blank")]
pub struct Problem {
    title: Box<str>,
    pub status: u16,
    /// The failure and its object.
    pub detail: String,
    pub code: Cow<'static, str>,
    /// The remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<str>>,
    /// Single problems of a larger input, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FieldProblem>,
    /// The refusal that it tells, for a layer that tells it in other words. The answer has it as an
    /// extension.
    #[serde(skip)]
    pub refusal: Option<Box<Refusal>>,
}

/// A problem at one place of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldProblem {
    /// Keys and indexes from the top, such as `tasks.tsk_form.parent`; empty for the whole input.
    pub path: String,
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            hint: None,
            problems: Vec::new(),
            refusal: None,
        }
    }

    pub fn with_hint(self, hint: Option<&'static str>) -> Self {
        Self { hint: hint.map(Into::into), ..self }
    }

    pub fn with_problems(self, problems: Vec<FieldProblem>) -> Self {
        Self { problems, ..self }
    }

    /// Returns the same problem as one of a field of the input.
    pub fn at(self, field: &str) -> Self {
        let problem = FieldProblem { path: field.to_owned(), message: self.detail.clone() };
        self.with_problems(vec![problem])
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let refusal = self.refusal.take();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self)).into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(refusal) = refusal {
            response.extensions_mut().insert(*refusal);
        }
        response
    }
}

/// Returns the answer for an unknown path.
#[allow(clippy::unused_async, reason = "axum takes handlers that return futures")]
pub async fn no_such_route(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no_such_route",
        format!("there is nothing at {}", uri.path()),
    )
}

/// Returns the answer for a path that takes other methods.
#[allow(clippy::unused_async, reason = "axum takes handlers that return futures")]
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Returns the answer for a handler that panicked.
pub fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a request handler panicked");
    let detail = "this is a bug of agent-coordinator; its log says more";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", detail).into_response()
}
