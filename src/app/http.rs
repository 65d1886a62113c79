//! The listener for HTTP: its address, and the routes that it serves.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context as _;
use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tower_http::catch_panic::CatchPanicLayer;

use ::mcp::{self, McpServer};
use config::Http;
use domain::host::{AllowedHosts, HostName};
use machine::sys::regular_file;
use runtime::http::{self, HttpLimits, problem};
use runtime::peer::Peer;
use web::{self, RestState, WebhookEndpoint};

/// The most connections at the same time, if descriptors allow it: a thousand agents may wait for
/// messages.
const MAX_CONNECTIONS: usize = 2048;
/// A file in `state_dir` with the port that was chosen instead of port 0, or instead of a default
/// port that was in use. Clients find the same port after a restart.
const PORT_FILE: &str = "http_port";

/// An address where this process listens, but does not serve yet.
pub(super) struct HttpListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpListener {
    /// Listens at the configured address; `None` if it is `off`.
    ///
    /// # Errors
    /// Returns an error if the address is in use, is not one of this machine, or if its port cannot
    /// be saved.
    pub(super) async fn open(settings: &Http, state_dir: &Path) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = settings.listen.address else {
            return Ok(None);
        };
        let listener = if wanted.port() == 0 || settings.listen.is_default {
            listen_on_kept_port(wanted, state_dir).await?
        } else {
            TcpListener::bind(wanted).await.with_context(|| {
                format!(
                    "could not listen on {wanted}; set http.listen to another port, to port 0 (any free one), or to off"
                )
            })?
        };
        let address = listener.local_addr().context("could not learn the address for HTTP")?;
        Ok(Some(Self { listener, address }))
    }

    /// Uses a socket on which a service manager listens already. [`super::Inherited`] has checked
    /// that its address is the configured one.
    ///
    /// # Errors
    /// Returns an error if the kernel does not return its address.
    pub(super) fn inherited(listener: std::net::TcpListener) -> anyhow::Result<Self> {
        let listener =
            TcpListener::from_std(listener).context("could not use the inherited socket `http`")?;
        let address = listener
            .local_addr()
            .context("could not learn the address of the inherited socket `http`")?;
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves MCP for agents and coordinators, and all routes for people who log in, until `rest`
    /// closes.
    pub(super) fn serve(
        self,
        mcp: &McpServer,
        rest: &RestState,
        webhooks: WebhookEndpoint,
        allowed: Vec<HostName>,
    ) -> impl Future<Output = ()> + use<> {
        let cancel = rest.closing.clone();
        let router = Router::new()
            .merge(mcp::http::router(mcp))
            .merge(web::network_router(rest))
            .fallback(problem::no_such_route)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(CatchPanicLayer::custom(problem::panicked));
        let router = web::with_webhooks(router, webhooks);
        let router = http::guarded(router, AllowedHosts::new(self.address, allowed));
        let router = http::with_security_headers(router);
        let limits = HttpLimits::of(http::share_of_descriptors(8, MAX_CONNECTIONS));
        http::serve(self.listener, router, limits, peer_of, cancel)
    }
}

fn peer_of(stream: &TcpStream) -> Peer {
    // A stream without a peer address is gone already, and its request will not be answered.
    Peer::Network(stream.peer_addr().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()))
}

/// Returns the URL where a process of this machine reaches MCP.
pub(super) fn mcp_url(address: SocketAddr) -> String {
    format!("{}/mcp", http::local_url(address))
}

/// Reads the port that the server keeps, if there is one.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn kept_port(state_dir: &Path) -> io::Result<Option<u16>> {
    match regular_file::read_small_text(&state_dir.join(PORT_FILE)) {
        Ok(text) => Ok(text.trim().parse().ok().filter(|port| *port != 0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Listens on the kept port. If that fails, listens on the port of `wanted`, unless it is 0.
/// Otherwise listens on any free port, which is kept from then on.
async fn listen_on_kept_port(wanted: SocketAddr, state_dir: &Path) -> anyhow::Result<TcpListener> {
    let ip = wanted.ip();
    let file = state_dir.join(PORT_FILE);
    if let Some(port) =
        kept_port(state_dir).with_context(|| format!("could not read `{}`", file.display()))?
    {
        match TcpListener::bind((ip, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                tracing::warn!(%error, port, "the port of the last time is taken; choosing another for HTTP");
            }
        }
    }
    if wanted.port() != 0 {
        match TcpListener::bind(wanted).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let port = wanted.port();
                tracing::warn!(
                    port,
                    "the default port for HTTP is in use; choosing another, which is kept (http.listen)"
                );
            }
            Err(error) => {
                return Err(error).with_context(|| format!("could not listen on {wanted}"));
            }
        }
    }
    let listener =
        TcpListener::bind((ip, 0)).await.with_context(|| format!("could not listen on {ip}"))?;
    let port = listener.local_addr().context("could not learn the port for HTTP")?.port();
    regular_file::make_anew(&file)
        .and_then(|mut made| writeln!(made, "{port}"))
        .with_context(|| format!("could not keep the port in `{}`", file.display()))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Listen;

    #[tokio::test]
    async fn another_port_is_chosen_for_a_default_one_in_use_and_kept() {
        let in_the_way = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let taken = in_the_way.local_addr().unwrap();
        let state = tempfile::tempdir().unwrap();
        let open = async |settings: &Http| {
            HttpListener::open(settings, state.path())
                .await
                .map(|listener| listener.map(|listener| listener.address()))
        };
        let http = |is_default| {
            let listen = Listen { address: Some(taken), is_default };
            Http { listen, ..Http::default() }
        };
        let (default, configured) = (http(true), http(false));
        assert!(open(&configured).await.is_err(), "a configured port is the only one");
        let chosen = open(&default).await.unwrap().unwrap();
        assert_ne!(chosen.port(), taken.port());
        drop(in_the_way);
        assert_eq!(
            open(&default).await.unwrap(),
            Some(chosen),
            "it is kept although the default is free"
        );
        assert_eq!(default.expected_address(kept_port(state.path()).unwrap()), Some(chosen));
        assert_eq!(open(&configured).await.unwrap(), Some(taken));
        assert_eq!(configured.expected_address(Some(chosen.port())), Some(taken));
    }

    #[tokio::test]
    async fn a_default_port_that_is_free_is_used_and_not_kept() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let state = tempfile::tempdir().unwrap();
        let listen = Listen { address: Some(free), is_default: true };
        let settings = Http { listen, ..Http::default() };
        assert_eq!(
            HttpListener::open(&settings, state.path()).await.unwrap().unwrap().address(),
            free
        );
        assert_eq!(kept_port(state.path()).unwrap(), None);
    }
}
