//! The page of a login. What a login is, and who may, is `rest::login`'s.

use askama::Template;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::look::{Frame, rendered};
use crate::domain::credential::Role;
use crate::rest::Problem;

/// What it says.
pub(in crate::rest) enum Says {
    /// How one gets a link.
    HowTo,
    /// That this link is good.
    Ready { link: String, name: String, role: Role },
    /// Why it isn't, or the login failed.
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
    (status, rendered(&LoginPage { frame: Frame::of(headers), says })).into_response()
}
