//! The path before those of this server, if a proxy shows its pages under one
//! (`https://example.org/coordinator/`).
//!
//! The proxy removes the path from requests, so routes do not know it. Answers to requests for the
//! public host get it in all addresses of pages, in redirects and in cookies. Requests for another
//! host, such as those on loopback, did not come through the proxy, and their answers stay as they
//! are.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use super::RestState;
use domain::host::HostName;

/// The header by which htmx goes to another page.
const HX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// Returns the path before the paths of this server, for the host that a request names. It is empty
/// if there is none.
pub(super) fn of<'a>(state: &'a RestState, headers: &HeaderMap) -> &'a str {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<HostName>().ok());
    match (&state.public_url, host) {
        (Some(url), Some(host)) if url.origin().is_asked_by(&host) => url.path(),
        _ => "",
    }
}

/// Writes the path into the redirects and the cookies of an answer.
pub(super) async fn in_headers(
    State(state): State<RestState>,
    request: Request,
    next: Next,
) -> Response {
    let path = of(&state, request.headers());
    let mut response = next.run(request).await;
    if path.is_empty() {
        return response;
    }
    let headers = response.headers_mut();
    for name in [header::LOCATION, HX_REDIRECT] {
        if let Some(value) = headers.get_mut(&name) {
            change(value, |to| {
                let is_here = to.starts_with('/') && !to.starts_with("//");
                is_here.then(|| format!("{path}{to}"))
            });
        }
    }
    if let header::Entry::Occupied(mut cookies) = headers.entry(header::SET_COOKIE) {
        for cookie in cookies.iter_mut() {
            change(cookie, |text| Some(text.replace("; Path=/;", &format!("; Path={path}/;"))));
        }
    }
    response
}

fn change(value: &mut HeaderValue, changed: impl Fn(&str) -> Option<String>) {
    let text = value.to_str().ok().and_then(changed);
    if let Some(text) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
        *value = text;
    }
}

/// Writes the path into the addresses of a page that is not compressed yet.
pub(super) async fn in_pages(
    State(state): State<RestState>,
    request: Request,
    next: Next,
) -> Response {
    let path = of(&state, request.headers());
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if path.is_empty() || !is_page {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // A page is whole in memory already.
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            let page = under(path, &String::from_utf8_lossy(&bytes));
            Response::from_parts(parts, Body::from(page))
        }
        Err(error) => {
            tracing::error!(%error, "could not read a page");
            Response::from_parts(parts, Body::empty())
        }
    }
}

/// The attributes of our templates that have an address. Others may have a text of a person that
/// begins like one.
const ADDRESSES: [&str; 17] = [
    "href",
    "src",
    "action",
    "hx-get",
    "hx-post",
    "data-address",
    "data-again",
    "data-back",
    "data-calm",
    "data-copy-link",
    "data-events",
    "data-href",
    "data-panel",
    "data-part",
    "data-reopen-when-done",
    "data-source",
    "data-waits",
];

/// Returns a page whose addresses on this server begin with `path`. They are attributes of tags. In
/// texts of people `<` and `>` are escaped, so they are in no tag.
fn under(path: &str, page: &str) -> String {
    let mut changed = String::with_capacity(page.len() + page.len() / 16);
    let mut rest = page;
    while let Some(at) = rest.find("=\"/") {
        let (before, after) = rest.split_at(at + 2);
        changed.push_str(before);
        let name = changed.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
        let name = name.trim_end_matches("=\"");
        let is_in_tag = changed.rfind('<') > changed.rfind('>');
        if is_in_tag && ADDRESSES.contains(&name) && !after.starts_with("//") {
            changed.push_str(path);
        }
        rest = after;
    }
    changed.push_str(rest);
    changed.replacen("data-base=\"\"", &format!("data-base=\"{path}\""), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_page_begin_with_the_path_and_nothing_else_changes() {
        let page = "<body data-base=\"\"><a href=\"/ui/x\">=&#34;/ui/y</a><use href=\"#i\"/>\
            <a href=\"//other/\" title=\"a=/b\"><a href=\"https://h/ui\"><img src=\"/assets/1\">\
            <code>href=\"/x\"</code><input value=\"/srv/work\">";
        assert_eq!(
            under("/at/it", page),
            "<body data-base=\"/at/it\"><a href=\"/at/it/ui/x\">=&#34;/ui/y</a><use href=\"#i\"/>\
            <a href=\"//other/\" title=\"a=/b\"><a href=\"https://h/ui\"><img src=\"/at/it/assets/1\">\
            <code>href=\"/x\"</code><input value=\"/srv/work\">"
        );
    }
}
