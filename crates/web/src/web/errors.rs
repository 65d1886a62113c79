//! Shows problems to people in their language: as a page, if a page was requested. A script of a
//! page gets the problem itself and shows its text.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::form_ids;
use super::layout::{Frame, NavSection, rendered};
use super::words::Words;
use crate::auth::Operator;
use crate::{Problem, RestState};
use domain::{Language, Project, Refusal, ShortId, TaskId};

/// The longest body of a problem, in bytes. Every problem is shorter.
const MAX_PROBLEM: usize = 256 * 1024;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    status: u16,
    detail: String,
    /// The rest of it, which exists in English only.
    detail_in_english: Option<String>,
    hint: Option<String>,
    /// The project of a task that does not exist.
    project: Option<Project>,
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

/// Returns a problem in the words of a reader. `refusal` is the one that it tells, if there is one.
pub(super) fn in_words(w: &Words, mut problem: Problem, refusal: Option<&Refusal>) -> Problem {
    let told = problem.refusal.take();
    let refusal = refusal.or(told.as_deref());
    if let Some(field) = refusal.and_then(|refusal| w.of_field(refusal)) {
        problem.problems = vec![field];
    } else {
        let code = problem.code.clone();
        for field in &mut problem.problems {
            field.message = w.of_problem(&code, std::mem::take(&mut field.message));
        }
    }
    let detail = std::mem::take(&mut problem.detail);
    problem.detail = match refusal {
        Some(refusal) => w.of_refusal(refusal, detail),
        None => w.of_problem(&problem.code, detail),
    };
    // A hint of a layer that tells no refusal exists in English only.
    let hint = refusal.and_then(|refusal| refusal.hint(w.language));
    if w.language == Language::Japanese {
        problem.hint = hint.map(Into::into);
    }
    problem.refusal = told;
    problem
}

/// Returns the sentence about a problem, and its English text if the sentence leaves that out.
fn told(w: &Words, problem: &Problem, refusal: Option<&Refusal>) -> (String, Option<String>) {
    match refusal {
        Some(refusal) => w.parts_of_refusal(refusal, problem.detail.clone()),
        None => w.parts_of_problem(&problem.code, problem.detail.clone()),
    }
}

pub(super) async fn as_pages(
    State(state): State<RestState>,
    request: Request,
    next: Next,
) -> Response {
    let wants_page = wants_page(request.headers());
    let (asked, body) = request.into_parts();
    let frame = Frame::of(&asked.headers);
    let response = next.run(Request::from_parts(asked.clone(), body)).await;
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/problem+json");
    if !is_problem {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_PROBLEM).await.unwrap_or_default();
    let Ok(problem) = serde_json::from_slice::<Problem>(&body) else {
        return Response::from_parts(parts, body.into());
    };
    let refusal = parts.extensions.get();
    let (sentence, detail_in_english) = told(frame.w, &problem, refusal);
    let problem = in_words(frame.w, problem, refusal);
    if let (Some(Refusal::FormRefused { form, .. }), Some(operator)) =
        (refusal, asked.extensions.get::<Operator>())
    {
        let id = state.service.new_form_id(&operator.name, form).to_string();
        // It consists of characters that a header takes.
        if let Ok(id) = HeaderValue::try_from(id) {
            parts.headers.insert(form_ids::NEW_ID, id);
        }
    }
    if wants_page {
        // The reader keeps the side and the name, unless they cannot be read.
        let frame = Frame::read(&asked, &state).await.unwrap_or(frame);
        let missing = match refusal {
            Some(Refusal::TaskNotFound { task }) => Some(task),
            _ => None,
        };
        let project = match missing {
            Some(task) => project_of(&state, task).await,
            None => None,
        };
        let page = ErrorPage {
            status: parts.status.as_u16(),
            detail: missing.map_or(sentence, |task| frame.w.of_missing(task.as_str())),
            detail_in_english,
            hint: problem.hint.as_deref().map(str::to_owned),
            project,
            frame,
        };
        return (parts.status, rendered(&page)).into_response();
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&problem).map_or(body, Into::into);
    Response::from_parts(parts, body.into())
}

/// Returns the project to which a task with this short id would belong.
async fn project_of(state: &RestState, task: &TaskId) -> Option<Project> {
    let short_id: ShortId = task.as_str().parse().ok()?;
    state.service.catalog.project_of_key(&short_id.key).await.ok().flatten()
}

/// Returns whether a browser navigates, in contrast to a script of a page.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains("text/html"))
        && !headers.contains_key("hx-request")
}
