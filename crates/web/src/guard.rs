//! Admits people and their scripts to the control socket, and refuses agents.

use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::net::UnixStream;

use super::auth::{self, Operator};
use super::problem::Problem;
use runtime::peer::{LocalPeer, PeerKind};

/// The other end of a control connection; `None` if the kernel did not identify it.
#[derive(Debug, Clone)]
pub(super) struct ControlPeer(Option<LocalPeer>);

impl ControlPeer {
    pub(super) fn of(stream: &UnixStream) -> Self {
        Self(LocalPeer::of(stream).ok())
    }
}

pub(super) async fn operators_only(
    ConnectInfo(ControlPeer(peer)): ConnectInfo<ControlPeer>,
    request: Request,
    next: Next,
) -> Response {
    match peer {
        Some(LocalPeer { kind: PeerKind::Operator, uid, .. }) => {
            auth::run_for(Operator::local(uid), request, next).await
        }
        Some(LocalPeer { kind: PeerKind::Agent { .. }, pid, .. }) => {
            tracing::warn!(pid, route = %request.uri().path(), "refused an agent on the control socket");
            let detail = "agents have no access to the control socket; they use the MCP tools";
            Problem::new(StatusCode::FORBIDDEN, "agents_not_allowed", detail).into_response()
        }
        Some(LocalPeer { kind: PeerKind::Unauthenticated, .. }) | None => {
            let detail = "the control socket is for the daemon's own user";
            Problem::new(StatusCode::FORBIDDEN, "not_allowed", detail).into_response()
        }
    }
}
