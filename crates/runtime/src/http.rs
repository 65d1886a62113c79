//! Serves a router on a listener under limits: the number of connections, the time that a client
//! may take, and the size of its requests.
//!
//! A connection may wait for its client (idle between two requests, or in the middle of sending
//! one) for a limited time. When there is no slot for another, the connection that has waited
//! longest closes. A request that may change something is carried out once it has come. Any other
//! request ends when its client goes. This module does not know the routes. `mcp`, `web` and `app`
//! call it.

pub mod body;
mod connection;
mod guard;
mod headers;
mod pool;
pub mod problem;
pub mod unfinished;
mod unread;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use connection::ClientGone;
pub use guard::{guarded, only_header};
pub use headers::with_security_headers;
pub use problem::{FieldProblem, Problem};

use pool::ConnectionPool;

/// The limits of a listener for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// The number of connections at the same time.
    pub connections: usize,
    /// The time from the connection, or the last answer, to the end of the head of the next
    /// request.
    pub head: Duration,
    /// The time from the end of the head to the end of the body.
    pub body: Duration,
    /// The time for which a client may read nothing of an answer.
    pub answer: Duration,
    /// The number of bytes of a head.
    pub head_size: usize,
}

impl HttpLimits {
    /// Returns the usual limits for `connections` connections.
    pub const fn of(connections: usize) -> Self {
        Self {
            connections,
            head: Duration::from_secs(75),
            body: Duration::from_secs(30),
            answer: Duration::from_secs(30),
            head_size: 32 * 1024,
        }
    }
}

/// The number of descriptors that a daemon without agents and clients holds itself, with a margin.
const OWN_DESCRIPTORS: u64 = 32;

/// Returns a part of the descriptors that this process may have beside its own, at most `most` and
/// at least 1. The clients of all listeners together must leave half of the descriptors, because
/// starting agents needs them.
pub fn share_of_descriptors(part: u64, most: usize) -> usize {
    let descriptors = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    // A thousand is the usual limit of a system.
    let (descriptors, _) = descriptors.unwrap_or((1024, 1024));
    usize::try_from(descriptors.saturating_sub(OWN_DESCRIPTORS) / part)
        .unwrap_or(usize::MAX)
        .clamp(1, most)
}

/// Returns the URL by which a process of this machine reaches a listener on `address`, without a
/// path.
pub fn local_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// The source of connections.
pub trait Listener: Send {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Accepts the next connection. Cancel-safe: a connection that is not accepted stays in the
    /// backlog.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = Self::accept(self).await?;
        // An answer is written at once; waiting for more would only delay it.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }
}

/// The pause after a failed accept. Most likely there are no descriptors, and other connections
/// must close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `cancel`. Requests that were received are answered before it
/// returns. Handlers get the result of `describe` for a connection as `ConnectInfo`.
pub async fn serve<L, I>(
    listener: L,
    router: Router,
    limits: HttpLimits,
    describe: impl Fn(&L::Stream) -> I + Send,
    cancel: CancellationToken,
) where
    L: Listener,
    I: Clone + Send + Sync + 'static,
{
    let pool = ConnectionPool::new(limits.connections);
    let connections = TaskTracker::new();
    let mut is_troubled = false;
    while let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok(stream) => stream,
            // The client left before the accept.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::InvalidInput
                ) =>
            {
                continue;
            }
            Err(error) => {
                if !std::mem::replace(&mut is_troubled, true) {
                    tracing::warn!(%error, "could not accept an HTTP connection; will try again");
                }
                pool.make_room();
                cancel.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
                continue;
            }
        };
        is_troubled = false;
        let Some(connection) = cancel.run_until_cancelled(pool.enter()).await else {
            break;
        };
        let info = describe(&stream);
        let router = router.clone();
        let requests = connections.clone();
        connections.spawn(connection::serve(
            stream,
            router,
            info,
            connection,
            limits.clone(),
            cancel.clone(),
            requests,
        ));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

#[cfg(test)]
mod tests;
