//! Turns refusals and faults into problems.

use std::ops::{Deref, DerefMut};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use domain::refusal::RefusalKind;
use domain::{Language, Refusal};
use runtime::http;
use runtime::telemetry::ErrorChain;
use service::ServiceError;

pub use runtime::http::FieldProblem;

/// The answer to a request that failed. Refusals and faults of the service turn into it, which this
/// crate cannot declare for [`http::Problem`] itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Problem(http::Problem);

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self(http::Problem::new(status, code, detail))
    }

    pub fn with_hint(self, hint: Option<&'static str>) -> Self {
        Self(self.0.with_hint(hint))
    }

    pub fn with_problems(self, problems: Vec<FieldProblem>) -> Self {
        Self(self.0.with_problems(problems))
    }

    /// Returns the same problem as one of a field of the input.
    pub fn at(self, field: &str) -> Self {
        Self(self.0.at(field))
    }
}

impl Deref for Problem {
    type Target = http::Problem;

    fn deref(&self) -> &http::Problem {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut http::Problem {
        &mut self.0
    }
}

impl From<http::Problem> for Problem {
    fn from(problem: http::Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = status_of(refusal.kind());
        let hint = refusal.hint(Language::English);
        let mut problem = Self::new(status, refusal.code(), refusal.detail()).with_hint(hint);
        if let Refusal::AlreadyExists { field: Some(field), .. } = &refusal {
            problem = problem.at(field);
        }
        problem.refusal = Some(Box::new(refusal));
        problem
    }
}

const fn status_of(kind: RefusalKind) -> StatusCode {
    match kind {
        RefusalKind::NotFound => StatusCode::NOT_FOUND,
        RefusalKind::Gone => StatusCode::GONE,
        RefusalKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        RefusalKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        RefusalKind::Forbidden => StatusCode::FORBIDDEN,
        RefusalKind::Conflict => StatusCode::CONFLICT,
        RefusalKind::Outdated => StatusCode::PRECONDITION_FAILED,
        RefusalKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
        RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Store(_) => {
                tracing::error!(error = %ErrorChain(&error), "request failed");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    ErrorChain(&error).to_string(),
                )
            }
        }
    }
}
