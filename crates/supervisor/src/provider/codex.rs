//! The preset `codex`: Codex CLI, headless (`codex exec`).

use std::path::Path;

use super::preset::{BuiltIn, Composition, Run, SERVER_NAME, SOCKET_VARIABLE, Server};
use config::{Permissions, Telemetry};

pub(super) const CODEX: BuiltIn = BuiltIn {
    program: "codex",
    compose: |run| Composition { arguments: arguments(run), ..Composition::default() },
    // Codex assigns the id itself.
    conversing: None,
    logins: &["CODEX_ACCESS_TOKEN", "CODEX_API_KEY", "OPENAI_API_KEY"],
    places: &["CODEX_HOME"],
    quiet: &[],
    installation: "npm install -g @openai/codex; run `codex login` once",
};

/// Turns off usage data, the search for updates, and the catalogue of plugins that codex fetches at
/// each start. The last setting turns off all plugins: codex has no setting for the catalogue
/// alone.
const QUIET: [&str; 3] =
    ["analytics.enabled=false", "check_for_update_on_startup=false", "features.plugins=false"];

/// The variables of the launch that codex passes on to the bridge, which keeps a report with them.
/// Codex clears all others.
const PASSED_ON: &str = r#"["AGENT_LAUNCH_ID","TMPDIR"]"#;

fn arguments(run: &Run<'_>) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["exec", "--json", "--skip-git-repo-check"].map(str::to_owned).into();
    match run.permissions {
        Permissions::Project => {
            arguments.extend(["-s".to_owned(), "workspace-write".to_owned()]);
            // Its sandbox lets an agent read a repository in its directory, but make no commit.
            for folder in (run.host.git_folders)(run.working_directory) {
                arguments.extend(["--add-dir".to_owned(), folder.to_string_lossy().into_owned()]);
            }
        }
        Permissions::Bypass => {
            arguments.push("--dangerously-bypass-approvals-and-sandbox".to_owned());
        }
    }
    if run.telemetry == Telemetry::Off {
        arguments.extend(QUIET.iter().flat_map(|setting| ["-c", *setting]).map(str::to_owned));
    }
    arguments.extend(["-c".to_owned(), mcp_server(&run.server)]);
    if let Some(model) = run.model {
        arguments.extend(["-m".to_owned(), model.to_owned()]);
    }
    arguments.extend_from_slice(run.extra);
    // The prompt is on standard input.
    arguments.push("-".to_owned());
    arguments
}

/// Returns the entry of the server. It is `required`, because codex would go on without the server,
/// and there would be nothing to do.
fn mcp_server(server: &Server<'_>) -> String {
    let place = match server {
        Server::Bridge { program, socket } => {
            format!(
                "command={},args=[\"mcp\"],env={{{SOCKET_VARIABLE}={}}},env_vars={PASSED_ON}",
                quoted_path(program),
                quoted_path(socket)
            )
        }
        Server::Url(url) => format!("url={}", quoted(url)),
    };
    let rules = r#"required=true,default_tools_approval_mode="approve",startup_timeout_sec=60,tool_timeout_sec=600"#;
    format!("mcp_servers.{SERVER_NAME}={{{place},{rules}}}")
}

fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Returns a TOML string. TOML's basic strings understand the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
