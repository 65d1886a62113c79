//! Conditional requests. An answer that did not change is not sent again (`ETag`, `If-None-Match`).
//! A change is only made to the revision that its client has seen (`If-Match`).

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hasher as _};

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;

/// The revision of the one resource that an answer shows. It is an extension of the answer, and
/// part of its tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Revision(pub(super) i64);

/// Adds a tag to JSON answers, and leaves out a body that the client has.
pub(super) async fn tagged(request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let response = next.run(request).await;
    let is_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if response.status() != StatusCode::OK || !is_json {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    let hash = hasher.finish();
    let tag = match head.extensions.get::<Revision>() {
        Some(Revision(revision)) => format!("\"{revision}-{hash:016x}\""),
        None => format!("W/\"{hash:016x}\""),
    };
    let is_known = known.as_ref().is_some_and(|known| names(known, &tag));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        head.headers.insert(header::ETAG, tag);
    }
    if is_known {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(header::CONTENT_TYPE);
        head.headers.remove(header::CONTENT_LENGTH);
        return (head, Body::empty()).into_response();
    }
    (head, Body::from(bytes)).into_response()
}

/// Returns whether `known` names `tag`, weak or not.
fn names(known: &HeaderValue, tag: &str) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let known = known.to_str().unwrap_or_default();
    known.trim() == "*" || known.split(',').any(|one| strong(one) == strong(tag))
}

/// The revision of the resource that the client of a change has seen; `None` if it does not say.
pub(super) struct SeenRevision(pub(super) Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for SeenRevision {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(seen(&parts.headers)))
    }
}

/// Returns the revision in `If-Match`. A tag that this server can't have made gives -1, which no
/// resource has.
fn seen(headers: &HeaderMap) -> Option<i64> {
    let tag = headers.get(header::IF_MATCH)?.to_str().unwrap_or_default().trim();
    if tag == "*" {
        return None;
    }
    let revision =
        tag.trim_start_matches("W/").trim_matches('"').split('-').next().unwrap_or_default();
    Some(revision.parse().unwrap_or(-1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_whether_weak_or_not() {
        let known = |known: &'static str| names(&HeaderValue::from_static(known), "W/\"1\"");
        assert!(known("*") && known("\"1\"") && known("W/\"1\"") && known("\"0\", \"1\""));
        assert!(!known("\"2\"") && !known(""));
    }

    #[test]
    fn a_tag_says_which_revision_was_seen() {
        let of = |tag: &'static str| {
            seen(&HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_static(tag))]))
        };
        assert_eq!(
            [of("\"7-00ff\""), of("W/\"7-00ff\""), of("\"7\""), of("*")],
            [Some(7), Some(7), Some(7), None]
        );
        assert_eq!([of("garbage"), of("\"\"")], [Some(-1), Some(-1)]);
        assert_eq!(seen(&HeaderMap::new()), None);
    }
}
