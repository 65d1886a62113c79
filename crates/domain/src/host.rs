//! The names by which this server may be addressed. A web page that makes its own name point to
//! this machine (DNS rebinding) is recognized by the `Host` of its request. Any page is recognized
//! by its `Origin`.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

/// A name or an address, perhaps with a port: `coordinator.example`, `10.0.0.7:7420`, `[::1]:7420`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// The name in lower case. An IPv6 address is without its brackets.
    name: String,
    port: Option<u16>,
}

/// The error for a text that is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host name: expected a name or an address, with a port or without")]
pub struct InvalidHostName;

impl HostName {
    fn address(&self) -> Option<IpAddr> {
        self.name.parse().ok()
    }
}

impl FromStr for HostName {
    type Err = InvalidHostName;

    fn from_str(text: &str) -> Result<Self, InvalidHostName> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']').ok_or(InvalidHostName)?;
                address.parse::<core::net::Ipv6Addr>().map_err(|_| InvalidHostName)?;
                (
                    address,
                    if port.is_empty() {
                        None
                    } else {
                        Some(port.strip_prefix(':').ok_or(InvalidHostName)?)
                    },
                )
            }
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || (!text.starts_with('[') && !name.chars().all(is_name)) {
            return Err(InvalidHostName);
        }
        let is_number =
            |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match port {
            Some(port) if is_number(port) => Some(port.parse().map_err(|_| InvalidHostName)?),
            Some(_) => return Err(InvalidHostName),
            None => None,
        };
        Ok(Self { name: name.to_ascii_lowercase(), port })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?;
        } else {
            f.write_str(&self.name)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// A scheme, a host and a port. They distinguish the pages of one server from those of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    is_encrypted: bool,
    host: HostName,
}

impl Origin {
    /// Returns whether the scheme is `https`.
    pub const fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    pub const fn host(&self) -> &HostName {
        &self.host
    }

    fn port(&self) -> u16 {
        self.host.port.unwrap_or(if self.is_encrypted { 443 } else { 80 })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.is_encrypted == other.is_encrypted
            && self.host.name == other.host.name
            && self.port() == other.port()
    }

    /// Returns whether a request with this `Host` was for this origin.
    pub fn is_asked_by(&self, host: &HostName) -> bool {
        let port = self.port();
        host.name == self.host.name
            && host.port.map_or(port == 80 || port == 443, |asked| asked == port)
    }
}

impl FromStr for Origin {
    type Err = InvalidHostName;

    fn from_str(text: &str) -> Result<Self, InvalidHostName> {
        let (scheme, host) = text.split_once("://").ok_or(InvalidHostName)?;
        let is_encrypted = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(InvalidHostName),
        };
        Ok(Self { is_encrypted, host: host.strip_suffix('/').unwrap_or(host).parse()? })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_encrypted { "https" } else { "http" }, self.host)
    }
}

/// The URL at which browsers reach the server: an origin, and a path if the server shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    origin: Origin,
    /// The path without a slash at its end; empty if the server has the origin for itself.
    path: String,
}

/// The error for a text that is not a URL of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a URL: expected a scheme, a name, and a port and a path if there are any")]
pub struct InvalidPublicUrl;

impl PublicUrl {
    /// Returns the URL without its path.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the path before those of the server, such as `/coordinator`; empty if there is none.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for PublicUrl {
    type Err = InvalidPublicUrl;

    fn from_str(text: &str) -> Result<Self, InvalidPublicUrl> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidPublicUrl)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
        let is_segment =
            |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_plain);
        if rest.ends_with("//") || !path.is_empty() && !path.split('/').all(is_segment) {
            return Err(InvalidPublicUrl);
        }
        let origin = format!("{scheme}://{host}").parse().map_err(|_| InvalidPublicUrl)?;
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { origin, path })
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

/// Returns whether a page of this `Origin` belongs to the server that was asked by this `Host`:
/// name and port are the same. If the request is for the `public` origin, only pages of that origin
/// are accepted. Therefore a page that was changed on an unencrypted connection cannot ask in its
/// name.
pub fn is_same_origin(origin: &str, host: &str, public: Option<&Origin>) -> bool {
    let (Ok(origin), Ok(host)) = (origin.parse::<Origin>(), host.parse::<HostName>()) else {
        return false;
    };
    match public {
        Some(public) if public.is_asked_by(&host) => public.is_same(&origin),
        _ => origin.is_asked_by(&host),
    }
}

/// The host names of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHosts {
    listen: IpAddr,
    others: Vec<HostName>,
}

impl AllowedHosts {
    /// Returns the names of a server: `localhost` and all loopback addresses, the listening
    /// address, and `others`. A name of `others` with a port is accepted at that port only.
    pub fn new(listen: SocketAddr, others: Vec<HostName>) -> Self {
        Self { listen: listen.ip(), others }
    }

    /// Returns whether a request for this `Host` (or the authority of its URI) is meant for this
    /// server.
    pub fn allows_host(&self, host: &str) -> bool {
        host.parse().is_ok_and(|host| self.allows(&host, 80))
    }

    /// Returns whether a page of this `Origin` may call. The origin `null` of pages without one is
    /// refused.
    pub fn allows_origin(&self, origin: &str) -> bool {
        let (scheme, host) = origin.split_once("://").unwrap_or_default();
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => 80,
            "https" => 443,
            _ => return false,
        };
        host.parse().is_ok_and(|host| self.allows(&host, default_port))
    }

    fn allows(&self, host: &HostName, default_port: u16) -> bool {
        let address = host.address();
        let is_own = |address: IpAddr| {
            address.is_loopback() || (address == self.listen && !address.is_unspecified())
        };
        // A name without a port stands for the default port. It also stands for 443, because the
        // server may be behind a proxy for HTTPS.
        let is_port = |wanted: u16| match host.port {
            Some(port) => port == wanted,
            None => wanted == default_port || wanted == 443,
        };
        let is_named = |other: &HostName| {
            let is_same =
                other.name == host.name || (address.is_some() && other.address() == address);
            is_same && other.port.is_none_or(is_port)
        };
        host.name == "localhost" || address.is_some_and(is_own) || self.others.iter().any(is_named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> AllowedHosts {
        let others =
            ["coordinator.example", "proxy.example:8443", "secure.example:443", "[2001:db8::7]"];
        let others = others.iter().map(|host| host.parse().unwrap()).collect();
        AllowedHosts::new("192.168.1.5:7420".parse().unwrap(), others)
    }

    #[test]
    fn a_public_url_may_have_a_path() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let url = text.parse::<PublicUrl>().ok();
            let found = url.as_ref().map(|url| (url.to_string(), url.path()));
            let expected = expected.map(|(shown, path)| (shown.to_owned(), path));
            assert_eq!(found, expected, "{text}");
        };
        check("https://c.example", Some(("https://c.example", "")));
        check("https://C.example:8443/", Some(("https://c.example:8443", "")));
        check("https://c.example/at", Some(("https://c.example/at", "/at")));
        check("http://[::1]:7/at/it_2.0/", Some(("http://[::1]:7/at/it_2.0", "/at/it_2.0")));
        for odd in [
            "c.example/at",
            "ftp://c.example",
            "https://c.example//",
            "https://c.example//at",
            "https://c.example/at//it",
            "https://c.example/../at",
            "https://c.example/at?x",
            "https://c.example/a\"b",
            "https://c.example/;Path=",
            "https://u@c.example/at",
        ] {
            check(odd, None);
        }
    }

    #[test]
    fn a_server_is_known_by_its_own_names_only() {
        let check =
            |host: &str, expected: bool| assert_eq!(hosts().allows_host(host), expected, "{host}");
        for ours in [
            "localhost",
            "LocalHost:7420",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7420",
            "[0:0:0:0:0:0:0:1]",
        ] {
            check(ours, true);
        }
        for ours in
            ["192.168.1.5:7420", "192.168.1.5", "Coordinator.Example:99", "[2001:0db8::7]:1"]
        {
            check(ours, true);
        }
        check("proxy.example:8443", true);
        check("proxy.example", false);
        check("secure.example", true);
        check("secure.example:80", false);
        for other in [
            "evil.example",
            "localhost.evil.example",
            "192.168.1.6",
            "0.0.0.0:7420",
            "[::]",
            "10.0.0.1",
        ] {
            check(other, false);
        }
        for none in [
            "",
            ":7420",
            "localhost:",
            "localhost:x",
            "localhost:+1",
            "localhost:99999",
            "a b",
            "[::1",
            "[x]",
        ] {
            check(none, false);
        }
        for none in [
            "localhost@evil.example",
            "evil.example#localhost",
            "localhost/..",
            "[::1]x",
            "[::1]:",
            "::1",
        ] {
            check(none, false);
        }
    }

    #[test]
    fn an_unspecified_address_is_nobodys_name() {
        let hosts = AllowedHosts::new("0.0.0.0:7420".parse().unwrap(), Vec::new());
        assert!(!hosts.allows_host("0.0.0.0:7420") && hosts.allows_host("127.0.0.1:7420"));
    }

    #[test]
    fn a_page_may_call_from_an_allowed_host() {
        let check = |origin: &str, expected: bool| {
            assert_eq!(hosts().allows_origin(origin), expected, "{origin}");
        };
        for ours in [
            "http://localhost",
            "https://127.0.0.1:3000",
            "HTTP://[::1]:80",
            "https://coordinator.example",
        ] {
            check(ours, true);
        }
        for other in [
            "null",
            "",
            "localhost",
            "file://localhost",
            "http://evil.example",
            "http://localhost/x",
            "://x",
        ] {
            check(other, false);
        }
    }

    #[test]
    fn a_page_is_of_the_server_it_asks_when_name_and_port_are_the_same() {
        let public: Origin = "https://c.example".parse().unwrap();
        let check = |origin: &str, host: &str, expected: bool| {
            assert_eq!(
                is_same_origin(origin, host, Some(&public)),
                expected,
                "{origin} asks {host}"
            );
        };
        check("http://localhost:7420", "localhost:7420", true);
        check("http://LOCALHOST:7420", "localhost:7420", true);
        check("http://[::1]:7420", "[::1]:7420", true);
        check("https://other.example", "other.example", true);
        check("http://localhost:3000", "localhost:7420", false);
        check("http://127.0.0.1:7420", "localhost:7420", false);
        check("http://localhost", "localhost:7420", false);
        check("null", "localhost:7420", false);
        check("http://localhost:7420/x", "localhost:7420", false);
        // Behind the proxy by which the server is addressed.
        check("https://c.example", "c.example", true);
        check("https://c.example:443", "c.example", true);
        check("http://c.example", "c.example", false);
        check("https://c.example:8443", "c.example", false);
    }

    #[test]
    fn an_origin_has_no_path() {
        for text in ["https://a.example", "http://[::1]:80"] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), text);
        }
        assert_eq!(
            "https://a.example/".parse::<Origin>().unwrap().to_string(),
            "https://a.example"
        );
        for other in [
            "a.example",
            "ftp://a.example",
            "https://a.example/x",
            "https://a.example//",
            "https://",
            "null",
        ] {
            assert!(other.parse::<Origin>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_name_is_written_as_it_is_read() {
        for text in ["a.example", "a.example:80", "[::1]", "[::1]:7420", "10.0.0.1:1"] {
            assert_eq!(text.parse::<HostName>().unwrap().to_string(), text);
        }
    }
}
