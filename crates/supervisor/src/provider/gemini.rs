//! The preset `gemini`: Gemini CLI, headless, with a home of its own for each launch.
//!
//! Gemini takes MCP servers only from settings files. A variable can move its system settings, but
//! they count only if root owns them and every folder above. So the file is a user's settings file,
//! in a folder that replaces the user's folder. The login, instructions and policies of the real
//! folder are linked there.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::preset::{
    BuiltIn, Composition, Run, SERVER_NAME, SOCKET_VARIABLE, Server, tool_timeout_ms,
};
use config::{Permissions, Telemetry};
use domain::{FileContent, LaunchFile};

pub(super) const GEMINI: BuiltIn = BuiltIn {
    program: "gemini",
    compose,
    // Its transcripts go with the folder of the launch.
    conversing: None,
    logins: &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_ACCESS_TOKEN"],
    places: &[
        HOME,
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_GENAI_USE_GCA",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_VERTEX_BASE_URL",
    ],
    quiet: &[],
    installation: "npm install -g @google/gemini-cli; set GEMINI_API_KEY for the daemon (docs/providers.md on other logins)",
};

/// The variable of the directory that contains the folder `.gemini`.
const HOME: &str = "GEMINI_CLI_HOME";
const FOLDER: &str = ".gemini";
/// The files that are linked.
const REAL: [&str; 5] =
    ["GEMINI.md", "gemini-credentials.json", "google_accounts.json", "oauth_creds.json", POLICIES];
const POLICIES: &str = "policies";
const POLICY: &str = "policy.toml";

fn compose(run: &Run<'_>) -> Composition {
    let folder = Path::new(FOLDER);
    let text = |path: PathBuf, text: String| LaunchFile { path, content: FileContent::Text(text) };
    let mut files = vec![text(folder.join("settings.json"), settings(run))];
    if let Some(home) = run.given(HOME).or_else(|| run.given("HOME")) {
        let real = Path::new(home).join(FOLDER);
        let link = |name| LaunchFile {
            path: folder.join(name),
            content: FileContent::Link(real.join(name)),
        };
        files.extend(REAL.map(link));
    }
    let mut arguments: Vec<String> = ["-o", "stream-json"].map(str::to_owned).into();
    match run.permissions {
        Permissions::Project => {
            files.push(text(PathBuf::from(POLICY), SHELL_POLICY.to_owned()));
            arguments.extend(["--approval-mode", "auto_edit"].map(str::to_owned));
            // The user's policies are named with ours, because otherwise ours would replace them.
            for policy in [run.files.join(POLICY), run.files.join(FOLDER).join(POLICIES)] {
                arguments.extend(["--policy".to_owned(), policy.to_string_lossy().into_owned()]);
            }
        }
        Permissions::Bypass => arguments.push("--yolo".to_owned()),
    }
    if let Some(model) = run.model {
        arguments.extend(["-m".to_owned(), model.to_owned()]);
    }
    arguments.extend_from_slice(run.extra);
    // This saves a process and a hundred MiB, and the remaining process ends when it is told to.
    let no_relaunch = ("GEMINI_CLI_NO_RELAUNCH", "true".to_owned());
    // `--skip-trust` does the same only after the settings were read without those of the project.
    let trust = ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned());
    let home = (HOME, run.files.to_string_lossy().into_owned());
    Composition { arguments, environment: vec![home, no_relaunch, trust], files }
}

/// The policy for shell commands. Without it, a person must allow each shell command, and
/// redirection even if the command is allowed. Any rule of the user comes before it.
const SHELL_POLICY: &str = r#"[[rule]]
toolName = "run_shell_command"
decision = "allow"
priority = 1
allowRedirection = true
"#;

/// Returns the settings. `trust` prevents questions about the coordinator's tools.
fn settings(run: &Run<'_>) -> String {
    let mut entry = match &run.server {
        Server::Bridge { program, socket } => json!({
            "command": program.to_string_lossy(), "args": ["mcp"],
            "env": { SOCKET_VARIABLE: socket.to_string_lossy() },
        }),
        Server::Url(url) => json!({ "httpUrl": url }),
    };
    entry["trust"] = true.into();
    entry["timeout"] = tool_timeout_ms().into();
    let login = login(&|name: &str| run.given(name).map(str::to_owned));
    let mut settings = json!({
        "mcpServers": { SERVER_NAME: entry },
        "security": { "auth": { "selectedType": login.as_str() } },
        // The detection would end an agent at its fifth call with the same arguments, and a waiting
        // agent polls with the same ones.
        "model": { "disableLoopDetection": true },
    });
    if run.telemetry == Telemetry::Off {
        settings["general"] =
            json!({ "enableAutoUpdate": false, "enableAutoUpdateNotification": false });
        settings["privacy"] = json!({ "usageStatisticsEnabled": false });
    }
    settings.to_string()
}

/// The kind of a login, by which gemini looks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The Google account of a person.
    Account,
    Key,
    Vertex,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "oauth-personal",
            Self::Key => "gemini-api-key",
            Self::Vertex => "vertex-ai",
        }
    }
}

/// Returns the kind of login. Without a variable that says otherwise, it is the login of a person
/// in a browser.
pub(super) fn login(variable: &impl Fn(&str) -> Option<String>) -> Kind {
    let is_true = |name| variable(name).as_deref() == Some("true");
    if is_true("GOOGLE_GENAI_USE_GCA") {
        Kind::Account
    } else if is_true("GOOGLE_GENAI_USE_VERTEXAI") {
        Kind::Vertex
    } else if variable("GEMINI_API_KEY").is_some() {
        // Without this setting, gemini misreads a key beside a base URL, and then refuses it.
        Kind::Key
    } else {
        Kind::Account
    }
}
