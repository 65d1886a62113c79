//! The presets: the parts of each built-in way of starting an agent CLI. To add one: its file
//! beside this one, its line below, and its name in `config::Preset`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{Host, claude, codex, copilot, gemini, opencode, qwen};
use config::{Permissions, Preset, Telemetry};
use domain::conversation::Reach;
use domain::{LaunchFile, Secret};

/// The parts of a preset. Its prompt travels on standard input.
pub(super) struct BuiltIn {
    /// The program, which is searched for in the `PATH`.
    pub program: &'static str,
    pub compose: fn(&Run<'_>) -> Composition,
    /// The arguments about conversations; `None` if its launches cannot continue one.
    pub conversing: Option<Conversing>,
    /// Variables of the daemon with the login of the CLI. They are passed on, and their values are
    /// removed from its stored output.
    pub logins: &'static [&'static str],
    /// Variables of the daemon with the places of its login or its service. They are passed on.
    pub places: &'static [&'static str],
    /// Variables that turn off its telemetry and its search for updates.
    pub quiet: &'static [(&'static str, &'static str)],
    /// The installation, for people who do not have the program.
    pub installation: &'static str,
}

/// The arguments by which a CLI begins a conversation with an id that it is given, and those by
/// which it continues one. `{conversation}` in them stands for the id.
pub(super) struct Conversing {
    pub begin: &'static [&'static str],
    pub resume: &'static [&'static str],
    pub reach: Reach,
    /// The options about the conversation. An entry with one of them in its `cli_args` decides
    /// itself, so its launches do not continue conversations.
    pub own_options: &'static [&'static str],
}

/// The result of a preset for one run.
#[derive(Default)]
pub(super) struct Composition {
    pub arguments: Vec<String>,
    /// The variables that are set in the agent. The configuration's `environment` overrides them.
    pub environment: Vec<(&'static str, String)>,
    pub files: Vec<LaunchFile>,
}

/// The inputs of a preset.
pub(super) struct Run<'a> {
    pub server: Server<'a>,
    pub permissions: Permissions,
    pub telemetry: Telemetry,
    pub model: Option<&'a str>,
    /// The configuration's `cli_args`, which come after all other options.
    pub extra: &'a [String],
    /// The directory where its files will be.
    pub files: &'a Path,
    /// The variables that the agent has from other sources.
    pub given: &'a BTreeMap<String, Secret>,
    pub working_directory: &'a Path,
    pub host: Host,
}

impl Run<'_> {
    /// Returns the value of a variable that is not empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(Secret::reveal).filter(|value| !value.is_empty())
    }
}

/// The way in which the agent reaches the server.
pub(super) enum Server<'a> {
    /// Through `<program> mcp`. This bridge survives a restart of the server, and the server knows
    /// it by its process. It gets the path of the socket, because CLIs do not pass their
    /// environment on to their MCP servers.
    Bridge { program: &'a Path, socket: &'a Path },
    /// Over HTTP.
    Url(&'a str),
}

/// The name by which agents know the server.
pub(super) const SERVER_NAME: &str = "coordinator";
/// The variable in which the bridge first looks for its socket.
pub(super) const SOCKET_VARIABLE: &str = "COORDINATOR_MCP_SOCKET";
/// The variable in which clients that speak HTTP look for the server.
pub(super) const URL_VARIABLE: &str = "COORDINATOR_MCP_URL";

/// The longest time for a call of a server's tool, for CLIs that take such a limit. The server
/// holds a poll for less than a minute.
const TOOL_TIMEOUT: Duration = Duration::from_mins(10);

/// Returns [`TOOL_TIMEOUT`] in milliseconds, the unit of most CLIs.
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
