//! The one form of an error: `application/problem+json` with `code`, the word that programs branch on.

use std::any::Any;
use std::borrow::Cow;

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::domain::Refusal;
use crate::service::ServiceError;
use crate::telemetry::ErrorChain;

/// A problem (RFC 9457).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Problem {
    /// Always `about:blank`: `code` says more than a page would.
    #[serde(rename = "type")]
    kind: Cow<'static, str>,
    title: Cow<'static, str>,
    pub status: u16,
    /// What went wrong with what.
    pub detail: String,
    pub code: Cow<'static, str>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Cow<'static, str>>,
    /// Single problems of a larger input, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Place>,
}

/// What is wrong at one place of an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Keys and indexes from the top, such as `tasks.tsk_form.parent`; empty for the whole.
    pub path: String,
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            hint: None,
            problems: Vec::new(),
        }
    }

    pub fn with_problems(self, problems: Vec<Place>) -> Self {
        Self { problems, ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = match &refusal {
            Refusal::ProjectNotFound { project } => format!("no project `{project}`"),
            Refusal::AgentNotFound { agent } => format!("no agent `{agent}`"),
            Refusal::TaskNotFound { task } => format!("no task `{task}`"),
            Refusal::LaunchNotFound { launch } => format!("no launch `{launch}`"),
            Refusal::NotAssigned { agent, project } => {
                format!("agent `{agent}` is not assigned to project `{project}`")
            }
            other => other.to_string(),
        };
        let hint = refusal.hint().map(Cow::Borrowed);
        Self { hint, ..Self::new(status_of(&refusal), refusal.code(), detail) }
    }
}

fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::ProjectNotFound { .. }
        | Refusal::AgentNotFound { .. }
        | Refusal::TaskNotFound { .. }
        | Refusal::LaunchNotFound { .. }
        | Refusal::NoOpenLaunch { .. }
        | Refusal::ExecutionNotFound { .. } => StatusCode::NOT_FOUND,
        Refusal::Invalid(_) | Refusal::NeedsProject { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::InvalidCredentials | Refusal::InvalidSession | Refusal::SessionEnded | Refusal::SessionExpired => {
            StatusCode::UNAUTHORIZED
        }
        Refusal::CoordinatorOnly
        | Refusal::PeopleOnly { .. }
        | Refusal::NotYourTask { .. }
        | Refusal::NotYourLaunch { .. } => StatusCode::FORBIDDEN,
        Refusal::ServerStopping => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::NotAssigned { .. }
        | Refusal::Inactive
        | Refusal::AlreadyRunning
        | Refusal::LaunchEnded
        | Refusal::ImpossibleStatus { .. }
        | Refusal::NeedsAssignee { .. }
        | Refusal::DependenciesOpen { .. }
        | Refusal::SubtasksOpen { .. }
        | Refusal::AmbiguousLaunch { .. }
        | Refusal::OtherTaskBegun { .. }
        | Refusal::AlreadyExists(_) => StatusCode::CONFLICT,
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Contended => Self::new(StatusCode::CONFLICT, "contended", error.to_string()),
            ServiceError::Store(_) => {
                tracing::error!(error = %ErrorChain(&error), "request failed");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", ErrorChain(&error).to_string())
            }
        }
    }
}

pub(super) async fn no_such_route(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", format!("there is nothing at {}", uri.path()))
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

pub(super) fn panicked(_: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a request handler panicked");
    let detail = "this is a bug of agent-coordinator; its log says more";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", detail).into_response()
}
