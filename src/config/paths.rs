//! `state_dir`, `mcp_socket_path`, `server`, `store.url`: the places of files and sockets.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::domain::ServerAddress;

use super::environment::Environment;
use super::reader::{Field, Reader, Section};
use super::report::Problem;
use super::store::StoreUrl;
use super::tree::Span;

use crate::sys::sockets::MAX_PATH as MAX_SOCKET_PATH;

/// The state folder if there is neither a setting nor an environment variable for it.
const SYSTEM_STATE_DIR: &str = "/var/lib/agent-coordinator";

/// The keys of the addresses of a daemon.
pub(super) const KEYS: [&str; 3] = ["state_dir", "mcp_socket_path", "server"];

/// All places, absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paths {
    pub state_dir: PathBuf,
    pub mcp_socket: PathBuf,
    pub control_socket: PathBuf,
    pub coordinator_socket: PathBuf,
    pub server: ServerAddress,
    pub store: StoreUrl,
}

impl Paths {
    /// Returns the defaults, which are all in the state folder.
    pub fn below(state_dir: PathBuf) -> Self {
        let mcp_socket = state_dir.join("mcp.sock");
        Self {
            server: ServerAddress::Socket(mcp_socket.clone()),
            mcp_socket,
            control_socket: state_dir.join("control.sock"),
            coordinator_socket: state_dir.join("coordinator.sock"),
            store: StoreUrl::Sqlite(state_dir.join("state.db")),
            state_dir,
        }
    }

    pub fn read(top: &mut Section<'_, '_>) -> Self {
        let reader = top.reader();
        let state_dir = top.field("state_dir");
        let state_span = state_dir.as_ref().map(Field::span);
        let state_dir = state_dir
            .and_then(|field| field.path())
            .unwrap_or_else(|| default_state_dir(reader.environment()));
        let default = Self::below(state_dir);

        let mcp_socket = top.field("mcp_socket_path");
        let mcp_span = mcp_socket.as_ref().map(Field::span);
        let mcp_socket = mcp_socket.and_then(|field| field.path()).unwrap_or(default.mcp_socket);
        let server = top.field("server").and_then(|field| read_server(&field, reader));
        let store = StoreUrl::read(top.section("store"));

        // This is the longer one of the two sockets in `state_dir`.
        check_socket(
            reader,
            "control socket",
            &default.coordinator_socket,
            "state_dir",
            state_span.clone(),
        );
        if let Some(span) = mcp_span {
            check_socket(reader, "MCP socket", &mcp_socket, "mcp_socket_path", Some(span));
        } else {
            check_socket(
                reader,
                "MCP socket",
                &mcp_socket,
                "mcp_socket_path` or `state_dir",
                state_span,
            );
        }
        let server = server.unwrap_or_else(|| ServerAddress::Socket(mcp_socket.clone()));
        Self { mcp_socket, server, store: store.unwrap_or(default.store), ..default }
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
fn read_server(field: &Field<'_, '_>, reader: &Reader<'_>) -> Option<ServerAddress> {
    let what = "`unix:` and the path of its socket, or the URL of its MCP endpoint, such as `https://host/mcp`";
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
