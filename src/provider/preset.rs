//! The presets: what each built-in way of starting an agent CLI consists of. To add one: its file beside this one, its line
//! below, and its name in `config::Preset`.

use std::path::Path;

use super::{claude, codex};
use crate::config::{Permissions, Preset};

/// What makes a preset. Its prompt travels on standard input.
pub(super) struct BuiltIn {
    /// Looked up in the `PATH`.
    pub program: &'static str,
    pub arguments: fn(&Run<'_>) -> Vec<String>,
    /// Set in the agent; the configuration's `environment` goes over it.
    pub environment: &'static [(&'static str, &'static str)],
    /// Variables of the daemon that hold its login: passed on, and kept out of what is kept of its output.
    pub logins: &'static [&'static str],
    /// Variables of the daemon that say where its login or its service is: passed on.
    pub places: &'static [&'static str],
    /// For people who don't have the program.
    pub installation: &'static str,
}

/// What the arguments of a preset are made from.
pub(super) struct Run<'a> {
    pub server: Server<'a>,
    pub permissions: Permissions,
    pub model: Option<&'a str>,
    /// The configuration's `cli_args`: behind all other options.
    pub extra: &'a [String],
}

/// How the agent reaches the server.
pub(super) enum Server<'a> {
    /// Through `<program> mcp`, which outlives a restart of the server, and which the server knows by its process. The socket is
    /// named to it: CLIs keep their environment from their MCP servers.
    Bridge { program: &'a Path, socket: &'a Path },
    /// Over HTTP.
    Url(&'a str),
}

/// The name by which agents know the server.
pub(super) const SERVER_NAME: &str = "coordinator";
/// The bridge looks for its socket here first.
pub(super) const SOCKET_VARIABLE: &str = "COORDINATOR_MCP_SOCKET";

pub(super) const fn of(preset: Preset) -> &'static BuiltIn {
    match preset {
        Preset::Claude => &claude::CLAUDE,
        Preset::Codex => &codex::CODEX,
    }
}
