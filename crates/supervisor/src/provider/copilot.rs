//! The preset `copilot`: GitHub Copilot CLI, headless.

use serde_json::json;

use super::preset::{
    BuiltIn, Composition, Conversing, Run, SERVER_NAME, SOCKET_VARIABLE, Server, tool_timeout_ms,
};
use config::{Permissions, Telemetry};
use domain::conversation::Reach;

pub(super) const COPILOT: BuiltIn = BuiltIn {
    program: "copilot",
    compose: |run| Composition { arguments: arguments(run), ..Composition::default() },
    conversing: Some(Conversing {
        begin: &["--session-id={conversation}"],
        resume: &["--resume={conversation}"],
        reach: Reach::Anywhere,
        own_options: &["--continue", "--resume", "--session-id"],
    }),
    logins: &[
        "COPILOT_GITHUB_TOKEN",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BEARER_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
    ],
    places: &[
        "COPILOT_GH_HOST",
        "COPILOT_HOME",
        "COPILOT_MODEL",
        "COPILOT_PROVIDER_BASE_URL",
        "COPILOT_PROVIDER_MODEL_ID",
        "COPILOT_PROVIDER_TYPE",
        "COPILOT_PROVIDER_WIRE_API",
        "COPILOT_PROVIDER_WIRE_MODEL",
        "GH_HOST",
    ],
    quiet: &[],
    installation: "npm install -g @github/copilot; run `copilot login` once",
};

fn arguments(run: &Run<'_>) -> Vec<String> {
    let mut arguments = vec!["--additional-mcp-config".to_owned(), mcp_config(&run.server)];
    arguments.extend(["--disable-builtin-mcps", "--no-ask-user"].map(str::to_owned));
    if run.telemetry == Telemetry::Off {
        arguments.extend(["--no-auto-update", "--disable-client-telemetry"].map(str::to_owned));
    }
    arguments.extend(["--output-format", "json"].map(str::to_owned));
    match run.permissions {
        Permissions::Project => {
            let tools = ["shell", "write", SERVER_NAME];
            arguments.extend(tools.map(|tool| format!("--allow-tool={tool}")));
        }
        Permissions::Bypass => arguments.push("--allow-all".to_owned()),
    }
    if let Some(model) = run.model {
        arguments.extend(["--model".to_owned(), model.to_owned()]);
    }
    arguments.extend_from_slice(run.extra);
    arguments
}

fn mcp_config(server: &Server<'_>) -> String {
    let mut entry = match server {
        Server::Bridge { program, socket } => json!({
            "type": "local", "command": program.to_string_lossy(), "args": ["mcp"],
            "env": { SOCKET_VARIABLE: socket.to_string_lossy() },
        }),
        Server::Url(url) => json!({ "type": "http", "url": url }),
    };
    entry["tools"] = json!(["*"]);
    entry["timeout"] = tool_timeout_ms().into();
    json!({ "mcpServers": { SERVER_NAME: entry } }).to_string()
}
