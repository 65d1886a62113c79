//! Sockets that a service manager made for the daemon and passed on (`LISTEN_FDS`). They stay open
//! while the daemon restarts, so that clients that connect meanwhile wait instead of being refused.
//!
//! It knows the listeners of the daemon by name, but not the protocols on them. `cli` takes the
//! sockets before there are threads; `server` serves on them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};

use super::Role;
use config::Config;

/// The names of the passed sockets, in their order, separated by colons.
const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

/// The sockets that were passed. They listen and do not block.
#[derive(Debug, Default)]
pub struct Inherited {
    /// `mcp`, a Unix socket: agents reach the server here.
    pub mcp: Option<UnixListener>,
    /// `http`, a TCP socket: HTTP clients reach the server here.
    pub http: Option<TcpListener>,
}

/// The reason why the passed sockets cannot be used. The service manager is configured wrongly, so
/// a restart changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    #[error("{NAMES_VARIABLE} has {n_names} names for {n_sockets} sockets")]
    Names { n_names: usize, n_sockets: usize },
    #[error(
        "an inherited socket has the unknown name `{name}`: expected `mcp` or `http` (`FileDescriptorName=` of the socket unit)"
    )]
    UnknownName { name: String },
    #[error("the inherited socket {which} is not a {expected}")]
    Kind { which: String, expected: &'static str, source: io::Error },
    #[error("two sockets were inherited for `{listener}`, which is one listener")]
    Twice { listener: &'static str },
    #[error(
        "the inherited socket `{listener}` doesn't listen (`Accept=no` of the socket unit passes one that does)"
    )]
    NotListening { listener: &'static str },
    #[error("the inherited socket `{listener}` can't be used")]
    Unusable { listener: &'static str, source: io::Error },
    #[error(
        "the inherited socket `mcp` has no path, and agents are told `{}` (`mcp_socket_path`)",
        .expected.display()
    )]
    Unnamed { expected: PathBuf },
    #[error(
        "the inherited socket `mcp` is not the one agents are told: it was bound to `{}`, and they are told `{}`; \
         make `ListenStream=` of the socket unit and `mcp_socket_path` the same, and restart the socket unit if its file is gone",
        .bound.display(), .expected.display()
    )]
    Elsewhere { bound: PathBuf, expected: PathBuf },
    #[error(
        "the inherited socket `http` is bound to {bound}, and `http.listen` is {}; make `ListenStream=` of the socket unit the same",
        .expected.map_or_else(|| "off".to_owned(), |address| address.to_string())
    )]
    HttpElsewhere { bound: SocketAddr, expected: Option<SocketAddr> },
    #[error(
        "`{}` does not listen, but the service manager passed it a socket; remove the socket unit",
        .role.as_str()
    )]
    NoListener { role: Role },
}

impl Inherited {
    /// Takes the sockets that were passed to this process; a second call returns none. Must run
    /// before the first thread, because it changes the environment.
    ///
    /// # Errors
    /// Returns an error if a passed socket fits no listener.
    pub fn take() -> Result<Self, InheritedError> {
        let passed = ListenFd::from_env();
        // Names without sockets are meant for another process, because they are never removed from
        // the environment.
        if passed.len() == 0 {
            return Ok(Self::default());
        }
        Self::sort(passed, std::env::var(NAMES_VARIABLE).ok().as_deref())
    }

    fn sort(mut passed: ListenFd, names: Option<&str>) -> Result<Self, InheritedError> {
        let n_sockets = passed.len();
        let names = names.map_or_else(|| vec![""; n_sockets], |names| names.split(':').collect());
        if names.len() != n_sockets {
            return Err(InheritedError::Names { n_names: names.len(), n_sockets });
        }
        let mut inherited = Self::default();
        for (index, name) in names.into_iter().enumerate() {
            let which = if is_name(name) {
                format!("`{name}`")
            } else {
                format!("number {} (without a name)", index + 1)
            };
            let wrong = |expected| move |source| InheritedError::Kind { which, expected, source };
            match name {
                "mcp" => {
                    let socket = passed
                        .take_unix_listener(index)
                        .map_err(wrong("Unix socket for a stream"))?;
                    fill("mcp", &mut inherited.mcp, socket)?;
                }
                "http" => {
                    let socket = passed.take_tcp_listener(index).map_err(wrong("TCP socket"))?;
                    fill("http", &mut inherited.http, socket)?;
                }
                // A socket that is not taken stays for the next guess.
                _ if !is_name(name) => {
                    if let Ok(socket) = passed.take_unix_listener(index) {
                        fill("mcp", &mut inherited.mcp, socket)?;
                    } else {
                        let socket =
                            passed.take_tcp_listener(index).map_err(wrong("Unix or TCP socket"))?;
                        fill("http", &mut inherited.http, socket)?;
                    }
                }
                _ => {
                    return Err(InheritedError::UnknownName { name: name.to_owned() });
                }
            }
        }
        Ok(inherited)
    }

    /// Checks that a daemon of this role and configuration can use the sockets.
    ///
    /// # Errors
    /// Returns an error if the daemon has no listeners, or if a socket has another address than the
    /// configuration.
    pub(super) fn check(&self, role: Role, config: &Config) -> Result<(), InheritedError> {
        if role == Role::Supervise && (self.mcp.is_some() || self.http.is_some()) {
            return Err(InheritedError::NoListener { role });
        }
        if let Some(http) = &self.http {
            let bound = http
                .local_addr()
                .map_err(|source| InheritedError::Unusable { listener: "http", source })?;
            let expected = config.http.listen.address;
            // Another address is never accepted: the settings were checked for addresses that are
            // reachable from elsewhere.
            let is_expected = |address: SocketAddr| {
                address == bound || (address.port() == 0 && address.ip() == bound.ip())
            };
            if !expected.is_some_and(is_expected) {
                return Err(InheritedError::HttpElsewhere { bound, expected });
            }
        }
        let Some(mcp) = &self.mcp else { return Ok(()) };
        let expected = &config.paths.mcp_socket_path;
        let address = mcp
            .local_addr()
            .map_err(|source| InheritedError::Unusable { listener: "mcp", source })?;
        let Some(bound) = address.as_pathname() else {
            return Err(InheritedError::Unnamed { expected: expected.clone() });
        };
        if is_same_file(bound, expected) {
            return Ok(());
        }
        Err(InheritedError::Elsewhere { bound: bound.to_owned(), expected: expected.clone() })
    }
}

/// Returns whether a name is a real one. sd_listen_fds_with_names(3) calls a socket without a name
/// `unknown`.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "unknown")
}

fn fill<S: AsFd>(
    listener: &'static str,
    place: &mut Option<S>,
    socket: Option<S>,
) -> Result<(), InheritedError> {
    if place.is_some() {
        return Err(InheritedError::Twice { listener });
    }
    let unusable = |errno: Errno| InheritedError::Unusable { listener, source: errno.into() };
    if let Some(socket) = &socket {
        if !getsockopt(socket, sockopt::AcceptConn).map_err(unusable)? {
            return Err(InheritedError::NotListening { listener });
        }
        rustix::io::ioctl_fionbio(socket, true)
            .map_err(|errno| InheritedError::Unusable { listener, source: errno.into() })?;
    }
    *place = socket;
    Ok(())
}

/// Returns whether two paths lead to one socket. They may differ by a link or a `..`.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_alone_refuses_sockets_and_a_server_takes_its_own_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("mcp.sock")).unwrap();
        let inherited = Inherited { mcp: Some(listener), http: None };
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let config = Config::with_state_dir(folder.path().join("link"));
        assert!(
            inherited.check(Role::Run, &config).is_ok()
                && inherited.check(Role::Serve, &config).is_ok()
        );
        let refused = inherited.check(Role::Supervise, &config).unwrap_err().to_string();
        assert_eq!(
            refused,
            "`supervise` does not listen, but the service manager passed it a socket; remove the socket unit"
        );
        std::fs::remove_file(folder.path().join("mcp.sock")).unwrap();
        let refused = inherited.check(Role::Run, &config).unwrap_err().to_string();
        assert!(refused.contains("restart the socket unit if its file is gone"), "{refused}");
        assert!(Inherited::default().check(Role::Supervise, &config).is_ok());
    }
}
