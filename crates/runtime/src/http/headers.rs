//! The security headers of every answer. The browser runs and shows only what this server sent,
//! with its declared type, and stores nothing.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;

/// The policy allows no content from other servers, no inline code, and no framing by other pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The headers in their order. An answer that has one of its own keeps it.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // `no-referrer` would make browsers send `Origin: null` with our own forms.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Adds security headers to the answers of `router`, which browsers may show.
pub fn with_security_headers(router: Router) -> Router {
    router.layer(map_response(secured))
}

async fn secured(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
