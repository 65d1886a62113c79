//! Turns refusals and faults into problems.

use axum::http::StatusCode;

use crate::domain::refusal::RefusalKind;
use crate::domain::{Language, Refusal};
use crate::service::ServiceError;
use crate::telemetry::ErrorChain;

pub use crate::http::{FieldProblem, Problem};

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
