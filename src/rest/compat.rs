//! REST without the prefix `/api`, for older clients. To end their support, delete this module.

use axum::Router;

use super::{RestState, routes};

/// Returns the routes that need no login.
pub(super) fn open() -> Router<RestState> {
    routes::health()
}

/// Returns all other routes.
pub(super) fn closed() -> Router<RestState> {
    routes::all()
}
