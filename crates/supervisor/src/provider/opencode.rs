//! The preset `opencode`: OpenCode, headless (`opencode run`).

use serde_json::{Value, json};

use super::login::{Login, login_of};
use super::preset::{
    BuiltIn, Composition, Run, SERVER_NAME, SOCKET_VARIABLE, Server, tool_timeout_ms,
};
use config::{Permissions, Preset};

pub(super) const OPENCODE: BuiltIn = BuiltIn {
    program: "opencode",
    compose,
    // Opencode assigns the id itself.
    conversing: None,
    logins: &[
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_GENERATIVE_AI_API_KEY",
        "OPENAI_API_KEY",
        "OPENCODE_API_KEY",
        "OPENROUTER_API_KEY",
    ],
    places: &["OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"],
    // Without the first variable, opencode fetches its list of models each hour. It has a built-in
    // list.
    quiet: &[("OPENCODE_DISABLE_MODELS_FETCH", "1"), ("OPENCODE_DISABLE_AUTOUPDATE", "1")],
    installation: "npm install -g opencode-ai; run `opencode auth login` once",
};

fn compose(run: &Run<'_>) -> Composition {
    let mut arguments: Vec<String> = ["run", "--format", "json"].map(str::to_owned).into();
    if run.permissions == Permissions::Bypass {
        arguments.push("--auto".to_owned());
    }
    if let Some(model) = run.model {
        arguments.extend(["-m".to_owned(), model.to_owned()]);
    }
    arguments.extend_from_slice(run.extra);
    // This overrides the user's own files, key by key.
    let config = ("OPENCODE_CONFIG_CONTENT", config(run));
    // Without its log, opencode does not report a refusal after which it repeats its request, for
    // as long as that takes. The log is set by variables, because `--log-level` twice (here and in
    // `cli_args`) ends opencode.
    let log = [("OPENCODE_LOG_LEVEL", "ERROR"), ("OPENCODE_PRINT_LOGS", "1")];
    let environment =
        std::iter::once(config).chain(log.map(|(name, value)| (name, value.to_owned()))).collect();
    Composition { arguments, environment, ..Composition::default() }
}

fn config(run: &Run<'_>) -> String {
    let mut entry = match &run.server {
        Server::Bridge { program, socket } => json!({
            "type": "local", "command": [program.to_string_lossy(), Value::from("mcp")],
            "environment": { SOCKET_VARIABLE: socket.to_string_lossy() },
        }),
        Server::Url(url) => json!({ "type": "remote", "url": url, "oauth": false }),
    };
    entry["enabled"] = true.into();
    entry["timeout"] = tool_timeout_ms().into();
    let mut config = json!({
        "mcp": { SERVER_NAME: entry },
        "permission": { format!("{SERVER_NAME}_*"): "allow" },
        // A request without a person to allow it is refused. Without this setting, the refusal ends
        // the agent.
        "experimental": { "continue_loop_on_deny": true },
    });
    if !may_use_hosted(run) {
        config["disabled_providers"] = json!(["opencode"]);
    }
    config.to_string()
}

/// Returns whether the agent may use the models that are hosted by the makers of opencode. Without
/// a login, opencode takes a free one, and the text of the project would go to a service that no
/// person chose. With one, this key stays as the user's own files have it.
fn may_use_hosted(run: &Run<'_>) -> bool {
    let is_chosen = run.model.is_some_and(|model| model.starts_with("opencode/"));
    let variable = |name: &str| run.given(name).map(str::to_owned);
    let has_login = run.host.has_login(Preset::Opencode);
    is_chosen || !matches!(login_of(Preset::Opencode, variable, has_login), Login::No(_))
}
