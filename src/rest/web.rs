//! The page: what people look at, served by the daemon itself. Whole pages are under `/ui`, parts of them that are shown anew when
//! something changes under `/ui/parts`, what a person does under `/ui/do`.
//!
//! A page is made here from what `service` says (templates in `templates/`, checked when this is built); in the browser htmx
//! fetches its parts, and `assets/app.js` says when: it listens to one stream of events. Nothing is decided here or there.

mod agents;
mod assets;
mod board;
mod chat;
mod coordinator;
mod errors;
mod instances;
mod launches;
mod login;
mod look;
mod news;
mod projects;
mod settings;
mod shown;
mod tasks;
mod words;

use axum::Router;
use axum::middleware::from_fn;
use axum::response::Redirect;
use axum::routing::get;
use tower_http::compression::CompressionLayer;

pub(super) use login::{Says, login_page};

use super::RestState;

/// What the pages need beside themselves: nobody's secret.
pub(super) fn open() -> Router<RestState> {
    assets::routes().merge(settings::open_routes()).layer(CompressionLayer::new())
}

/// All pages.
pub(super) fn router() -> Router<RestState> {
    let pages = Router::new()
        .route("/", get(async || Redirect::to(HOME)))
        .route("/ui", get(async || Redirect::to(HOME)))
        .merge(projects::routes())
        .merge(board::routes())
        .merge(tasks::routes())
        .merge(chat::routes())
        .merge(agents::routes())
        .merge(launches::routes())
        .merge(coordinator::routes())
        .merge(settings::routes())
        .merge(news::routes());
    pages.layer(from_fn(errors::as_pages)).layer(CompressionLayer::new())
}

const HOME: &str = "/ui/projects";
