//! Checks the host that a request names and the page that it comes from, before any route sees it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use super::problem::Problem;
use domain::host::AllowedHosts;

/// Limits `router` to requests for one of `hosts` that come from one of their pages or from no
/// page.
pub fn guarded(router: Router, hosts: AllowedHosts) -> Router {
    router.layer(from_fn_with_state(Arc::new(hosts), check_request))
}

async fn check_request(
    State(hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    match check(&hosts, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            tracing::info!(route = %request.uri().path(), reason = %problem.code, "HTTP request refused");
            problem.into_response()
        }
    }
}

fn check(hosts: &AllowedHosts, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(host) = only_header(headers, &header::HOST)? else {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "no_host",
            "the request has no Host header",
        ));
    };
    // A client that takes this server for a proxy names the host twice.
    for host in [Some(host), uri.authority().map(Authority::as_str)].into_iter().flatten() {
        if !hosts.allows_host(host) {
            let detail = format!("this server does not answer for the host `{host}`");
            let hint = "a name for this server is added to http.allowed_hosts";
            return Err(Problem::new(StatusCode::FORBIDDEN, "host_not_allowed", detail)
                .with_hint(Some(hint)));
        }
    }
    match only_header(headers, &header::ORIGIN)? {
        Some(origin) if !hosts.allows_origin(origin) => {
            let detail = format!("pages of the origin `{origin}` may not call this server");
            let hint = "the host of a page that may call is added to http.allowed_hosts";
            Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", detail)
                .with_hint(Some(hint)))
        }
        _ => Ok(()),
    }
}

/// Returns a header that may occur once. A value that is not plain text counts as unknown.
///
/// # Errors
/// 400 for more than one.
pub fn only_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str().unwrap_or("?"));
    if values.next().is_some() {
        let detail = format!("the request has more than one `{name}` header");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "repeated_header", detail));
    }
    Ok(first)
}
