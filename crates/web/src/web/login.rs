//! The page of a login. `crate::login` contains the login itself and its checks.

use askama::Template;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::errors::in_words;
use super::layout::{Frame, rendered};
use super::words::Words;
use crate::Problem;
use domain::Refusal;
use domain::credential::Role;

/// The content of the page.
pub(crate) enum LoginContent {
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
    ready: Option<Ready>,
    /// The reason why a login failed, above the instructions for the next one.
    note: Option<Note>,
}

struct Ready {
    link: String,
    name: String,
    role: Role,
}

struct Note {
    code: String,
    heading: String,
    help: Option<String>,
}

impl Note {
    fn of(w: &Words, problem: Problem) -> Self {
        let code = problem.code.to_string();
        if let Some(Refusal::LinkNotValid(fault)) = problem.refusal.as_deref() {
            let (heading, help) = w.of_link_fault(*fault);
            return Self { code, heading: heading.to_owned(), help: Some(help.to_owned()) };
        }
        let problem = in_words(w, problem, None);
        let help = problem.hint.as_deref().map(str::to_owned);
        Self { code, heading: problem.detail.clone(), help }
    }
}

pub(crate) fn login_page(headers: &HeaderMap, says: LoginContent) -> Response {
    let frame = Frame::of(headers);
    let (status, ready, note) = match says {
        LoginContent::HowTo => (StatusCode::OK, None, None),
        LoginContent::Ready { link, name, role } => {
            (StatusCode::OK, Some(Ready { link, name, role }), None)
        }
        LoginContent::Refused(problem) => {
            let status = StatusCode::from_u16(problem.status);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, None, Some(Note::of(frame.w, problem)))
        }
    };
    (status, rendered(&LoginPage { frame, ready, note })).into_response()
}
