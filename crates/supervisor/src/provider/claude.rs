//! The preset `claude`: Claude Code, headless (`claude -p`).

use serde_json::json;

use super::preset::{BuiltIn, Composition, Conversing, Run, SERVER_NAME, SOCKET_VARIABLE, Server};
use config::Permissions;
use domain::conversation::Reach;

pub(super) const CLAUDE: BuiltIn = BuiltIn {
    program: "claude",
    compose: |run| Composition { arguments: arguments(run), ..Composition::default() },
    conversing: Some(Conversing {
        begin: &["--session-id", "{conversation}"],
        resume: &["--resume", "{conversation}"],
        reach: Reach::Anywhere,
        own_options: &[
            "-c",
            "--continue",
            "--fork-session",
            "--no-session-persistence",
            "-r",
            "--resume",
            "--session-id",
        ],
    }),
    logins: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
    places: &["ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR"],
    // The second one covers usage data, error reports and release notes.
    quiet: &[("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")],
    installation: "npm install -g @anthropic-ai/claude-code; run `claude` once to log in",
};

fn arguments(run: &Run<'_>) -> Vec<String> {
    // Without --verbose, this form of output is refused.
    let mut arguments: Vec<String> =
        ["-p", "--output-format", "stream-json", "--verbose"].map(str::to_owned).into();
    // Options with any number of values come before other options, because they would take a bare
    // word after them as another value.
    arguments.extend([
        "--mcp-config".to_owned(),
        mcp_config(&run.server),
        "--strict-mcp-config".to_owned(),
    ]);
    match run.permissions {
        Permissions::Project => arguments.extend(
            [
                "--allowedTools",
                &format!("mcp__{SERVER_NAME},Bash"),
                "--permission-mode",
                "acceptEdits",
            ]
            .map(str::to_owned),
        ),
        Permissions::Bypass => arguments.push("--dangerously-skip-permissions".to_owned()),
    }
    if let Some(model) = run.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    arguments.extend_from_slice(run.extra);
    arguments
}

/// `alwaysLoad` waits for the server before the first turn, and spares the agent a search for its
/// tools.
fn mcp_config(server: &Server<'_>) -> String {
    let server = match server {
        Server::Bridge { program, socket } => json!({
            "type": "stdio", "command": program.to_string_lossy(), "args": ["mcp"],
            "env": { SOCKET_VARIABLE: socket.to_string_lossy() }, "alwaysLoad": true,
        }),
        Server::Url(url) => json!({ "type": "http", "url": url, "alwaysLoad": true }),
    };
    json!({ "mcpServers": { SERVER_NAME: server } }).to_string()
}
