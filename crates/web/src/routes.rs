//! The routes. Each resource has a file of its own and one line here. The types that a route sends
//! and takes are in `api`.

mod agents;
mod assignments;
pub mod attention;
pub mod chat;
mod comments;
pub mod configuration;
pub mod coordinator;
mod credentials;
pub mod events;
mod executions;
mod export;
pub mod forge;
mod history;
mod launches;
mod lookup;
mod manifest;
mod metrics;
mod notices;
pub mod operate;
mod projects;
mod removals;
mod sessions;
mod settings;
mod spend;
pub mod status;
mod store;
mod tasks;
mod totals;
mod why;
pub mod workspaces;

use axum::Router;
use axum::http::StatusCode;

use super::openapi::Api;
use super::{RestState, conditional};
use domain::Sent;

/// Returns the status of the answer to a request that creates an object.
const fn creation_status<T>(sent: &Sent<T>) -> StatusCode {
    match sent {
        Sent::First(_) => StatusCode::CREATED,
        Sent::Again(_) => StatusCode::OK,
    }
}

/// Returns the routes that need no login.
pub(super) fn health() -> Router<RestState> {
    status::health().into_router()
}

/// Returns all routes, and `/openapi.json`, which describes them.
pub(super) fn all() -> Router<RestState> {
    api().described_with(&status::health()).layer(axum::middleware::from_fn(conditional::tagged))
}

pub(super) fn api() -> Api {
    Api::new()
        .merge(status::routes())
        .merge(metrics::routes())
        .merge(agents::routes())
        .merge(projects::routes())
        .merge(assignments::routes())
        .merge(tasks::routes())
        .merge(removals::routes())
        .merge(chat::routes())
        .merge(comments::routes())
        .merge(launches::routes())
        .merge(sessions::routes())
        .merge(executions::routes())
        .merge(spend::routes())
        .merge(notices::routes())
        .merge(events::routes())
        .merge(forge::routes())
        .merge(operate::routes())
        .merge(manifest::routes())
        .merge(export::routes())
        .merge(why::routes())
        .merge(attention::routes())
        .merge(lookup::routes())
        .merge(workspaces::routes())
        .merge(settings::routes())
        .merge(credentials::routes())
        .merge(configuration::described_routes())
}
