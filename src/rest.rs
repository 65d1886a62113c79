//! The people's door: REST on the control socket, which the command line speaks. JSON in camelCase, errors as problem+json
//! (RFC 9457), one file per resource.
//!
//! The rules are in `service` and `domain`; here is only their form.

mod api;
mod conditional;
mod extract;
mod guard;
mod page;
mod problem;
pub mod routes;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

pub use problem::{Place, Problem};
pub use routes::configuration::{ConfigurationDoor, ReloadRefused, ReloadRequest};
pub use routes::coordinator::{CoordinatorLook, CoordinatorState};

use crate::http::{self, Limits};
use crate::service::Service;

/// What every route needs.
#[derive(Clone)]
pub struct RestState {
    pub service: Arc<Service>,
    /// Where the server listens for HTTP, for those who ask.
    pub http: Option<SocketAddr>,
    /// How it is configured, and where that is read again.
    pub configuration: ConfigurationDoor,
    /// Ends streams that would never end by themselves.
    pub closing: CancellationToken,
}

impl FromRef<RestState> for ConfigurationDoor {
    fn from_ref(state: &RestState) -> Self {
        state.configuration.clone()
    }
}

/// All routes, under `/api` and, for the seeds' clients, without it.
pub fn router(state: RestState) -> Router {
    let routes = routes::all();
    Router::new()
        .nest("/api", routes.clone())
        .merge(routes)
        .fallback(http::problem::no_such_route)
        .method_not_allowed_fallback(http::problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(http::problem::panicked))
        .with_state(state)
}

/// The routes of a coordinator without its server.
pub fn coordinator_router(state: CoordinatorState) -> Router {
    Router::new()
        .nest("/api", routes::coordinator::routes().fallback(routes::coordinator::ask_the_server))
        .fallback(routes::coordinator::ask_the_server)
        .method_not_allowed_fallback(http::problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(http::problem::panicked))
        .with_state(state)
}

/// What may be asked over the network without a token: whether the server lives, and whether it is ready.
pub fn health(state: RestState) -> Router {
    routes::health().with_state(state)
}

/// Most people and scripts at the same time, where descriptors allow it.
const MAX_CONNECTIONS: usize = 256;

/// Serves `router` on the control socket until `cancel`; requests that are being answered are finished.
pub async fn serve_control(listener: UnixListener, router: Router, cancel: CancellationToken) {
    let router = router.layer(axum::middleware::from_fn(guard::operators_only));
    let limits = Limits::of(http::share_of_descriptors(16, MAX_CONNECTIONS));
    http::serve(listener, router, limits, guard::ControlPeer::of, cancel).await;
}
