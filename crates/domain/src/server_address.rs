//! The address of a server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The MCP endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// A Unix socket of this machine.
    Socket(PathBuf),
    /// The URL of its streamable HTTP endpoint: `http` or `https`.
    Url(String),
}

/// The error for a text that is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the address of a server: expected unix:PATH, http://HOST[:PORT]/mcp or https://HOST[:PORT]/mcp"
)]
pub struct InvalidAddress(String);

impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = || InvalidAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err(invalid())
            } else {
                Ok(Self::Socket(PathBuf::from(path)))
            };
        }
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
            .ok_or_else(invalid)?;
        let host = rest.split('/').next().unwrap_or_default();
        // A password in a URL would end up in logs and argument lists.
        let is_plain = !host.is_empty()
            && !host.contains('@')
            && !rest.contains(|c: char| c.is_whitespace() || c == '#');
        let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
        if !is_plain || port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(invalid());
        }
        // A URL without a path gets the usual path.
        let has_path = rest.split_once('/').is_some_and(|(_, path)| !path.is_empty());
        let text = text.trim_end_matches('/');
        Ok(Self::Url(if has_path { text.to_owned() } else { format!("{text}/mcp") }))
    }
}

impl ServerAddress {
    /// Returns whether traffic to the server can be read on the way, as with plain HTTP to another
    /// machine.
    pub fn is_exposed(&self) -> bool {
        let Self::Url(url) = self else { return false };
        let Some(rest) = url.strip_prefix("http://") else {
            return false;
        };
        let host = rest.split('/').next().unwrap_or_default();
        let host = host.strip_prefix('[').map_or_else(
            || host.rsplit_once(':').map_or(host, |(host, _)| host),
            |v6| v6.split(']').next().unwrap_or_default(),
        );
        let is_loopback =
            host.parse().is_ok_and(|address: core::net::IpAddr| address.is_loopback());
        host != "localhost" && !is_loopback
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Url(url) => f.write_str(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_url() {
        for (text, expected) in [
            ("unix:/run/mcp.sock", Some(ServerAddress::Socket("/run/mcp.sock".into()))),
            ("unix:///run/mcp.sock", Some(ServerAddress::Socket("/run/mcp.sock".into()))),
            ("https://host/mcp", Some(ServerAddress::Url("https://host/mcp".into()))),
            ("http://host:7420", Some(ServerAddress::Url("http://host:7420/mcp".into()))),
            ("http://[::1]/", Some(ServerAddress::Url("http://[::1]/mcp".into()))),
            ("http://host:99999/mcp", None),
            ("host:7420", None),
            ("unix:", None),
            ("http://", None),
            ("http://me:secret@host/mcp", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    #[test]
    fn plain_http_to_another_machine_is_exposed() {
        let is_exposed =
            |text: &str| text.parse::<ServerAddress>().expect("an address").is_exposed();
        assert!(is_exposed("http://build-host:7420/mcp"));
        assert!(is_exposed("http://192.168.0.7/mcp"));
        for safe in [
            "http://localhost:1/mcp",
            "http://127.0.0.2:1/mcp",
            "http://[::1]:1/mcp",
            "https://host/mcp",
            "unix:/a",
        ] {
            assert!(!is_exposed(safe), "{safe}");
        }
    }
}
