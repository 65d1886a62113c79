//! The preset `qwen`: Qwen Code, headless.

use serde_json::json;

use super::preset::{
    BuiltIn, Composition, Conversing, Run, SERVER_NAME, SOCKET_VARIABLE, Server, tool_timeout_ms,
};
use config::Permissions;
use domain::conversation::Reach;

pub(super) const QWEN: BuiltIn = BuiltIn {
    program: "qwen",
    compose,
    conversing: Some(Conversing {
        begin: &["--session-id", "{conversation}"],
        resume: &["--resume", "{conversation}"],
        reach: Reach::SameDirectory,
        own_options: &["-c", "--continue", "--no-chat-recording", "-r", "--resume", "--session-id"],
    }),
    logins: &[
        "BAILIAN_CODING_PLAN_API_KEY",
        "BAILIAN_TOKEN_PLAN_API_KEY",
        "DASHSCOPE_API_KEY",
        "MODELSCOPE_API_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
    ],
    places: &["OPENAI_BASE_URL", "OPENAI_MODEL", "QWEN_HOME"],
    quiet: &[("QWEN_USAGE_STATISTICS_ENABLED", "false")],
    installation: "npm install -g @qwen-code/qwen-code; run `qwen` once to log in",
};

fn compose(run: &Run<'_>) -> Composition {
    // This saves a process and a hundred MiB.
    let environment = vec![("QWEN_CODE_NO_RELAUNCH", "true".to_owned())];
    Composition { arguments: arguments(run), environment, ..Composition::default() }
}

fn arguments(run: &Run<'_>) -> Vec<String> {
    let mut arguments = vec!["--mcp-config".to_owned(), mcp_config(&run.server)];
    // Options with any number of values come before other options, because they would take a bare
    // word after them as another value.
    arguments.extend(["--allowed-mcp-server-names", SERVER_NAME].map(str::to_owned));
    match run.permissions {
        Permissions::Project => arguments.extend(
            [
                "--allowed-tools",
                "run_shell_command",
                "edit(/**)",
                "write_file(/**)",
                "--approval-mode",
                "default",
            ]
            .map(str::to_owned),
        ),
        Permissions::Bypass => arguments.push("--yolo".to_owned()),
    }
    arguments.extend(["-o", "stream-json"].map(str::to_owned));
    if let Some(model) = run.model {
        arguments.extend(["-m".to_owned(), model.to_owned()]);
    }
    arguments.extend_from_slice(run.extra);
    arguments
}

/// Returns the MCP configuration. `trust` prevents questions about the tools; `alwaysLoadTools`
/// spares the agent a search for them.
fn mcp_config(server: &Server<'_>) -> String {
    let mut entry = match server {
        Server::Bridge { program, socket } => json!({
            "command": program.to_string_lossy(), "args": ["mcp"],
            "env": { SOCKET_VARIABLE: socket.to_string_lossy() },
        }),
        Server::Url(url) => json!({ "httpUrl": url }),
    };
    entry["trust"] = true.into();
    entry["alwaysLoadTools"] = true.into();
    entry["timeout"] = tool_timeout_ms().into();
    json!({ "mcpServers": { SERVER_NAME: entry } }).to_string()
}
