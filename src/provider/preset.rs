//! The presets: what each built-in way of starting an agent CLI consists of. To add one: its file beside this one, its line
//! below, and its name in `config::Preset`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{claude, codex, copilot, gemini, opencode, qwen};
use crate::config::{Permissions, Preset, Telemetry};
use crate::domain::{LaunchFile, Secret};

/// What makes a preset. Its prompt travels on standard input.
pub(super) struct BuiltIn {
    /// Looked up in the `PATH`.
    pub program: &'static str,
    pub compose: fn(&Run<'_>) -> Composition,
    /// Variables of the daemon that hold its login: passed on, and kept out of what is kept of its output.
    pub logins: &'static [&'static str],
    /// Variables of the daemon that say where its login or its service is: passed on.
    pub places: &'static [&'static str],
    /// Variables that turn off its telemetry and its search for updates.
    pub quiet: &'static [(&'static str, &'static str)],
    /// For people who don't have the program.
    pub installation: &'static str,
}

/// What a preset makes of a run.
#[derive(Default)]
pub(super) struct Composition {
    pub arguments: Vec<String>,
    /// Set in the agent; the configuration's `environment` goes over it.
    pub environment: Vec<(&'static str, String)>,
    pub files: Vec<LaunchFile>,
}

/// What a preset starts from.
pub(super) struct Run<'a> {
    pub server: Server<'a>,
    pub permissions: Permissions,
    pub telemetry: Telemetry,
    pub model: Option<&'a str>,
    /// The configuration's `cli_args`: behind all other options.
    pub extra: &'a [String],
    /// Where its files will be.
    pub files: &'a Path,
    /// The variables that the agent has from elsewhere.
    pub given: &'a BTreeMap<String, Secret>,
}

impl Run<'_> {
    /// The value of a variable that isn't empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(Secret::reveal).filter(|value| !value.is_empty())
    }
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
/// Clients that speak HTTP look for the server here.
pub(super) const URL_VARIABLE: &str = "COORDINATOR_MCP_URL";

/// How long a tool of the server may take, where an agent can be told: the server holds a poll for less than a minute.
const TOOL_TIMEOUT: Duration = Duration::from_mins(10);

/// [`TOOL_TIMEOUT`] as most CLIs take it.
pub(super) fn tool_timeout_ms() -> u64 {
    u64::try_from(TOOL_TIMEOUT.as_millis()).expect("a few minutes")
}

pub(super) const fn of(preset: Preset) -> &'static BuiltIn {
    match preset {
        Preset::Claude => &claude::CLAUDE,
        Preset::Codex => &codex::CODEX,
        Preset::Gemini => &gemini::GEMINI,
        Preset::Qwen => &qwen::QWEN,
        Preset::Opencode => &opencode::OPENCODE,
        Preset::Copilot => &copilot::COPILOT,
    }
}
