//! MCP on the Unix socket: one server per connection, whoever made it ([`converse`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::lines::LineTransport;
use super::server::McpServer;
use crate::http::crowd::{Crowd, Place};
use crate::http::share_of_descriptors;
use crate::peer::{LocalPeer, PeerKind};

/// Most connections at the same time, where descriptors allow it; more wait in the backlog of the socket. A thousand agents may
/// wait for messages, and others work meanwhile.
const MAX_CONNECTIONS: usize = 4096;
/// Whoever connects says something this soon. Afterwards it may be silent for hours: an agent thinks.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// After a failed accept: out of descriptors, most likely, and others must close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves MCP on `listener` until `cancel`; then takes no new connection, lets calls that are being answered finish, and
/// closes. Connections are independent: what one sends doesn't concern another.
pub async fn serve(listener: UnixListener, server: McpServer, cancel: CancellationToken) {
    let crowd = Crowd::new(share_of_descriptors(4, MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    let close = CancellationToken::new();
    let mut is_troubled = false;
    // Cancel-safe: a connection that isn't accepted stays in the backlog.
    while let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                is_troubled = false;
                let Some(place) = cancel.run_until_cancelled(crowd.enter()).await else { break };
                connections.spawn(talk(stream, place, server.clone(), close.child_token()));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_troubled, true) {
                    tracing::warn!(%error, "could not accept a connection on the MCP socket; will try again");
                }
                crowd.make_room();
                cancel.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
    server.settled().await;
    close.cancel();
    connections.close();
    connections.wait().await;
}

async fn talk(stream: UnixStream, place: Place, server: McpServer, close: CancellationToken) {
    let peer = match LocalPeer::of(&stream) {
        Ok(peer) if peer.kind != PeerKind::Stranger => peer,
        Ok(stranger) => {
            tracing::warn!(uid = stranger.uid, pid = stranger.pid, "refused a connection of another user");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "refused a connection whose peer is unknown");
            return;
        }
    };
    converse(stream, peer, place, server, close).await;
}

/// Serves the client at the other end of a stream until it leaves, overstays its place, or `close`, which is for this connection
/// alone.
pub async fn converse(stream: UnixStream, peer: LocalPeer, place: Place, server: McpServer, close: CancellationToken) {
    let standing = Arc::clone(place.standing());
    standing.waits(FIRST_MESSAGE);
    let transport = LineTransport::new(stream, Arc::clone(&standing), close.clone());
    // Without waiting for a handshake: clients of the seeds' system send a bare `tools/call` as their first line.
    let running = rmcp::service::serve_directly_with_ct(server.for_peer(peer), transport, None, close.clone());
    let mut running = std::pin::pin!(running.waiting());
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = standing.overstays() => {
            close.cancel();
            running.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an MCP connection ended badly");
    }
}
