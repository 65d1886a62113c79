//! The door for HTTP: which address it gets, and what is behind it.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context as _;
use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tower_http::catch_panic::CatchPanicLayer;

use crate::config::Http;
use crate::domain::host::{AllowedHosts, HostName};
use crate::http::{self, Limits, problem};
use crate::mcp::{self, McpServer};
use crate::peer::Peer;
use crate::rest::{self, RestState, WebhookDoor};
use crate::sys::regular_file;

/// Most connections at the same time, where descriptors allow it: a thousand agents may wait for messages.
const MAX_CONNECTIONS: usize = 2048;
/// In `state_dir`: the port that was chosen for port 0, so that clients find it again after a restart.
const PORT_FILE: &str = "http_port";

/// An address that is listened on, not served yet.
pub(super) struct Door {
    listener: TcpListener,
    address: SocketAddr,
}

impl Door {
    /// Listens as the settings say; `None` where they say `off`.
    ///
    /// # Errors
    /// When the address is taken, isn't one of this machine, or its port can't be kept.
    pub(super) async fn open(settings: &Http, state_dir: &Path) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = settings.listen else { return Ok(None) };
        let listener = if wanted.port() == 0 {
            listen_on_kept_port(wanted.ip(), &state_dir.join(PORT_FILE)).await?
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

    /// What a service manager listens on already; [`super::Inherited`] has checked that it is where the settings say.
    ///
    /// # Errors
    /// When the kernel doesn't say its address.
    pub(super) fn inherited(listener: std::net::TcpListener) -> anyhow::Result<Self> {
        let listener = TcpListener::from_std(listener).context("could not use the inherited socket `http`")?;
        let address = listener.local_addr().context("could not learn the address of the inherited socket `http`")?;
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves MCP for agents and coordinators, and everything for people who log in, until `rest` closes.
    pub(super) fn serve(
        self,
        mcp: &McpServer,
        rest: &RestState,
        webhooks: WebhookDoor,
        allowed: Vec<HostName>,
    ) -> impl Future<Output = ()> + use<> {
        let cancel = rest.closing.clone();
        let router = Router::new()
            .merge(mcp::http::router(mcp))
            .merge(rest::network_router(rest))
            .fallback(problem::no_such_route)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(CatchPanicLayer::custom(problem::panicked));
        let router = rest::with_webhooks(router, webhooks);
        let router = http::guarded(router, AllowedHosts::new(self.address, allowed));
        let router = http::with_security_headers(router);
        let limits = Limits::of(http::share_of_descriptors(8, MAX_CONNECTIONS));
        http::serve(self.listener, router, limits, peer_of, cancel)
    }
}

fn peer_of(stream: &TcpStream) -> Peer {
    // Where there is none it is gone already, and its request will not be answered.
    Peer::Network(stream.peer_addr().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()))
}

/// Where a process of this machine reaches MCP.
pub(super) fn mcp_url(address: SocketAddr) -> String {
    format!("{}/mcp", http::local_url(address))
}

/// The port of the last time, else another, which is kept for the next.
async fn listen_on_kept_port(ip: IpAddr, file: &Path) -> anyhow::Result<TcpListener> {
    let kept = match regular_file::read_small_text(file) {
        Ok(text) => text.trim().parse().ok().filter(|port| *port != 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("could not read `{}`", file.display())),
    };
    if let Some(port) = kept {
        match TcpListener::bind((ip, port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => tracing::warn!(%error, port, "the port of the last time is taken; choosing another for HTTP"),
        }
    }
    let listener = TcpListener::bind((ip, 0)).await.with_context(|| format!("could not listen on {ip}"))?;
    let port = listener.local_addr().context("could not learn the port for HTTP")?.port();
    regular_file::make_anew(file)
        .and_then(|mut made| writeln!(made, "{port}"))
        .with_context(|| format!("could not keep the port in `{}`", file.display()))?;
    Ok(listener)
}
