//! Whole command lines: what an agent is started with.

mod conversing;

use super::*;
use config::{EXAMPLE, Permissions, Telemetry};
use domain::{Attempt, FileContent, Language, LaunchFile, Purpose};

fn providers(entries: impl IntoIterator<Item = (&'static str, ProviderConfig)>) -> Providers {
    let environment = [
        ("PATH", "/bin"),
        ("HOME", "/home/dev"),
        ("ANTHROPIC_API_KEY", "sk-ant-login"),
        ("ANTHROPIC_BASE_URL", "http://gateway"),
        ("OPENAI_API_KEY", "sk-login"),
        ("GEMINI_API_KEY", "gemini-login"),
        ("GITHUB_TOKEN", "gh-login"),
        ("DEV_PASSKEY", "somebody's secret"),
    ];
    Providers {
        entries: entries.into_iter().map(|(name, provider)| (name.to_owned(), provider)).collect(),
        guidance: Guidance::new(Language::English),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        withheld: Vec::new(),
        withheld_variables: std::collections::BTreeSet::new(),
        redacted: Vec::new(),
        mcp_socket: Some(PathBuf::from("/run/mcp.sock")),
        mcp_url: None,
        state_dir: PathBuf::from("/state"),
        program: PathBuf::from("/bin/agent-coordinator"),
        users: BTreeMap::new(),
        users_files: PathBuf::from("/run/files"),
        host: Host::BLIND,
    }
}

fn request(ai_type: &str) -> LaunchRequest {
    LaunchRequest {
        clone: None,
        launch: "lch_1".parse().expect("an id"),
        key: InstanceKey::new(
            "agt_x".parse().expect("an id"),
            "prj_a".parse().expect("an id"),
            Purpose::Task,
        ),
        ai_type: ai_type.to_owned(),
        working_directory: PathBuf::from("/proj_a"),
        passkey: Secret::new("tkt_secret"),
        attempt: Attempt::FIRST,
        conversation: None,
        last_call: None,
    }
}

/// The command, in whose arguments and files no secret may be.
#[track_caller]
fn command(providers: &Providers, ai_type: &str) -> CommandSpec {
    let command = providers.command(&request(ai_type)).expect("a command");
    let files = command.files.iter().map(|file| format!("{:?}", file.content));
    for text in command.arguments.iter().cloned().chain(files) {
        assert!(!["tkt_secret", "-login"].iter().any(|secret| text.contains(secret)), "{text}");
    }
    command
}

fn own(program: &str, arguments: &[&str]) -> ProviderConfig {
    let cli_args = arguments.iter().map(|&argument| argument.to_owned()).collect();
    ProviderConfig { cli_args, ..ProviderConfig::new(program) }
}

fn variable<'a>(command: &'a CommandSpec, name: &str) -> Option<&'a str> {
    command.environment.iter().find(|(each, _)| each == name).map(|(_, value)| value.reveal())
}

/// A whole command, a word, variable or file per line.
fn shown(command: &CommandSpec) -> String {
    let mut lines = vec![command.program.clone()];
    lines.extend(command.arguments.iter().map(|argument| format!("  {argument}")));
    let prompt = command.stdin.as_ref().map(Secret::reveal);
    assert!(prompt.is_none_or(|prompt| prompt.contains("tkt_secret")), "{prompt:?}");
    lines.push(format!("< {}", if prompt.is_some() { "the prompt" } else { "nothing" }));
    lines.extend(
        command.environment.iter().map(|(name, value)| format!("{name}={}", value.reveal())),
    );
    lines.extend(command.files.iter().map(|LaunchFile { path, content }| match content {
        FileContent::Text(text) => format!("{}: {}", path.display(), text.trim_end()),
        FileContent::Link(target) => format!("{} -> {}", path.display(), target.display()),
    }));
    lines.join("\n")
}

// ── Entries with a command of their own ──

/// Checks R-004-26 and R-004-27.
#[test]
fn an_entry_with_the_seeds_keys_is_started_in_the_seeds_shape() {
    // A preset of the same name makes no difference.
    for name in ["claude", "gpt"] {
        let command =
            command(&providers([(name, own("claude", &["--dangerously-skip-permissions"]))]), name);
        assert_eq!(command.program, "claude");
        assert_eq!(command.arguments[..2], ["--dangerously-skip-permissions", "-p"]);
        assert!(command.arguments[2].contains("authenticate("));
        assert_eq!(command.arguments.len(), 3);
        assert!(command.stdin.is_none());
        assert_eq!(variable(&command, "ANTHROPIC_API_KEY"), None);
    }
}

/// Checks R-004-28.
#[test]
fn passkey_in_prompt_restores_the_seeds_text() {
    let program = "a".to_owned();
    let command_line =
        CommandLine::Own { program, prompt: PromptVia::Argument, passkey_in_prompt: true };
    let providers = providers([("a", ProviderConfig { command_line, ..own("a", &[]) })]);
    let command = providers.command(&request("a")).expect("a command");
    assert!(
        command.arguments[1].contains(r#"authenticate(agent_id="agt_x", passkey="tkt_secret""#)
    );
}

#[test]
fn the_prompt_on_standard_input_holds_the_passkey() {
    let program = "a".to_owned();
    let command_line =
        CommandLine::Own { program, prompt: PromptVia::Stdin, passkey_in_prompt: false };
    let command =
        command(&providers([("a", ProviderConfig { command_line, ..own("a", &["-x"]) })]), "a");
    assert_eq!(command.arguments, ["-x"]);
    assert!(command.stdin.expect("a prompt").reveal().contains("tkt_secret"));
}

#[test]
fn the_environment_is_the_launchs_and_what_the_provider_passes() {
    insta::assert_snapshot!(
        "environment",
        shown(&command(&providers([("a", own("a", &["{launch_id}", "{prompt}"]))]), "a"))
    );
}

#[test]
fn secrets_of_the_daemon_are_not_passed_on_by_any_setting() {
    let text = "ai_providers: { everything: { cli_command: a, pass_environment: ['*'] }, copilot: { preset: copilot } }";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("c.yaml");
    std::fs::write(&file, text).expect("a file");
    let loaded = config::load(Some(&file), &config::Environment::new(folder.path(), []));
    let mut providers =
        Providers { entries: loaded.expect("valid").config.providers, ..providers([]) };
    let more = [
        ("URL", "https://me:gh-login@forge.example"),
        ("TOKEN_FILE", "/run/token"),
        ("SHORT", "ab"),
        ("X", "abc"),
    ];
    providers.environment.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
    providers.withheld = ["gh-login", "/run/token", "ab"].map(Secret::new).into();
    // A token was put together from two of them, one of which every agent gets.
    providers.withheld_variables = ["HALF", "PATH"].map(str::to_owned).into();
    providers.environment.insert("HALF".to_owned(), "half".to_owned());
    for ai_type in ["everything", "copilot"] {
        let command = providers.command(&request(ai_type)).expect("a command");
        for withheld in ["GITHUB_TOKEN", "URL", "TOKEN_FILE", "SHORT", "HALF"] {
            assert_eq!(variable(&command, withheld), None, "{ai_type}: {withheld}");
        }
        assert_eq!(variable(&command, "PATH"), Some("/bin"));
        assert_eq!(variable(&command, "X").is_some(), ai_type == "everything");
    }
}

#[test]
fn only_the_entry_names_a_folder_for_temporary_files() {
    let named = BTreeMap::from([("TMPDIR".to_owned(), Secret::new("/scratch"))]);
    let named = ProviderConfig { environment: named, ..own("a", &[]) };
    let mut providers = providers([("a", own("a", &[])), ("named", named)]);
    providers.environment.insert("TMPDIR".to_owned(), "/scratch/of-the-daemon".to_owned());
    assert_eq!(variable(&command(&providers, "a"), "TMPDIR"), None);
    assert_eq!(variable(&command(&providers, "claude"), "TMPDIR"), None);
    assert_eq!(variable(&command(&providers, "named"), "TMPDIR"), Some("/scratch"));
}

// ── Which provider ──

#[test]
fn an_ai_type_is_started_by_its_entry_else_its_preset_else_as_claude() {
    let check = |providers: &Providers, ai_type: &str, name: &str, program: &str| {
        assert_eq!(providers.find(ai_type).0, name);
        assert_eq!(command(providers, ai_type).program, program);
    };
    let none = providers([]);
    check(&none, "claude", "claude", "claude");
    check(&none, "codex", "codex", "codex");
    check(&none, "gpt", "claude", "claude");
    let with_entry = providers([("claude", own("my-claude", &[]))]);
    check(&with_entry, "claude", "claude", "my-claude");
    check(&with_entry, "codex", "codex", "codex");
    check(&with_entry, "gpt", "claude", "my-claude");
}

// ── Presets ──

/// An entry with nothing but a preset and what it may do.
fn permitted(preset: Preset, permissions: Permissions) -> ProviderConfig {
    let command_line = CommandLine::Preset {
        preset,
        program: None,
        model: None,
        permissions,
        telemetry: Telemetry::Off,
    };
    ProviderConfig { command_line, ..ProviderConfig::of_preset(preset) }
}

#[test]
fn presets_by_permissions_and_by_the_way_to_the_server() {
    let url = || Some("http://127.0.0.1:7420/mcp".to_owned());
    for (name, preset) in Preset::ALL {
        let mut all = Vec::new();
        for permissions in [Permissions::Project, Permissions::Bypass] {
            let by_bridge = providers([(name, permitted(preset, permissions))]);
            let by_url = Providers { mcp_socket: None, mcp_url: url(), ..by_bridge.clone() };
            for (way, providers) in [("by the bridge", by_bridge), ("by URL", by_url)] {
                all.push(format!(
                    "── {permissions:?}, {way} ──\n{}",
                    shown(&command(&providers, name))
                ));
            }
        }
        insta::assert_snapshot!(name, all.join("\n\n"));
    }
}

/// The sandbox of codex has a repository in its directory read-only.
#[test]
fn codex_may_write_to_the_repository_of_its_directory() {
    let git_folders = |directory: &Path| vec![directory.join(".git"), PathBuf::from("/git/own")];
    let host = Host { git_folders, ..providers([]).host };
    let with = |permissions| {
        let entry = providers([("codex", permitted(Preset::Codex, permissions))]);
        command(&Providers { host, ..entry }, "codex").arguments.join(" ")
    };
    let sandbox = with(Permissions::Project);
    let expected = "-s workspace-write --add-dir /proj_a/.git --add-dir /git/own -c ";
    assert!(sandbox.contains(expected), "{sandbox}");
    assert!(!with(Permissions::Bypass).contains("--add-dir"));
}

#[test]
fn opencode_has_no_hosted_model_without_a_login() {
    let forbids = |model: Option<&str>, variables: &[(&str, &str)], has_file: bool| {
        let set = variables.iter().chain(&[("HOME", "/home/dev")]);
        let environment = set.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        // A file that is not empty may be without a login.
        let has_entries: fn(&Path) -> bool = if has_file { |_| true } else { |_| false };
        let host = Host { has_entries, has_contents: |_| true, ..providers([]).host };
        let command_line = CommandLine::Preset {
            preset: Preset::Opencode,
            program: None,
            model: model.map(str::to_owned),
            permissions: Permissions::Project,
            telemetry: Telemetry::Off,
        };
        let entry = ProviderConfig { command_line, ..ProviderConfig::of_preset(Preset::Opencode) };
        let entries = providers([("a", entry)]);
        let providers = Providers { environment: environment.collect(), host, ..entries };
        let command = command(&providers, "a");
        let config = variable(&command, "OPENCODE_CONFIG_CONTENT").expect("a configuration");
        config.contains(r#""disabled_providers":["opencode"]"#)
    };
    assert!(forbids(None, &[], false));
    assert!(forbids(Some("ollama/small"), &[], false));
    assert!(!forbids(None, &[], true));
    assert!(!forbids(None, &[("OPENCODE_API_KEY", "key")], false));
    assert!(!forbids(None, &[("ANTHROPIC_API_KEY", "key")], false));
    assert!(!forbids(Some("opencode/big-pickle"), &[], false), "a person chose it");
}

#[test]
fn a_preset_needs_no_entry() {
    for (name, preset) in Preset::ALL {
        let entry = providers([(name, permitted(preset, Permissions::Project))]);
        assert_eq!(shown(&command(&providers([]), name)), shown(&command(&entry, name)));
    }
}

#[test]
fn the_bundled_agent_needs_no_entry_and_an_entry_replaces_it() {
    let built_in = command(&providers([]), EXAMPLE);
    assert_eq!(built_in.program, "/bin/sh");
    let script = include_str!("../../../../examples/quickstart/agent.sh");
    assert_eq!(built_in.arguments[..3], ["-c", script, "example"]);
    assert_eq!(built_in.stdin.as_ref().map(Secret::reveal), None);
    let own = providers([(EXAMPLE, ProviderConfig::new("./agent.sh"))]);
    assert_eq!(command(&own, EXAMPLE).program, "./agent.sh");
}

#[test]
fn a_preset_with_everything_an_entry_can_say() {
    for (name, preset) in Preset::ALL {
        let entry = ProviderConfig {
            command_line: CommandLine::Preset {
                preset,
                program: Some("/opt/cli".to_owned()),
                model: Some("big".to_owned()),
                permissions: Permissions::Bypass,
                telemetry: Telemetry::Off,
            },
            cli_args: vec!["--name".to_owned(), "{agent_id}".to_owned()],
            environment: BTreeMap::from([
                ("DISABLE_AUTOUPDATER".to_owned(), Secret::new("0")),
                ("OPENCODE_DISABLE_AUTOUPDATE".to_owned(), Secret::new("0")),
                ("OPENAI_API_KEY".to_owned(), Secret::new("of the entry")),
            ]),
            ..ProviderConfig::of_preset(preset)
        };
        insta::assert_snapshot!(
            format!("{name}_in_full"),
            shown(&command(&providers([("a", entry)]), "a"))
        );
    }
}

/// Returns the parts of a command that turn telemetry and updates off, one per line.
fn quiet_parts(command: &CommandSpec) -> Vec<String> {
    const PARTS: [&str; 7] = [
        "telemetry",
        "update",
        "analytics",
        "plugins=",
        "statistics",
        "models_fetch",
        "nonessential",
    ];
    let is_part = |text: &str| PARTS.iter().any(|part| text.to_lowercase().contains(part));
    shown(command).lines().filter(|line| is_part(line)).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn presets_turn_telemetry_and_updates_off_unless_it_is_left_on() {
    let mut off = Vec::new();
    for (name, preset) in Preset::ALL {
        let quiet = quiet_parts(&command(&providers([]), name));
        assert!(!quiet.is_empty(), "{name}");
        off.push(format!("── {name} ──\n{}", quiet.join("\n")));
        let command_line = CommandLine::Preset {
            preset,
            program: None,
            model: None,
            permissions: Permissions::Project,
            telemetry: Telemetry::On,
        };
        let entry = ProviderConfig { command_line, ..ProviderConfig::of_preset(preset) };
        assert_eq!(quiet_parts(&command(&providers([("on", entry)]), "on")), [""; 0], "{name}");
    }
    insta::assert_snapshot!("telemetry_off", off.join("\n\n"));
}

#[test]
fn the_entrys_environment_goes_over_what_turns_telemetry_off() {
    let given = BTreeMap::from([("QWEN_USAGE_STATISTICS_ENABLED".to_owned(), Secret::new("true"))]);
    let entry = ProviderConfig { environment: given, ..ProviderConfig::of_preset(Preset::Qwen) };
    let command = command(&providers([("qwen", entry)]), "qwen");
    assert_eq!(variable(&command, "QWEN_USAGE_STATISTICS_ENABLED"), Some("true"));
}

/// Returns the folder of gemini's own files, and the kind of login that its settings name.
#[test]
fn gemini_keeps_the_login_of_its_user() {
    let check = |variables: &[(&str, &str)], folder: &str, login: &str| {
        let environment = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let files = command(&Providers { environment, ..providers([]) }, "gemini").files;
        let content = |name: &str| {
            files.iter().find(|file| file.path.ends_with(name)).map(|file| file.content.clone())
        };
        let link = FileContent::Link(PathBuf::from(folder).join("oauth_creds.json"));
        assert_eq!(content("oauth_creds.json"), Some(link));
        let Some(FileContent::Text(settings)) = content("settings.json") else {
            panic!("no settings in {files:?}")
        };
        let settings: serde_json::Value = serde_json::from_str(&settings).expect("JSON");
        assert_eq!(settings["security"]["auth"]["selectedType"], login);
    };
    let home = ("HOME", "/home/dev");
    let key = ("GEMINI_API_KEY", "a-key");
    check(&[home], "/home/dev/.gemini", "oauth-personal");
    check(&[home, ("GEMINI_API_KEY", "")], "/home/dev/.gemini", "oauth-personal");
    check(&[home, key], "/home/dev/.gemini", "gemini-api-key");
    check(&[home, key, ("GOOGLE_GENAI_USE_VERTEXAI", "true")], "/home/dev/.gemini", "vertex-ai");
    check(&[home, key, ("GOOGLE_GENAI_USE_GCA", "true")], "/home/dev/.gemini", "oauth-personal");
    check(&[home, ("GEMINI_CLI_HOME", "/srv/agents")], "/srv/agents/.gemini", "oauth-personal");
}

/// The settings that gemini gets for a launch.
fn gemini_settings(command: &CommandSpec) -> serde_json::Value {
    let file =
        command.files.iter().find(|file| file.path.ends_with("settings.json")).expect("a file");
    let FileContent::Text(settings) = &file.content else { panic!("no settings in {file:?}") };
    serde_json::from_str(settings).expect("JSON")
}

#[test]
fn gemini_lets_an_agent_repeat_a_call_as_often_as_it_waits() {
    let settings = gemini_settings(&command(&providers([]), "gemini"));
    assert_eq!(settings["model"]["disableLoopDetection"], true);
}

/// `--skip-trust` would come too late: gemini has read the settings of the project by then, and
/// left them out.
#[test]
fn gemini_trusts_its_project_before_it_reads_settings() {
    let command = self::command(&providers([]), "gemini");
    assert_eq!(variable(&command, "GEMINI_CLI_TRUST_WORKSPACE"), Some("true"));
    let given = BTreeMap::from([("GEMINI_CLI_TRUST_WORKSPACE".to_owned(), Secret::new("false"))]);
    let entry = ProviderConfig { environment: given, ..ProviderConfig::of_preset(Preset::Gemini) };
    let command = self::command(&providers([("gemini", entry)]), "gemini");
    assert_eq!(variable(&command, "GEMINI_CLI_TRUST_WORKSPACE"), Some("false"));
    assert!(
        !command.arguments.iter().any(|argument| argument == "--skip-trust"),
        "{:?}",
        command.arguments
    );
}

#[test]
fn paths_with_anything_in_them_are_quoted() {
    let path = r#"/a b/"quoted"\'é"#;
    let providers = Providers { mcp_socket: Some(PathBuf::from(path)), ..providers([]) };
    let claude = command(&providers, "claude").arguments;
    let config =
        claude.iter().find(|argument| argument.starts_with('{')).expect("the MCP configuration");
    let config: serde_json::Value = serde_json::from_str(config).expect("JSON");
    assert_eq!(config["mcpServers"]["coordinator"]["env"]["COORDINATOR_MCP_SOCKET"], path);
    let codex = command(&providers, "codex").arguments;
    assert!(
        codex.iter().any(|argument| argument.contains(r#"="/a b/\"quoted\"\\'é"}"#)),
        "{codex:?}"
    );
}

#[test]
fn the_login_of_a_preset_is_kept_out_of_its_output() {
    let redacted = |ai_type| {
        let secrets = command(&providers([]), ai_type).redact;
        secrets.iter().map(|secret| secret.reveal().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(redacted("claude"), ["tkt_secret", "sk-ant-login"]);
    assert_eq!(redacted("codex"), ["tkt_secret", "sk-login"]);
    assert_eq!(redacted("gemini"), ["tkt_secret", "gemini-login"]);
    assert_eq!(redacted("qwen"), ["tkt_secret", "sk-login"]);
    assert_eq!(redacted("opencode"), ["tkt_secret", "sk-ant-login", "gemini-login", "sk-login"]);
    assert_eq!(redacted("copilot"), ["tkt_secret", "gh-login"]);
}

#[test]
fn a_preset_needs_an_address() {
    let providers = Providers { mcp_socket: None, ..providers([]) };
    let error = providers.command(&request("claude")).expect_err("no address");
    assert_eq!(
        error.to_string(),
        "provider `claude` needs the server's socket or URL, and neither is known"
    );
}

#[test]
fn nobody_is_started_by_what_waits_for_a_restart_nor_by_the_default_in_its_place() {
    let entry = ProviderConfig { waits_for_restart: true, ..own("a", &[]) };
    let error = providers([("a", entry)]).command(&request("a")).expect_err("it waits");
    assert!(error.to_string().contains("provider `a` is for another user"), "{error}");
}

// ── Templates ──

#[test]
fn templates_are_replaced_in_arguments_and_environment() {
    let arguments = [
        "{bridge} mcp",
        "{mcp_socket}",
        "{agent_id}@{project_id}",
        "{working_directory}/{launch_id}",
        "{x}",
    ];
    let environment = BTreeMap::from([("WHERE".to_owned(), Secret::new("unix:{mcp_socket}"))]);
    let command =
        command(&providers([("a", ProviderConfig { environment, ..own("a", &arguments) })]), "a");
    let expected = [
        "/bin/agent-coordinator mcp",
        "/run/mcp.sock",
        "agt_x@prj_a",
        "/proj_a/lch_1",
        "{x}",
        "-p",
    ];
    assert_eq!(command.arguments[..6], expected);
    assert_eq!(variable(&command, "WHERE"), Some("unix:/run/mcp.sock"));
}

#[test]
fn a_prompt_among_the_arguments_gets_no_other_way() {
    let command =
        command(&providers([("a", own("a", &["run", "--prompt={prompt}", "--last"]))]), "a");
    assert_eq!(command.arguments.len(), 3);
    assert!(command.arguments[1].starts_with("--prompt=\nAgent ID: agt_x"));
    assert!(command.stdin.is_none());
}

#[test]
fn an_address_that_the_server_does_not_have_is_named() {
    let providers = providers([("a", own("a", &["{mcp_url}"]))]);
    let error = providers.command(&request("a")).expect_err("no URL");
    assert_eq!(
        error.to_string(),
        "provider `a` uses {mcp_url}, but the server is not reached that way"
    );
    let providers = Providers { mcp_url: Some("http://h/mcp".to_owned()), ..providers };
    let command = command(&providers, "a");
    assert_eq!(command.arguments[0], "http://h/mcp");
    assert_eq!(variable(&command, "COORDINATOR_MCP_URL"), Some("http://h/mcp"));
}

#[test]
fn a_provider_that_can_not_do_without_http_is_known() {
    let entries = [
        ("url", own("a", &["{mcp_url}"])),
        ("socket", own("a", &["{mcp_socket}"])),
        ("codex", ProviderConfig::of_preset(Preset::Codex)),
    ];
    let providers = providers(entries);
    let need = |providers: &Providers| {
        ["url", "socket", "codex", "gemini"].map(|name| providers.http_need(name))
    };
    assert_eq!(need(&providers), [Some(HttpNeed::Entry), None, None, None]);
    let remote =
        Providers { mcp_socket: None, mcp_url: Some("http://h/mcp".to_owned()), ..providers };
    assert_eq!(
        need(&remote),
        [Some(HttpNeed::Entry), None, Some(HttpNeed::Preset), Some(HttpNeed::Preset)]
    );
}

#[test]
fn secrets_of_the_configuration_are_kept_out_of_the_output() {
    let providers = Providers {
        redacted: vec![Secret::new("a webhook secret")],
        ..providers([("a", own("a", &[]))])
    };
    let secrets = command(&providers, "a").redact;
    assert_eq!(
        secrets.iter().map(Secret::reveal).collect::<Vec<_>>(),
        ["tkt_secret", "a webhook secret"]
    );
}

#[test]
fn a_short_passkey_takes_no_usual_variable_away() {
    let mut providers = providers([("a", own("a", &[]))]);
    providers.environment.insert("HOME".to_owned(), "/home/developer".to_owned());
    providers.environment.insert("TZ".to_owned(), "correct-horse-battery".to_owned());
    providers.withheld = ["developer", "correct-horse-battery"].map(Secret::new).into();
    let command = command(&providers, "a");
    assert_eq!(variable(&command, "HOME"), Some("/home/developer"));
    assert_eq!(variable(&command, "TZ"), None);
}
