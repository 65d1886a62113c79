//! The page of a login. `rest::login` contains the login itself and its checks.

use askama::Template;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::layout::{Frame, rendered};
use crate::domain::credential::Role;
use crate::rest::Problem;

/// The content of the page.
pub(in crate::rest) enum Says {
    /// The instructions for getting a link.
    HowTo,
    /// The confirmation that this link is valid.
    Ready { link: String, name: String, role: Role },
    /// The reason why the link is invalid or the login failed.
    Refused(Problem),
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    says: Says,
}

pub(in crate::rest) fn login_page(headers: &HeaderMap, says: Says) -> Response {
    let status = match &says {
        Says::HowTo | Says::Ready { .. } => StatusCode::OK,
        Says::Refused(problem) => {
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
    };
    let frame = Frame::of(headers);
    let says = match says {
        Says::Refused(mut problem) => {
            problem.detail = frame.w.of_problem(&problem.code, problem.detail);
            Says::Refused(problem)
        }
        says => says,
    };
    (status, rendered(&LoginPage { frame, says })).into_response()
}
