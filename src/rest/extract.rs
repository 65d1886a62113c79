//! Reading requests: path, query and body, with problems that name the place.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{Place, Problem};

/// The parameters of the path.
pub(super) struct InPath<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_path", rejection.body_text())),
        }
    }
}

/// The query string.
pub(super) struct InQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", rejection.body_text())),
        }
    }
}

/// A JSON body. An empty one is an empty object.
pub(super) struct InBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for InBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), "unreadable_body", rejection.body_text()))?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let mut json = serde_json::Deserializer::from_slice(text);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let place = Place { path: error.path().to_string(), message: error.inner().to_string() };
            let detail = format!("the body is not as expected: {}: {}", place.path, place.message);
            Problem::new(StatusCode::BAD_REQUEST, "invalid_body", detail).with_problems(vec![place])
        })?;
        Ok(Self(value))
    }
}
