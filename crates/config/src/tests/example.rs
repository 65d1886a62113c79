//! The example configuration that is shipped.

use super::*;

const EXAMPLE: &str = include_str!("../../../../config/coordinator_config.yaml");

/// The example with all its settings enabled. A `#` right before a key, a brace or a bracket hides
/// a setting.
fn example_with_all_settings() -> String {
    let live = |line: &str| {
        let text = line.trim_start();
        match text.strip_prefix('#') {
            Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => {
                format!("{}{setting}\n", &line[..line.len() - text.len()])
            }
            _ => format!("{line}\n"),
        }
    };
    EXAMPLE.lines().map(live).collect()
}

#[test]
fn the_example_is_valid_as_it_is() {
    assert_eq!(valid(EXAMPLE), defaults());
}

#[test]
fn the_example_shows_every_default() {
    let config = valid(&example_with_all_settings());
    // These have no default that could be written down.
    let (preset, model) = (Preset::Claude, Some("opus".to_owned()));
    let command_line = CommandLine::Preset {
        preset,
        program: None,
        model,
        permissions: Permissions::Project,
        telemetry: Telemetry::Off,
    };
    let passkey = Secret::new("dev-hunter2");
    let expected = Config {
        providers: [
            (
                "claude".to_owned(),
                ProviderConfig { command_line, ..ProviderConfig::of_preset(preset) },
            ),
            ("my_agent".to_owned(), ProviderConfig::new("my-agent")),
        ]
        .into(),
        agents: [("agt_developer".parse().expect("an id"), AgentCredentials { passkey })].into(),
        checks: vec![NamedCheck {
            name: "tests".to_owned(),
            keys: CheckKeys {
                command: vec!["cargo".to_owned(), "test".to_owned()],
                protected: vec!["ci/**".to_owned()],
                ..CheckKeys::default()
            },
        }],
        forges: forge::of_the_example(),
        // The address is the default one, but written down.
        http: Http { listen: Listen { is_default: false, ..Listen::default() }, ..Http::default() },
        secret_variables: config.secret_variables.clone(),
        ..defaults()
    };
    assert_eq!(config, expected);
}

#[test]
fn the_example_has_every_key_and_no_other() {
    let text = example_with_all_settings();
    let source = Source::new("example", "/", &text);
    let environment = environment();
    let reader = Reader::new(&source, &environment);
    reader.read(Config::read).expect("a valid example");
    let mut shown = BTreeSet::new();
    list_keys(&tree::parse(&source).expect("a valid example"), "", &mut shown);
    assert_eq!(shown, reader.known_keys());
}

/// Mappings whose keys are names that people choose.
pub(super) const NAMED: [&str; 5] =
    ["ai_providers", "agents", "checks", "github.repositories", "gitlab.projects"];

/// The keys of all values, as [`Reader::known_keys`] names them.
fn list_keys(node: &tree::Node, path: &str, keys: &mut BTreeSet<String>) {
    let tree::Value::Mapping(entries) = &node.value else {
        keys.insert(path.to_owned());
        return;
    };
    if entries.is_empty() {
        keys.insert(path.to_owned());
    }
    for entry in entries {
        let key = if NAMED.contains(&path) { "*" } else { &entry.key };
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        list_keys(&entry.value, &path, keys);
    }
}
