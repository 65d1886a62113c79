//! Shows problems to people as a page, if a page was requested. The answer to a script of a page
//! stays unchanged; the script shows the text of the problem.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::look::{Frame, rendered};
use crate::rest::Problem;

/// The longest body of a problem, in bytes. Every problem is shorter.
const MAX_PROBLEM: usize = 256 * 1024;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    status: u16,
    detail: String,
    hint: Option<String>,
}

impl ErrorPage {
    fn heading(&self) -> &'static str {
        if self.status == StatusCode::NOT_FOUND {
            self.frame.w.not_found
        } else {
            self.frame.w.went_wrong
        }
    }
}

pub(super) async fn as_pages(request: Request, next: Next) -> Response {
    let wants_page = wants_page(request.headers());
    let frame = Frame::of(request.headers());
    let response = next.run(request).await;
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/problem+json");
    if !(wants_page && is_problem) {
        return response;
    }
    let status = response.status();
    let body = to_bytes(response.into_body(), MAX_PROBLEM).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body);
    let (detail, hint) =
        problem.map_or_else(|_| (String::new(), None), |problem| (problem.detail, problem.hint));
    let hint = hint.map(std::borrow::Cow::into_owned);
    (status, rendered(&ErrorPage { frame, status: status.as_u16(), detail, hint })).into_response()
}

/// Returns whether a browser navigates, in contrast to a script of a page.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("text/html"))
        && !headers.contains_key("hx-request")
}
