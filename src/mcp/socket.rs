//! MCP on the Unix socket: binding it, and one server per connection.

use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::lines::LineTransport;
use super::server::McpServer;
use crate::peer::{Peer, PeerKind};

/// Most connections at the same time, where descriptors allow it; more wait in the backlog of the socket.
const MAX_CONNECTIONS: u64 = 1024;

/// Serves MCP on `listener` until `cancel`; then takes no new connection, lets calls that are being answered finish, and
/// closes. Connections are independent: what one sends doesn't concern another.
pub async fn serve(listener: UnixListener, server: McpServer, cancel: CancellationToken) {
    let slots = tokio::sync::Semaphore::new(max_connections());
    let connections = TaskTracker::new();
    let close = CancellationToken::new();
    let slots = std::sync::Arc::new(slots);
    loop {
        let accepted = tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            // Cancel-safe: a connection that isn't accepted stays in the backlog.
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let (server, close) = (server.clone(), close.child_token());
                connections.spawn(async move {
                    talk(stream, server, close).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: others must close first.
                tracing::warn!(%error, "could not accept a connection on the MCP socket");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
    server.settled().await;
    close.cancel();
    connections.close();
    connections.wait().await;
}

/// Half of the descriptors at most: agents are started with the others, and must be whatever clients do.
fn max_connections() -> usize {
    let descriptors = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    let descriptors = descriptors.map_or(MAX_CONNECTIONS, |(soft, _)| soft);
    usize::try_from((descriptors / 2).clamp(1, MAX_CONNECTIONS)).unwrap_or(1)
}

async fn accept(
    listener: &UnixListener,
    slots: &std::sync::Arc<tokio::sync::Semaphore>,
) -> std::io::Result<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = std::sync::Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

async fn talk(stream: UnixStream, server: McpServer, close: CancellationToken) {
    let peer = match Peer::of(&stream) {
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
    let (reader, writer) = stream.into_split();
    let transport = LineTransport::new(reader, writer);
    // Without waiting for a handshake: clients of the seeds' system send a bare `tools/call` as their first line.
    let running = rmcp::service::serve_directly_with_ct(server.for_peer(peer), transport, None, close);
    if let Err(error) = running.waiting().await {
        tracing::debug!(%error, "an MCP connection ended badly");
    }
}
