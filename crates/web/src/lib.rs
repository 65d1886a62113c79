//! The listener for people and their scripts: the REST routes and the page.
//!
//! ```text
//!  control socket ─► guard: no agents ──────┐
//!  HTTP ─┬─────────► auth: token or cookie ─┴─► routes: /api, web: /ui ─► service
//!        ├─────────► login: a link becomes a cookie
//!        └─────────► webhook: wakes the workers of a forge
//! ```
//!
//! Both listeners serve the same routes. The command line uses the control socket, where the kernel
//! names the user. Over HTTP, only a few routes need no token and no cookie, such as the login and
//! the health of the server. `auth` also refuses requests that the page of another site makes a
//! browser send. `webhook` checks the signature of each message of a forge.
//!
//! `routes` has a file for each resource. JSON is in camelCase, and errors are problem+json (RFC
//! 9457). `web` makes the pages from the same use cases. A coordinator without its server has only
//! the routes of [`coordinator_router`].
//!
//! The rules are in `service` and `domain`, and this crate contains only their form. The types that
//! clients send and read are in `api`. `app` serves the routers.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

mod answers;
pub mod auth;
mod compat;
mod conditional;
mod extract;
mod guard;
mod login;
mod malformed;
mod openapi;
mod page;
mod problem;
mod programs;
mod public_path;
mod routes;
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

pub use problem::{FieldProblem, Problem};
pub use programs::{
    FoundProgram, MissingProgram, ProgramList, ProgramLogin, Programs, UnfitProgram,
};
pub use routes::configuration::{ConfigurationHandle, ReloadRefused, ReloadRequest};
pub use routes::coordinator::{CoordinatorLook, CoordinatorState};
pub use webhook::WebhookEndpoint;

use domain::host::{Origin, PublicUrl};
use runtime::http::{self, HttpLimits};
use runtime::throttle::Throttle;
use service::Service;

/// The state that every route needs.
#[derive(Clone)]
pub struct RestState {
    pub service: Arc<Service>,
    /// The address at which the server listens for HTTP.
    pub http: Option<SocketAddr>,
    /// The URL at which browsers reach the server if it is behind a proxy.
    pub public_url: Option<PublicUrl>,
    /// The limit for guesses at tokens, cookies and links.
    pub guesses: Arc<Throttle>,
    /// The configuration in use, and the requests to read it again.
    pub configuration: ConfigurationHandle,
    /// The search for agent CLIs.
    pub programs: Programs,
    /// Ends streams that would never end by themselves.
    pub closing: CancellationToken,
}

impl FromRef<RestState> for ConfigurationHandle {
    fn from_ref(state: &RestState) -> Self {
        state.configuration.clone()
    }
}

impl RestState {
    /// Returns the URL of the server's pages for a browser, without a slash at its end. `None` if
    /// the server does not listen for HTTP.
    pub(crate) fn page_url(&self) -> Option<String> {
        self.http.map(|address| {
            self.public_url.as_ref().map_or_else(|| http::local_url(address), ToString::to_string)
        })
    }

    /// Returns the origin of the pages if the server is behind a proxy.
    fn public_origin(&self) -> Option<&Origin> {
        self.public_url.as_ref().map(PublicUrl::origin)
    }
}

/// Returns the routes that need no login: liveness, readiness and the login itself.
fn open(state: RestState) -> Router {
    Router::new()
        .nest("/api", routes::health())
        .merge(routes::health())
        .merge(login::routes(state.clone()))
        .merge(web::open())
        .with_state(state)
}

/// Returns all other routes, under `/api` and, for clients of the older system, without it (C-30).
fn closed(state: RestState) -> Router {
    let answers = from_fn_with_state(answers::Answers::default(), answers::bounded);
    Router::new()
        .nest("/api", routes::all())
        .merge(compat::closed())
        .merge(web::router(state.clone()))
        .with_state(state)
        .route_layer(answers)
}

/// Returns all routes, for a listener that admits only operators.
pub fn router(state: RestState) -> Router {
    Router::new()
        .merge(open(state.clone()))
        .merge(closed(state))
        .fallback(http::problem::no_such_route)
        .method_not_allowed_fallback(http::problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(http::problem::panicked))
}

/// Returns all routes for a listener that any client can reach. Most of them need a token or a
/// cookie. Other paths have no answer here.
pub fn network_router(state: &RestState) -> Router {
    let routes = open(state.clone()).merge(auth::authenticated(closed(state.clone()), state));
    routes.layer(from_fn_with_state(state.clone(), public_path::in_headers))
}

/// Returns `router` with the endpoint for webhooks before it, at its configured path.
pub fn with_webhooks(router: Router, endpoint: WebhookEndpoint) -> Router {
    router.layer(from_fn_with_state(endpoint, webhook::take))
}

/// Returns the routes of a coordinator without its server.
pub fn coordinator_router(state: CoordinatorState) -> Router {
    Router::new()
        .nest("/api", routes::coordinator::routes().fallback(routes::coordinator::ask_the_server))
        .fallback(routes::coordinator::ask_the_server)
        .method_not_allowed_fallback(http::problem::method_not_allowed)
        .layer(CatchPanicLayer::custom(http::problem::panicked))
        .with_state(state)
}

/// The most connections at the same time, if the limit of descriptors allows it.
const MAX_CONNECTIONS: usize = 256;

/// Serves `router` on the control socket until `cancel`. Requests that are being answered are
/// finished.
pub async fn serve_control(listener: UnixListener, router: Router, cancel: CancellationToken) {
    let router = router.layer(axum::middleware::from_fn(guard::operators_only));
    let limits = HttpLimits::of(http::share_of_descriptors(16, MAX_CONNECTIONS));
    http::serve(listener, router, limits, guard::ControlPeer::of, cancel).await;
}
