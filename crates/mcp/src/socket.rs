//! MCP on the Unix socket: one server for each connection, on a listener or a given stream
//! ([`converse`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{SocketConnection, SocketConnections};
use super::identification::IdentificationQueue;
use super::lines::LineTransport;
use super::malformed;
use super::server::McpServer;
use domain::admission::{ConnectionLimits, Refused};
use machine::sys::peers;
use runtime::http::share_of_descriptors;
use runtime::peer::{LocalPeer, PeerKind};

/// The greatest number of connections at the same time, if there are enough descriptors. A thousand
/// agents may wait for messages while others work.
const MAX_CONNECTIONS: usize = 4096;
/// The greatest number of accepted connections whose peer is not known yet, or that are about to
/// close. More wait in the backlog of the socket.
const MAX_IN_PASSING: usize = 32;
/// The pause after a failed accept. Most likely there are no descriptors, and other connections
/// must close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves MCP on `listener` until `cancel`; then takes no new connection, lets calls that are being
/// answered finish, and closes. Connections are independent: what one sends doesn't concern
/// another.
pub async fn serve(listener: UnixListener, server: McpServer, cancel: CancellationToken) {
    let n_descriptors = share_of_descriptors(4, MAX_CONNECTIONS);
    let n_in_passing = (n_descriptors / 8).min(MAX_IN_PASSING);
    let limits = ConnectionLimits::of(n_descriptors - n_in_passing);
    let connections = SocketConnections::new(limits);
    let identifications = IdentificationQueue::new(limits.unknown_per_process);
    // No client keeps one for long without a place in the register, so that the next connection is
    // always accepted soon.
    let descriptors = Arc::new(Semaphore::new(n_descriptors));
    let tasks = TaskTracker::new();
    let close = CancellationToken::new();
    let mut is_troubled = false;
    loop {
        let free = cancel.run_until_cancelled(Arc::clone(&descriptors).acquire_owned()).await;
        let Some(Ok(descriptor)) = free else { break };
        // Cancel-safe: a connection that isn't accepted stays in the backlog.
        let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await else {
            break;
        };
        match accepted {
            Ok((stream, _)) => {
                is_troubled = false;
                let connections = connections.clone();
                let identifications = identifications.clone();
                let server = server.clone();
                let close = close.child_token();
                tasks.spawn(async move {
                    talk(stream, &connections, &identifications, server, close).await;
                    drop(descriptor);
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut is_troubled, true) {
                    tracing::warn!(%error, "could not accept a connection on the MCP socket; will try again");
                }
                cancel.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
    server.settled().await;
    close.cancel();
    tasks.close();
    tasks.wait().await;
}

async fn talk(
    stream: UnixStream,
    connections: &SocketConnections,
    identifications: &IdentificationQueue,
    server: McpServer,
    close: CancellationToken,
) {
    let Ok((pid, _)) = peers::credentials(&stream) else {
        return;
    };
    let Some(identification) = identifications.begin(pid).await else {
        return refuse(&stream, Refused::TooFast);
    };
    let peer = match LocalPeer::of(&stream) {
        Ok(peer) if peer.kind != PeerKind::Unauthenticated => peer,
        Ok(unauthenticated) => {
            tracing::warn!(
                uid = unauthenticated.uid,
                pid = unauthenticated.pid,
                "refused a connection of another user"
            );
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "refused a connection whose peer is unknown");
            return;
        }
    };
    let registered = connections.register(&server.with_launch(&peer));
    drop(identification);
    match registered {
        Ok(connection) => converse(stream, peer, connection, server, close).await,
        Err(refused) => refuse(&stream, refused),
    }
}

/// Tells the client why its connection closes, if it can be told at once.
fn refuse(stream: &UnixStream, refused: Refused) {
    let answer = malformed::complaint(malformed::BUSY, &refused.to_string(), &Value::Null);
    let _ = stream.try_write(format!("{answer}\n").as_bytes());
}

/// Serves the client at the other end of a stream until it leaves, its connection is displaced, or
/// `close`, which is for this connection alone.
pub async fn converse(
    stream: UnixStream,
    peer: LocalPeer,
    connection: Arc<SocketConnection>,
    server: McpServer,
    close: CancellationToken,
) {
    let connection_state = Arc::clone(connection.connection_state());
    let transport = LineTransport::new(stream, connection, close.clone());
    // This does not wait for a handshake, because clients of the older system send a bare
    // `tools/call` as their first line (C-16).
    let running = rmcp::service::serve_directly_with_ct(
        server.for_peer(peer),
        transport,
        None,
        close.clone(),
    );
    let mut running = std::pin::pin!(running.waiting());
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = connection_state.overstays() => {
            close.cancel();
            running.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an MCP connection ended with an error");
    }
}
