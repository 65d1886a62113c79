//! The routes: one file per resource, one line each here. What a route sends and takes is a type in its file; the command line
//! reads the same types.

pub mod activity;
pub mod agents;
pub mod chat;
pub mod configuration;
pub mod coordinator;
pub mod credentials;
pub mod events;
pub mod launches;
pub mod manifest;
mod metrics;
pub mod operate;
pub mod projects;
pub mod status;
pub mod tasks;
pub mod why;

use axum::Router;

use super::RestState;

/// Those for whoever asks.
pub(super) fn health() -> Router<RestState> {
    status::health()
}

pub(super) fn all() -> Router<RestState> {
    Router::new()
        .merge(status::routes())
        .merge(metrics::routes())
        .merge(agents::routes())
        .merge(projects::routes())
        .merge(tasks::routes())
        .merge(chat::routes())
        .merge(launches::routes())
        .merge(events::routes())
        .merge(operate::routes())
        .merge(manifest::routes())
        .merge(why::routes())
        .merge(configuration::routes())
        .merge(credentials::routes())
}
