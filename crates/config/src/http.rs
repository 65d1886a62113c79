//! `http`: the address at which the server listens for HTTP, and the names by which it is reached
//! there.

use std::net::SocketAddr;

use domain::host::{HostName, PublicUrl};

use super::declaration::keys;
use super::kinds::{Kind, list, switch};
use super::reader::Section;

keys! {
    /// The HTTP listener of the server: MCP at `/mcp`, pages and `/api` for people who log in
    /// (`login`, `token`), `/health/live` and `/health/ready`.
    pub struct Http in "http" {
        /// The address and the port to listen on, or `off`. Port 0 takes a free port at the first
        /// start and keeps it. If the key is not set and port 7420 is in use, another port is
        /// chosen and kept; the log, `status` and `check` show it. An address of other machines
        /// (any but a loopback one) needs `coordinator_token`, and `0.0.0.0` and `[::]` also need
        /// `allowed_hosts` or `public_url`. Others on the way can read what is sent, so put a proxy
        /// with HTTPS before it.
        pub listen: Listen = Listen::default(), listen(), AfterRestart;

        /// The names and addresses by which clients may ask for this server, with a port or
        /// without: what browsers and clients write into `Host` and `Origin`. localhost, loopback
        /// addresses and the address of `listen` are always allowed. An example:
        /// `[coordinator.example, "10.0.0.7:7420"]`.
        pub allowed_hosts: Vec<HostName> = Vec::new(), list(host()), AfterRestart;

        /// The URL at which browsers reach the server through a proxy with HTTPS:
        /// `https://coordinator.example`. Login links contain it, and its name is allowed as a
        /// host. With `https`, browsers send the login cookies only over HTTPS. With a path such as
        /// `https://example.org/coordinator`, the proxy removes the path from each request, and the
        /// addresses in the pages begin with it.
        pub public_url: Option<PublicUrl> = None, public_url().or_none(), AfterRestart;

        /// Whether agents may use the listener. `off` gives agents no `COORDINATOR_MCP_URL` and
        /// refuses their tools over HTTP; coordinators and people go on using it. Over HTTP the
        /// server can't see which process calls (docs/agents.md, "Over HTTP").
        pub agents: bool = true, switch(), Now;
    }
}

/// The address of the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address; `None` is off. A port 0 is chosen once and kept in `state_dir`.
    pub address: Option<SocketAddr>,
    /// True if the file has no address. If the port of the default is in use, another one is chosen
    /// and kept.
    pub is_default: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self { address: Some(SocketAddr::from(([127, 0, 0, 1], 7420))), is_default: true }
    }
}

/// The presence of a token that coordinators must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Given,
    Missing,
}

impl Http {
    /// Returns the address that the server will listen on if the port `kept` from the last run is
    /// free. `None` means that HTTP is off.
    pub fn expected_address(&self, kept: Option<u16>) -> Option<SocketAddr> {
        let mut address = self.listen.address?;
        if let Some(port) = kept.filter(|_| self.listen.is_default || address.port() == 0) {
            address.set_port(port);
        }
        Some(address)
    }

    /// Notes an address that other machines reach although the other settings are not made for
    /// that.
    pub(super) fn check(&self, section: &Section<'_, '_>, token: Token) {
        let Some(address) = self.listen.address.filter(|address| !address.ip().is_loopback())
        else {
            return;
        };
        let note = |fault: &str, help: &str| {
            let message =
                format!("`http.listen` lets other machines reach this one at `{address}`, {fault}");
            section.refuse("listen", message, help);
        };
        if token == Token::Missing {
            note(
                "and `coordinator_token` is not set",
                "set `coordinator_token` (better from a variable: `${COORDINATOR_TOKEN}`), or listen on `127.0.0.1`",
            );
        }
        let is_restricted = !self.allowed_hosts.is_empty() || self.public_url.is_some();
        if address.ip().is_unspecified() && !is_restricted {
            note(
                "and the names of this server are not listed",
                "list the names that clients use in `http.allowed_hosts`",
            );
        }
    }
}

fn listen() -> Kind<Listen> {
    let parse = |text: &str| {
        let address = if text == "off" { None } else { Some(parse_address(text)?) };
        Some(Listen { address, is_default: false })
    };
    Kind::parsed(
        "an address and a port such as `127.0.0.1:7420` or `[::1]:0`, or `off`",
        parse,
        |listen| listen.address.map_or_else(|| "off".to_owned(), |address| address.to_string()),
    )
}

fn host() -> Kind<HostName> {
    Kind::parsed(
        "a name or an address, with a port or without, such as `coordinator.example` or `10.0.0.7:7420`",
        |text| text.parse().ok(),
        HostName::to_string,
    )
}

fn public_url() -> Kind<PublicUrl> {
    Kind::parsed(
        "a URL such as `https://coordinator.example` or `https://example.org/coordinator`",
        |text| text.parse().ok(),
        PublicUrl::to_string,
    )
}

/// Parses an address with its port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse().ok(),
        None => text.parse().ok(),
    }
}
