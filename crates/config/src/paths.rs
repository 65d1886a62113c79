//! `state_dir`, `mcp_socket_path`, `server`: the places of files and sockets.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use domain::ServerAddress;

use super::declaration::{Keys, keys};
use super::environment::Environment;
use super::kinds::{Kind, path};
use super::reader::{Field, Reader, Section};
use super::report::Problem;
use super::tree::Span;

use machine::sys::sockets::MAX_PATH as MAX_SOCKET_PATH;

/// The state folder if there is neither a setting nor an environment variable for it.
const SYSTEM_STATE_DIR: &str = "/var/lib/agent-coordinator";
/// The name of the server's socket in the state folder.
const MCP_SOCKET: &str = "mcp.sock";

keys! {
    /// The places of files and sockets. In a loaded configuration all of them are absolute.
    pub struct Paths in "" {
        /// The folder of all files that the daemon keeps between two runs. Default:
        /// `$STATE_DIRECTORY` (systemd sets it), else `agent-coordinator` in `$XDG_STATE_HOME` or
        /// `~/.local/state`, else `/var/lib/agent-coordinator`. Each daemon needs its own. A folder
        /// that every user may write to is refused.
        pub state_dir: PathBuf = PathBuf::new(), state_dir(), AfterRestart;

        /// The Unix socket at which agents reach the server. Its path has at most 107 bytes.
        /// Default: `mcp.sock` in `state_dir`.
        pub mcp_socket_path: PathBuf = MCP_SOCKET.into(), mcp_socket_path(), AfterRestart;

        /// The server of `supervise`, `call` and `mcp`: `unix:` and a path, or the URL of its MCP
        /// endpoint, such as `https://coordinator.example/mcp`. Others on the way can read what
        /// `http://` sends, so use it only on this machine. Default: the socket of
        /// `mcp_socket_path`.
        pub server: ServerAddress = ServerAddress::Socket(PathBuf::new()), server(), AfterRestart;
    }
}

/// The keys of the addresses of a daemon.
pub(super) const KEYS: [&str; 3] = ["state_dir", "mcp_socket_path", "server"];

fn state_dir() -> Kind<PathBuf> {
    path().written_as("~/.local/state/agent-coordinator")
}

fn mcp_socket_path() -> Kind<PathBuf> {
    path().written_as("~/.local/state/agent-coordinator/mcp.sock")
}

fn server() -> Kind<ServerAddress> {
    let expected = "`unix:` and the path of its socket, or the URL of its MCP endpoint, such as `https://host/mcp`";
    Kind::new(expected, |field, what| read_server(&field, what), ServerAddress::to_string)
        .written_as("unix:~/.local/state/agent-coordinator/mcp.sock")
}

impl Paths {
    /// Returns the defaults, which are all in the state folder.
    pub(super) fn below(state_dir: PathBuf) -> Self {
        Self { state_dir, ..Self::default() }.completed()
    }

    /// Returns the paths with the defaults that depend on other paths.
    fn completed(self) -> Self {
        let mcp_socket_path = self.state_dir.join(self.mcp_socket_path);
        let server = match self.server {
            ServerAddress::Socket(path) if path.as_os_str().is_empty() => {
                ServerAddress::Socket(mcp_socket_path.clone())
            }
            server => server,
        };
        Self { mcp_socket_path, server, ..self }
    }

    /// Returns whether `supervise` uses the server with the same state folder.
    pub fn has_default_server(&self) -> bool {
        self.server == ServerAddress::Socket(self.state_dir.join(MCP_SOCKET))
    }

    /// Returns the socket at which the command line reaches the daemon.
    pub fn control_socket(&self) -> PathBuf {
        self.state_dir.join("control.sock")
    }

    /// Returns the socket at which the command line reaches a coordinator without its server.
    pub fn coordinator_socket(&self) -> PathBuf {
        self.state_dir.join("coordinator.sock")
    }

    pub(super) fn read_checked(top: &mut Section<'_, '_>) -> Self {
        let mut paths = Self::read(top);
        let reader = top.reader();
        if paths.state_dir.as_os_str().is_empty() {
            paths.state_dir = default_state_dir(reader.environment());
        }
        let paths = paths.completed();
        // This is the longer one of the two sockets in `state_dir`.
        let state_span = top.span_of("state_dir");
        let longer = paths.coordinator_socket();
        check_socket(reader, "control socket", &longer, "state_dir", state_span.clone());
        let (key, span) = match top.span_of("mcp_socket_path") {
            Some(span) => ("mcp_socket_path", Some(span)),
            None => ("mcp_socket_path` or `state_dir", state_span),
        };
        check_socket(reader, "MCP socket", &paths.mcp_socket_path, key, span);
        paths
    }
}

/// Returns `$STATE_DIRECTORY` (systemd), else the user's state folder, else the system's.
pub(super) fn default_state_dir(environment: &Environment) -> PathBuf {
    // systemd separates several folders by colons. The daemon's is the first.
    let systemd =
        environment.variable("STATE_DIRECTORY").and_then(|folders| folders.split(':').next());
    if let Some(folder) = systemd.map(Path::new).filter(|folder| folder.is_absolute()) {
        return folder.to_owned();
    }
    match environment.user_folder("XDG_STATE_HOME", ".local/state") {
        Some(folder) => folder.join("agent-coordinator"),
        None => PathBuf::from(SYSTEM_STATE_DIR),
    }
}

/// Reads `server`. A relative path starts at the folder of the file, as in all settings.
fn read_server(field: &Field<'_, '_>, what: &str) -> Option<ServerAddress> {
    let reader = field.reader();
    let address = field.parsed(what, |text| text.parse().ok())?;
    let ServerAddress::Socket(path) = address else {
        return Some(address);
    };
    let path = match path.strip_prefix("~/") {
        Ok(below_home) => reader.environment().folder("HOME").map(|home| home.join(below_home)),
        Err(_) => Some(path),
    };
    if path.is_none() {
        field.expected(
            "a path that needs no home folder, as the environment variable `HOME` is not set",
        );
    }
    let path = reader.source().folder().join(path?);
    check_socket(reader, "server's socket", &path, "server", Some(field.span()));
    Some(ServerAddress::Socket(path))
}

fn check_socket(reader: &Reader<'_>, what: &str, path: &Path, key: &str, span: Option<Span>) {
    let length = path.as_os_str().as_bytes().len();
    if length > MAX_SOCKET_PATH {
        let path = path.display();
        let message = format!(
            "the path of the {what} is {length} bytes long, and the system allows {MAX_SOCKET_PATH}: `{path}`"
        );
        reader.note(Problem::new(message, span).help(format!("set `{key}` to a shorter path")));
    }
}
