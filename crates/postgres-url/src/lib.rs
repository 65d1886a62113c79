//! The URL of a PostgreSQL database, as libpq knows it and without a password.
//!
//! It is below the configuration, which reads it, and below the store, which connects with it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use domain::Secret;

/// The time after which one attempt to reach one address has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time after which a connection ends whose packets are not acknowledged.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// The text in place of a value that may contain a secret.
pub const HIDDEN: &str = "***";
/// The parameters whose values are shown. `options` is not among them, because it can set anything.
const SHOWN: [&str; 17] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "port",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// A database and how to log in.
#[derive(Clone)]
pub struct PostgresUrl {
    /// The settings of a connection to each host. There is at least one.
    hosts: Vec<Config>,
    tls: Tls,
    /// The URL. It has no password, but `options` may contain a secret.
    url: String,
}

/// The use of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    Off,
    /// The server shows a certificate for its name. `None` trusts the authorities of the system.
    Verified {
        root_certificate: Option<PathBuf>,
    },
}

/// The reason why a text is not the URL of a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("expected a URL such as `postgres://user@host/database`")]
    NotAUrl,
    #[error("the URL has a password, which logs could show: set `store.password` instead")]
    HasPassword,
    #[error("the URL names no {0}")]
    Missing(&'static str),
    #[error(
        "`sslmode={0}` is not supported: `verify-full` checks the server's certificate, \
         and `disable` sends everything in clear text"
    )]
    SslMode(&'static str),
    #[error("the URL is not valid: {0}")]
    Invalid(String),
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresUrl").field(&masked(&self.url)).finish()
    }
}

/// Shows the URL without values that may contain a secret.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.url))
    }
}

impl PartialEq for PostgresUrl {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url && self.hosts[0].get_password() == other.hosts[0].get_password()
    }
}

impl Eq for PostgresUrl {}

impl FromStr for PostgresUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(UrlError::NotAUrl);
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut ssl_mode = None;
        let mut root_certificate = None;
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => ssl_mode = Some(mode),
                Some(("sslrootcert", "system")) => root_certificate = None,
                Some(("sslrootcert", path)) => root_certificate = Some(PathBuf::from(path)),
                Some(("password" | "passfile", _)) => return Err(UrlError::HasPassword),
                _ => rest.push(pair),
            }
        }
        let parsed = |base: &str, rest: &[&str]| -> Result<Config, UrlError> {
            let plain = format!("{base}?{}", rest.join("&"));
            plain.parse().map_err(|error| {
                // A `&` or `?` in a secret makes the driver name a part of it as a parameter.
                let may_name_secret = query.contains('@') || query.contains("options");
                UrlError::Invalid(if may_name_secret {
                    "a parameter is not known, or its value is not valid".to_owned()
                } else {
                    error_text(&error)
                })
            })
        };
        let config = parsed(base, &rest)?;
        if config.get_password().is_some() {
            return Err(UrlError::HasPassword);
        }
        for (is_missing, what) in [
            (config.get_hosts().is_empty() && config.get_hostaddrs().is_empty(), "host"),
            (config.get_dbname().is_none(), "database"),
            (config.get_user().is_none(), "user"),
        ] {
            if is_missing {
                return Err(UrlError::Missing(what));
            }
        }
        let tls = match ssl_mode {
            Some("verify-full" | "require") => Tls::Verified { root_certificate },
            Some("disable") => Tls::Off,
            Some(other) => {
                let known = ["allow", "prefer", "verify-ca"].into_iter().find(|one| *one == other);
                return Err(UrlError::SslMode(known.unwrap_or(HIDDEN)));
            }
            None if is_on_this_machine(&config) => Tls::Off,
            None => Tls::Verified { root_certificate },
        };
        rest.retain(|pair| {
            !["host=", "hostaddr=", "port="].iter().any(|key| pair.starts_with(key))
        });
        let mut one = parsed(&without_hosts(base), &rest)?;
        one.ssl_mode(if tls == Tls::Off { SslMode::Disable } else { SslMode::Require });
        if config.get_hosts().len() > 1 {
            one.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        one.connect_timeout(CONNECT_TIMEOUT);
        one.tcp_user_timeout(LONGEST_SILENCE);
        one.keepalives_idle(Duration::from_secs(10));
        one.keepalives_interval(Duration::from_secs(5));
        one.keepalives_retries(3);
        let hosts = each_host(&config, &one)?;
        Ok(Self { hosts, tls, url: url.to_owned() })
    }
}

/// Returns a URL without the values of parameters that may contain a secret.
fn masked(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else { return url.to_owned() };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((key, _)) if !SHOWN.contains(&key) => format!("{key}={HIDDEN}"),
        _ => parameter.to_owned(),
    });
    format!("{base}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// Returns the part of a URL before `?` without its hosts and ports.
fn without_hosts(base: &str) -> String {
    let (scheme, rest) = base.split_once("://").unwrap_or_default();
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    format!("{scheme}://{user}@/{database}")
}

/// Returns a copy of `one`, which names no host, for each host of `all`. The driver would wait for
/// one host without an end before it tries the next.
fn each_host(all: &Config, one: &Config) -> Result<Vec<Config>, UrlError> {
    let hosts = all.get_hosts();
    let addresses = all.get_hostaddrs();
    let ports = all.get_ports();
    let n_hosts = hosts.len().max(addresses.len());
    let counts = [(hosts.len(), "names"), (addresses.len(), "addresses"), (ports.len(), "ports")];
    for (n_given, what) in counts {
        // One port may be that of all hosts.
        let is_enough = n_given == n_hosts || n_given == 0 || (what == "ports" && n_given == 1);
        if !is_enough {
            return Err(UrlError::Invalid(format!("it has {n_given} {what} for {n_hosts} hosts")));
        }
    }
    let host = |n: usize| {
        let mut config = one.clone();
        match hosts.get(n) {
            Some(Host::Tcp(name)) => drop(config.host(name)),
            Some(Host::Unix(folder)) => drop(config.host_path(folder)),
            None => {}
        }
        addresses.get(n).map(|address| config.hostaddr(*address));
        ports.get(n).or(ports.first()).map(|port| config.port(*port));
        config
    };
    Ok((0..n_hosts).map(host).collect())
}

/// Returns the causes of an error of the driver, whose own text is only its kind.
fn error_text(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns whether no packet to these hosts leaves the machine.
fn is_on_this_machine(config: &Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    };
    config.get_hosts().iter().all(is_here)
        && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

impl PostgresUrl {
    /// Returns the URL with the password of its user.
    #[must_use]
    pub fn with_password(mut self, password: &Secret) -> Self {
        for host in &mut self.hosts {
            host.password(password.reveal());
        }
        self
    }

    /// Returns the URL with the root certificate's path below `folder`, if it is a relative one.
    #[must_use]
    pub fn below(mut self, folder: &Path) -> Self {
        if let Tls::Verified { root_certificate: Some(path) } = &mut self.tls {
            *path = folder.join(&*path);
        }
        self
    }

    /// Returns how the connection is protected.
    pub const fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Returns whether the connection crosses a network in clear text.
    pub fn is_exposed(&self) -> bool {
        self.tls == Tls::Off && !self.hosts.iter().all(is_on_this_machine)
    }

    /// Returns the name of the user who logs in.
    pub fn user(&self) -> &str {
        self.hosts[0].get_user().unwrap_or_default()
    }

    /// Returns the name of the database.
    pub fn database(&self) -> &str {
        self.hosts[0].get_dbname().unwrap_or_default()
    }

    /// Returns the settings of a connection to each host. They include the password.
    pub fn hosts(&self) -> &[Config] {
        &self.hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<PostgresUrl, UrlError> {
        url.parse()
    }

    #[test]
    fn tls_is_checked_unless_the_server_is_on_this_machine() {
        let system = Tls::Verified { root_certificate: None };
        let root = Tls::Verified { root_certificate: Some("/etc/ca.pem".into()) };
        for (url, expected) in [
            ("postgres://u@localhost/d", Tls::Off),
            ("postgres://u@%2Frun%2Fpostgresql/d", Tls::Off),
            ("postgres://u@[::1]/d", Tls::Off),
            ("postgres://u@db.example/d", system.clone()),
            ("postgresql://u@db.example/d?sslmode=verify-full", system.clone()),
            ("postgres://u@localhost,db.example/d", system),
            ("postgres://u@db.example/d?sslrootcert=/etc/ca.pem&sslmode=verify-full", root),
            ("postgres://u@db.example/d?sslmode=disable", Tls::Off),
            ("postgres://u@/d?hostaddr=127.0.0.1", Tls::Off),
            (
                "postgres://u@localhost/d?hostaddr=192.0.2.1",
                Tls::Verified { root_certificate: None },
            ),
        ] {
            assert_eq!(*parsed(url).unwrap().tls(), expected, "{url}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_named_without_its_password() {
        for (url, expected) in [
            ("mysql://u@h/d", "expected a URL such as"),
            ("postgres://u:hunter2@h/d", "set `store.password` instead"),
            ("postgres://u@h/d?password=hunter2", "set `store.password` instead"),
            ("postgres://u@h", "names no database"),
            ("postgres://h/d", "names no user"),
            ("postgres://u@/d", "names no host"),
            ("postgres://u@h/d?sslmode=prefer", "`sslmode=prefer` is not supported"),
            ("postgres://u@h/d?sslmode=require;password=hunter2", "`sslmode=***` is not supported"),
            ("postgres://u@h/d?sslpassword=hunter2", "`sslpassword`"),
            ("postgres://u@h/d?options=-c%20x.y%3Da&hunter2=b", "a parameter is not known"),
            ("postgres://u@a?hunter2=b@h/d", "a parameter is not known"),
            ("postgres://u@h:port/d", "is not valid"),
            ("postgres://u@h/d?colour=red", "is not valid"),
        ] {
            let error = parsed(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn each_host_has_settings_of_its_own() {
        let hosts = |url: &str| -> Vec<(Vec<Host>, Vec<u16>)> {
            let url = parsed(url).unwrap().with_password(&Secret::new("hunter2"));
            let hosts = url.hosts().iter().inspect(|host| {
                assert_eq!((host.get_user(), host.get_dbname()), (Some("u@v"), Some("d")), "{url}");
                assert_eq!(host.get_password(), Some("hunter2".as_bytes()), "{url}");
                assert_eq!(host.get_options(), Some("-c a=b"), "{url}");
            });
            hosts.map(|host| (host.get_hosts().to_vec(), host.get_ports().to_vec())).collect()
        };
        let tcp = |name: &str| vec![Host::Tcp(name.to_owned())];
        assert_eq!(
            hosts("postgres://u%40v@one:1,[::1]:2/d?options=-c%20a%3Db"),
            [(tcp("one"), vec![1]), (tcp("::1"), vec![2])]
        );
        assert_eq!(
            hosts("postgres://u%40v@/d?host=one&port=7&options=-c%20a%3Db"),
            [(tcp("one"), vec![7])]
        );
        assert_eq!(
            hosts("postgres://u%40v@/d?host=%2Frun&options=-c%20a%3Db"),
            [(vec![Host::Unix("/run".into())], Vec::new())]
        );
        let error = parsed("postgres://u@one,two/d?port=7").unwrap_err().to_string();
        assert!(error.contains("3 ports for 2 hosts"), "{error}");
    }

    #[test]
    fn a_url_does_not_show_its_password() {
        let url = parsed("postgres://u@h/d").unwrap().with_password(&Secret::new("hunter2"));
        assert!(!format!("{url} {url:?}").contains("hunter2"));
    }

    #[test]
    fn a_url_does_not_show_its_options() {
        for url in [
            "postgres://u@h/d?connect_timeout=5&options=-c%20x.secret%3Dhunter2&keepalives=1",
            "postgres://u@h/d?connect_timeout=5&%6fptions=hunter2&keepalives=1",
        ] {
            let url = parsed(url).unwrap();
            let shown = url.to_string();
            assert!(!format!("{url} {url:?}").contains("hunter2"), "{shown}");
            assert!(shown.contains("?connect_timeout=5&"), "{shown}");
            assert!(shown.contains("ptions=***&keepalives=1"), "{shown}");
        }
        let one = parsed("postgres://u@h/d?options=-c%20search_path%3Done").unwrap();
        let other = parsed("postgres://u@h/d?options=-c%20search_path%3Dother").unwrap();
        assert_ne!(one, other);
    }
}
