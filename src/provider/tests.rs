//! Whole command lines: what an agent is started with.

use super::*;
use crate::config::Permissions;
use crate::domain::{Language, Purpose};

fn providers(entries: impl IntoIterator<Item = (&'static str, ProviderConfig)>) -> Providers {
    let environment = [
        ("PATH", "/bin"),
        ("ANTHROPIC_API_KEY", "sk-ant-login"),
        ("ANTHROPIC_BASE_URL", "http://gateway"),
        ("OPENAI_API_KEY", "sk-login"),
        ("DEV_PASSKEY", "somebody's secret"),
    ];
    Providers {
        entries: entries.into_iter().map(|(name, provider)| (name.to_owned(), provider)).collect(),
        guidance: Guidance::new(Language::English),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        mcp_socket: Some(PathBuf::from("/run/mcp.sock")),
        mcp_url: None,
        state_dir: PathBuf::from("/state"),
        program: PathBuf::from("/bin/agent-coordinator"),
    }
}

fn request(ai_type: &str) -> LaunchRequest {
    LaunchRequest {
        launch: "lch_1".parse().expect("an id"),
        key: InstanceKey::new("agt_x".parse().expect("an id"), "prj_a".parse().expect("an id"), Purpose::Task),
        ai_type: ai_type.to_owned(),
        working_directory: PathBuf::from("/proj_a"),
        passkey: Secret::new("tkt_secret"),
    }
}

/// The command, in whose arguments no secret may be.
#[track_caller]
fn command(providers: &Providers, ai_type: &str) -> CommandSpec {
    let command = providers.command(&request(ai_type)).expect("a command");
    for argument in &command.arguments {
        assert!(!["tkt_secret", "login"].iter().any(|secret| argument.contains(secret)), "{argument}");
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

/// A whole command, a word per line.
fn shown(command: &CommandSpec) -> String {
    let mut lines = vec![command.program.clone()];
    lines.extend(command.arguments.iter().map(|argument| format!("  {argument}")));
    let prompt = command.stdin.as_ref().map(Secret::reveal);
    assert!(prompt.is_none_or(|prompt| prompt.contains("tkt_secret")), "{prompt:?}");
    lines.push(format!("< {}", if prompt.is_some() { "the prompt" } else { "nothing" }));
    lines.extend(command.environment.iter().map(|(name, value)| format!("{name}={}", value.reveal())));
    lines.join("\n")
}

// ── Entries in the seed's shape ──

#[test]
fn an_entry_with_the_seeds_keys_is_started_in_the_seeds_shape() {
    // Also where there is a preset of its name.
    for name in ["claude", "gpt"] {
        let command = command(&providers([(name, own("claude", &["--dangerously-skip-permissions"]))]), name);
        assert_eq!(command.program, "claude");
        assert_eq!(command.arguments[..2], ["--dangerously-skip-permissions", "-p"]);
        assert!(command.arguments[2].contains("authenticate("));
        assert_eq!(command.arguments.len(), 3);
        assert!(command.stdin.is_none());
        assert_eq!(variable(&command, "ANTHROPIC_API_KEY"), None);
    }
}

#[test]
fn passkey_in_prompt_restores_the_seeds_text() {
    let program = "a".to_owned();
    let command_line = CommandLine::Own { program, prompt: PromptVia::Argument, passkey_in_prompt: true };
    let providers = providers([("a", ProviderConfig { command_line, ..own("a", &[]) })]);
    let command = providers.command(&request("a")).expect("a command");
    assert!(command.arguments[1].contains(r#"authenticate(agent_id="agt_x", passkey="tkt_secret""#));
}

#[test]
fn the_prompt_on_standard_input_holds_the_passkey() {
    let program = "a".to_owned();
    let command_line = CommandLine::Own { program, prompt: PromptVia::Stdin, passkey_in_prompt: false };
    let command = command(&providers([("a", ProviderConfig { command_line, ..own("a", &["-x"]) })]), "a");
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

#[test]
fn a_preset_without_an_entry() {
    insta::assert_snapshot!("claude", shown(&command(&providers([]), "claude")));
    insta::assert_snapshot!("codex", shown(&command(&providers([]), "codex")));
}

#[test]
fn a_preset_where_the_server_has_only_a_url() {
    let url = Some("http://127.0.0.1:7420/mcp".to_owned());
    let providers = Providers { mcp_socket: None, mcp_url: url, ..providers([]) };
    insta::assert_snapshot!("claude_by_url", shown(&command(&providers, "claude")));
    insta::assert_snapshot!("codex_by_url", shown(&command(&providers, "codex")));
}

#[test]
fn a_preset_with_everything_an_entry_can_say() {
    let full = |preset| ProviderConfig {
        command_line: CommandLine::Preset {
            preset,
            program: Some("/opt/cli".to_owned()),
            model: Some("big".to_owned()),
            permissions: Permissions::Bypass,
        },
        cli_args: vec!["--name".to_owned(), "{agent_id}".to_owned()],
        environment: BTreeMap::from([
            ("DISABLE_AUTOUPDATER".to_owned(), Secret::new("0")),
            ("OPENAI_API_KEY".to_owned(), Secret::new("of the entry")),
        ]),
        ..ProviderConfig::of_preset(preset)
    };
    let providers = providers([("a", full(Preset::Claude)), ("b", full(Preset::Codex))]);
    insta::assert_snapshot!("claude_in_full", shown(&command(&providers, "a")));
    insta::assert_snapshot!("codex_in_full", shown(&command(&providers, "b")));
}

#[test]
fn paths_with_anything_in_them_are_quoted() {
    let path = r#"/a b/"quoted"\'é"#;
    let providers = Providers { mcp_socket: Some(PathBuf::from(path)), ..providers([]) };
    let claude = command(&providers, "claude").arguments;
    let config = claude.iter().find(|argument| argument.starts_with('{')).expect("the MCP configuration");
    let config: serde_json::Value = serde_json::from_str(config).expect("JSON");
    assert_eq!(config["mcpServers"]["coordinator"]["env"]["COORDINATOR_MCP_SOCKET"], path);
    let codex = command(&providers, "codex").arguments;
    assert!(codex.iter().any(|argument| argument.contains(r#"="/a b/\"quoted\"\\'é"}"#)), "{codex:?}");
}

#[test]
fn the_login_of_a_preset_is_kept_out_of_its_output() {
    let redacted = |ai_type| {
        let secrets = command(&providers([]), ai_type).redact;
        secrets.iter().map(|secret| secret.reveal().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(redacted("claude"), ["tkt_secret", "sk-ant-login"]);
    assert_eq!(redacted("codex"), ["tkt_secret", "sk-login"]);
}

#[test]
fn a_preset_needs_an_address() {
    let providers = Providers { mcp_socket: None, ..providers([]) };
    let error = providers.command(&request("claude")).expect_err("no address");
    assert_eq!(error.to_string(), "provider `claude` needs the server's socket or URL, and neither is known");
}

// ── Templates ──

#[test]
fn templates_are_replaced_in_arguments_and_environment() {
    let arguments =
        ["{bridge} mcp", "{mcp_socket}", "{agent_id}@{project_id}", "{working_directory}/{launch_id}", "{x}"];
    let environment = BTreeMap::from([("WHERE".to_owned(), Secret::new("unix:{mcp_socket}"))]);
    let command = command(&providers([("a", ProviderConfig { environment, ..own("a", &arguments) })]), "a");
    let expected = ["/bin/agent-coordinator mcp", "/run/mcp.sock", "agt_x@prj_a", "/proj_a/lch_1", "{x}", "-p"];
    assert_eq!(command.arguments[..6], expected);
    assert_eq!(variable(&command, "WHERE"), Some("unix:/run/mcp.sock"));
}

#[test]
fn a_prompt_among_the_arguments_gets_no_other_way() {
    let command = command(&providers([("a", own("a", &["run", "--prompt={prompt}", "--last"]))]), "a");
    assert_eq!(command.arguments.len(), 3);
    assert!(command.arguments[1].starts_with("--prompt=\nAgent ID: agt_x"));
    assert!(command.stdin.is_none());
}

#[test]
fn an_address_that_the_server_does_not_have_is_named() {
    let providers = providers([("a", own("a", &["{mcp_url}"]))]);
    let error = providers.command(&request("a")).expect_err("no URL");
    assert_eq!(error.to_string(), "provider `a` uses {mcp_url}, but the server is not reached that way");
    let providers = Providers { mcp_url: Some("http://h/mcp".to_owned()), ..providers };
    let command = command(&providers, "a");
    assert_eq!(command.arguments[0], "http://h/mcp");
    assert_eq!(variable(&command, "COORDINATOR_MCP_URL"), Some("http://h/mcp"));
}
