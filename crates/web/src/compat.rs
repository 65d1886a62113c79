//! REST without the prefix `/api`, for older clients. To end their support, delete this module, but
//! keep `/metrics`, where monitoring reads it (docs/operation.md).

use axum::Router;

use super::{RestState, routes};

/// Returns the routes that need a login.
pub(super) fn closed() -> Router<RestState> {
    routes::all()
}
