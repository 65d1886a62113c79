//! The people's door: REST on the control socket, which the command line speaks, and over HTTP for those who log in (`auth`).
//! JSON in camelCase, errors as problem+json (RFC 9457), one file per resource.
//!
//! The rules are in `service` and `domain`; here is only their form.

mod answers;
mod api;
pub mod auth;
mod conditional;
mod extract;
mod guard;
mod login;
mod page;
mod problem;
pub mod routes;
mod web;
mod webhook;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::middleware::from_fn_with_state;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

pub use problem::{Place, Problem};
pub use routes::configuration::{ConfigurationDoor, ReloadRefused, ReloadRequest};
pub use routes::coordinator::{CoordinatorLook, CoordinatorState};
pub use webhook::WebhookDoor;

use crate::domain::host::Origin;
use crate::http::{self, Limits};
use crate::service::Service;
use crate::service::throttle::Throttle;

/// What every route needs.
#[derive(Clone)]
pub struct RestState {
    pub service: Arc<Service>,
    /// Where the server listens for HTTP, for those who ask.
    pub http: Option<SocketAddr>,
    /// How browsers call it, where that isn't by its address: behind a proxy.
    pub public_origin: Option<Origin>,
    /// Who guesses at tokens, cookies and links.
    pub guesses: Arc<Throttle>,
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

impl RestState {
    /// Where a browser finds the server's pages; without a path. `None` where it doesn't listen for HTTP.
    pub(crate) fn page_url(&self) -> Option<String> {
        self.http.map(|address| {
            self.public_origin
                .as_ref()
                .map_or_else(|| http::local_url(address), ToString::to_string)
        })
    }
}

/// What everybody may ask: whether the server lives, whether it is ready, and how to log in.
fn open(state: RestState) -> Router {
    Router::new()
        .nest("/api", routes::health())
        .merge(routes::health())
        .merge(login::routes())
        .merge(web::open())
        .with_state(state)
}

/// All else, under `/api` and, for the seeds' clients, without it.
fn closed(state: RestState) -> Router {
    let answers = from_fn_with_state(answers::Answers::default(), answers::bounded);
    Router::new()
        .nest("/api", routes::all())
        .merge(routes::all())
        .merge(web::router())
        .with_state(state)
        .route_layer(answers)
}

/// All routes, for a listener that lets in nobody but operators.
pub fn router(state: RestState) -> Router {
    Router::new()
        .merge(open(state.clone()))
        .merge(closed(state))
        .fallback(http::problem::no_such_route)
        .method_not_allowed_fallback(http::problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(http::problem::panicked))
}

/// All routes, for a listener that anybody can reach: most of them for those who show that they may. Without an answer for other
/// paths.
pub fn network_router(state: &RestState) -> Router {
    open(state.clone()).merge(auth::authenticated(closed(state.clone()), state))
}

/// `router`, and before it the door for webhooks, wherever that is configured to be.
pub fn with_webhooks(router: Router, door: WebhookDoor) -> Router {
    router.layer(from_fn_with_state(door, webhook::take))
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

/// Most people and scripts at the same time, where descriptors allow it.
const MAX_CONNECTIONS: usize = 256;

/// Serves `router` on the control socket until `cancel`; requests that are being answered are finished.
pub async fn serve_control(listener: UnixListener, router: Router, cancel: CancellationToken) {
    let router = router.layer(axum::middleware::from_fn(guard::operators_only));
    let limits = Limits::of(http::share_of_descriptors(16, MAX_CONNECTIONS));
    http::serve(listener, router, limits, guard::ControlPeer::of, cancel).await;
}
