//! The web pages of the daemon. Whole pages are under `/ui`. Parts that are shown anew after a
//! change are under `/ui/parts`. Actions of people are under `/ui/do`.
//!
//! A page is made here from the data of `service`. Its templates are in `templates/` and checked at
//! compile time; `templates/ui.html` draws what they share. In the browser, htmx fetches the parts.
//! `assets/app.js` tells htmx when: it listens to one stream of events. Neither of them decides
//! anything.

mod activity;
mod agent;
mod agent_form;
mod agent_state;
mod agents;
mod assets;
mod banners;
mod board;
mod buttons;
mod changes;
mod chat;
mod choices;
mod diff_lines;
mod errors;
mod first_run;
mod folder;
mod form_ids;
mod inbox;
mod instances;
mod launch;
mod launches;
mod layout;
mod login;
mod markdown;
mod names;
mod needs;
mod new_task;
mod news;
mod operations;
mod palette;
mod projects;
mod removals;
mod settings;
mod shown;
mod side;
mod tasks;
mod today;
mod transcript;
mod unified_diff;
mod waits;
mod words;

use axum::Router;
use axum::http::HeaderMap;
use axum::middleware::from_fn_with_state;
use axum::response::Redirect;
use axum::routing::{any, get};
use tower_http::compression::CompressionLayer;

pub(super) use login::{LoginContent, login_page};

use super::{Problem, RestState, public_path};
use runtime::http::problem::no_such_route;

/// Returns a problem in the words of the reader who asked with these headers.
pub(super) fn in_words(headers: &HeaderMap, problem: Problem) -> Problem {
    errors::in_words(layout::Frame::of(headers).w, problem, None)
}

/// Returns the files that pages need beside themselves. They contain no secret.
pub(super) fn open() -> Router<RestState> {
    assets::routes().merge(settings::open_routes()).layer(CompressionLayer::new())
}

/// Returns all pages.
pub(super) fn router(state: RestState) -> Router<RestState> {
    let pages = Router::new()
        .route("/", get(async || Redirect::to(HOME)))
        .route("/ui", get(async || Redirect::to(HOME)))
        .merge(projects::routes())
        .merge(first_run::routes())
        .merge(folder::routes())
        .merge(board::routes())
        .merge(tasks::routes())
        .merge(new_task::routes())
        .merge(choices::routes())
        .merge(changes::routes())
        .merge(diff_lines::routes())
        .merge(chat::routes())
        .merge(agents::routes())
        .merge(agent::routes())
        .merge(agent_form::routes())
        .merge(launches::routes())
        .merge(launch::routes())
        .merge(transcript::routes())
        .merge(operations::routes())
        .merge(inbox::routes())
        .merge(removals::routes())
        .merge(settings::routes())
        .merge(side::routes())
        .merge(palette::routes())
        .merge(news::routes())
        .route("/ui/{*path}", any(no_such_route));
    pages
        .layer(from_fn_with_state(state.clone(), errors::as_pages))
        .layer(from_fn_with_state(state, public_path::in_pages))
        .layer(CompressionLayer::new())
}

const HOME: &str = "/ui/projects";
