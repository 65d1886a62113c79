//! `http`: the address at which the server listens for HTTP, and the names by which it is reached
//! there.

use std::net::SocketAddr;

use crate::domain::host::{HostName, Origin};

use super::reader::{Field, Section};
use super::report::Problem;

/// The HTTP listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// The address to listen on; `None` is off. A port 0 is chosen once and kept in `state_dir`.
    pub listen: Option<SocketAddr>,
    /// True if `listen` is the default. If its port is in use, another one is chosen and kept.
    pub is_listen_default: bool,
    /// The names and addresses that requests may be for, beside loopback and the address of
    /// `listen`.
    pub allowed_hosts: Vec<HostName>,
    /// The URL at which browsers reach the server through a proxy. With `https`, browsers send the
    /// cookies only over `https`.
    pub public_url: Option<Origin>,
    /// True if agents may use the listener and get its address.
    pub agents: bool,
}

/// The presence of a token that coordinators must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Given,
    Missing,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 7420))),
            is_listen_default: true,
            allowed_hosts: Vec::new(),
            public_url: None,
            agents: true,
        }
    }
}

impl Http {
    /// Returns the address that the server will listen on if the port `kept` from the last run is
    /// free. `None` means that HTTP is off.
    pub fn expected_address(&self, kept: Option<u16>) -> Option<SocketAddr> {
        let mut address = self.listen?;
        if let Some(port) = kept.filter(|_| self.is_listen_default || address.port() == 0) {
            address.set_port(port);
        }
        Some(address)
    }

    pub(super) fn read(mut section: Section<'_, '_>, token: Token) -> Self {
        let listen = section.field("listen");
        let allowed_hosts = section.field("allowed_hosts").map_or_else(Vec::new, Field::list);
        let what = "a name or an address, with a port or without, such as `coordinator.example` or `10.0.0.7:7420`";
        let has_names = !allowed_hosts.is_empty();
        let allowed_hosts = allowed_hosts
            .iter()
            .filter_map(|host| host.parsed(what, |text| text.parse().ok()))
            .collect();
        let what = "the scheme, the name and the port of a URL, such as `https://coordinator.example`, without a path";
        let public_url = section
            .optional("public_url")
            .and_then(|url| url.parsed(what, |text| text.parse().ok()));
        let is_restricted = has_names || public_url.is_some();
        let what = "an address and a port such as `127.0.0.1:7420` or `[::1]:0`, or `off`";
        let parsed = listen.as_ref().and_then(|field| {
            field.parsed(
                what,
                |text| {
                    if text == "off" { Some(None) } else { parse(text).map(Some) }
                },
            )
        });
        if let (Some(field), Some(Some(address))) = (&listen, parsed)
            && !address.ip().is_loopback()
        {
            let reached =
                format!("`http.listen` lets other machines reach this one at `{address}`");
            if token == Token::Missing {
                let problem = Problem::new(
                    format!("{reached}, and `coordinator_token` is not set"),
                    field.span(),
                );
                field.note(problem.help(
                    "set `coordinator_token` (better from a variable: `${COORDINATOR_TOKEN}`), or listen on `127.0.0.1`",
                ));
            }
            if address.ip().is_unspecified() && !is_restricted {
                let problem =
                    Problem::new(format!("{reached}, by names that nobody listed"), field.span());
                field.note(problem.help("list the names that clients use in `http.allowed_hosts`"));
            }
        }
        let agents = section.one_of("agents", true, &[("on", true), ("off", false)]);
        let (listen, is_listen_default) =
            (parsed.unwrap_or(Self::default().listen), parsed.is_none());
        Self { listen, is_listen_default, allowed_hosts, public_url, agents }
    }
}

/// Parses an address with its port.
fn parse(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse().ok(),
        None => text.parse().ok(),
    }
}
