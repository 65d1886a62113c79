//! The people's door: REST on the control socket, which the command line speaks. JSON in camelCase, errors as problem+json
//! (RFC 9457), one file per resource.
//!
//! The rules are in `service` and `domain`; here is only their form.

mod extract;
mod guard;
mod problem;
pub mod routes;

use std::sync::Arc;

use axum::Router;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

pub use problem::{Place, Problem};
pub use routes::coordinator::{CoordinatorLook, CoordinatorState};

use crate::service::Service;

/// What every route needs.
#[derive(Clone)]
pub struct RestState {
    pub service: Arc<Service>,
    /// Ends streams that would never end by themselves.
    pub closing: CancellationToken,
}

/// All routes, under `/api` and, for the seeds' clients, without it.
pub fn router(state: RestState) -> Router {
    let routes = routes::all();
    Router::new()
        .nest("/api", routes.clone())
        .merge(routes)
        .fallback(problem::no_such_route)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(state)
}

/// The routes of a coordinator without its server.
pub fn coordinator_router(state: CoordinatorState) -> Router {
    Router::new()
        .nest("/api", routes::coordinator::routes().fallback(routes::coordinator::ask_the_server))
        .fallback(routes::coordinator::ask_the_server)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(state)
}

/// Serves `router` on the control socket until `cancel`; requests that are being answered are finished.
///
/// # Errors
/// When the listener breaks.
pub async fn serve_control(listener: UnixListener, router: Router, cancel: CancellationToken) -> std::io::Result<()> {
    let router = router.layer(axum::middleware::from_fn(guard::operators_only));
    let service = router.into_make_service_with_connect_info::<guard::ControlPeer>();
    axum::serve(listener, service).with_graceful_shutdown(async move { cancel.cancelled().await }).await
}
