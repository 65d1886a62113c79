//! Whole files: what people write, what they get, and what they are told.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use domain::plan::silence::SilenceLimits;
use domain::workspace::{LfsFiles, MergeHooks, PublishResults};
use domain::{Language, Secret, ServerAddress};

mod any_text;
mod conversations;
mod documents;
mod example;
mod files;
mod forge;
mod live;
mod secrets;

/// A made-up machine: the tests never depend on the real environment.
fn environment() -> Environment {
    Environment::new(
        "/work",
        [
            ("HOME", "/home/me"),
            ("DEV_PASSKEY", "dev-hunter2"),
            ("REVIEWER_PASSKEY", "rev-hunter2"),
            ("INFRA_PASSKEY", "infra-hunter2"),
            ("BAD_NUMBER", "hunter2"),
            ("GITHUB_TOKEN", "gh-hunter2"),
            ("GITLAB_TOKEN", "gl-hunter2"),
            ("FORGE_WEBHOOK_SECRET", "hook-hunter2"),
        ],
    )
}

fn parse(text: &str) -> Result<Config, String> {
    read(&Source::new("coordinator_config.yaml", "/etc/ac", text), &environment())
        .map(|(config, _)| config)
        .map_err(|report| report.to_string())
}

#[track_caller]
fn valid(text: &str) -> Config {
    parse(text).unwrap_or_else(|report| panic!("{report}"))
}

/// The report about `text`, in which no value of the environment and no secret may stand.
#[track_caller]
fn report(text: &str) -> String {
    let report = parse(text).expect_err("a file with problems");
    assert!(!report.contains("hunter2"), "{report}");
    report
}

fn defaults() -> Config {
    Config::with_state_dir("/home/me/.local/state/agent-coordinator")
}

/// A configuration of the older system, unchanged (R-004-24).
const SEED: &str = include_str!("../../../tests/fixtures/seed_004.yaml");

#[test]
fn a_gibibyte_of_disk_is_kept_free_by_default() {
    let read = |text: &str| valid(text).limits.min_free_disk;
    assert_eq!(read(""), Some(1 << 30));
    assert_eq!(read("limits: { min_free_disk: null }"), Some(1 << 30));
    assert_eq!(read("limits: { min_free_disk: off }"), None);
    assert_eq!(read("limits: { min_free_disk: 2 GiB }"), Some(2 << 30));
    assert_eq!(valid("limits: { min_free_memory: off }").limits.min_free_memory, None);
}

#[test]
fn only_streams_may_not_be_silent_by_default() {
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    let read = |text: &str| valid(text).run.silence_timeout;
    assert_eq!(read(""), SilenceLimits { streams: minutes(30), others: None });
    assert_eq!(read("run: { silence_timeout: auto }"), read(""));
    assert_eq!(read("run: { silence_timeout: off }"), SilenceLimits::all(None));
    assert_eq!(read("run: { silence_timeout: 5m }"), SilenceLimits::all(minutes(5)));
}

#[test]
fn the_seeds_file_means_what_the_seed_says() {
    let config = valid(SEED);
    let passkeys: Vec<_> =
        config.agents.iter().map(|(id, agent)| (id.as_str(), agent.passkey.reveal())).collect();
    assert_eq!(
        passkeys,
        [
            ("agt_developer", "dev-hunter2"),
            ("agt_infra", "infra-hunter2"),
            ("agt_reviewer", "rev-hunter2")
        ]
    );
    let claude = ProviderConfig {
        cli_args: vec!["--dangerously-skip-permissions".to_owned()],
        ..ProviderConfig::new("claude")
    };
    assert_eq!(config.providers["claude"], claude);
    let arguments = ["--project", "my-project"].map(str::to_owned).to_vec();
    assert_eq!(
        config.providers["gemini"],
        ProviderConfig { cli_args: arguments, ..ProviderConfig::new("gemini-cli") }
    );
    assert_eq!(config.providers["codex"], ProviderConfig::new("codex"));
    let socket = PathBuf::from("/home/me/Library/Application Support/AIAgentPM/mcp.sock");
    let expected = Config {
        paths: Paths {
            mcp_socket_path: socket.clone(),
            server: ServerAddress::Socket(socket),
            ..defaults().paths
        },
        providers: config.providers.clone(),
        agents: config.agents.clone(),
        secret_variables: ["DEV_PASSKEY", "INFRA_PASSKEY", "REVIEWER_PASSKEY"]
            .map(str::to_owned)
            .into(),
        ..defaults()
    };
    assert_eq!(config, expected);
}

#[test]
fn nothing_is_all_defaults() {
    for text in [
        "",
        "\n",
        "# only a comment\n",
        "---\n",
        "{}",
        "agents:\nsession:\n",
        "\u{feff}\r\n# x\r\n",
    ] {
        assert_eq!(valid(text), defaults(), "{text:?}");
    }
}

#[test]
fn the_server_of_supervise_is_named_by_its_address_or_by_its_socket() {
    assert!(defaults().paths.has_default_server());
    assert!(valid("state_dir: /var/lib/other").paths.has_default_server());
    assert!(!valid("mcp_socket_path: /run/spec/mcp.sock").paths.has_default_server());
    assert!(!valid("server: https://coordinator.example/mcp").paths.has_default_server());
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    assert_eq!(valid(&format!("\u{feff}{}", SEED.replace('\n', "\r\n"))), valid(SEED));
}

/// Each setting with another value than its default.
const EVERY_SETTING: &str = r#"
polling_interval: 250ms
max_concurrent: 12
language: ja
state_dir: state
mcp_socket_path: /run/ac/mcp.sock
server: https://coordinator.example/mcp
store: { url: "postgres://ac@localhost/ac", password: "${DB_PASSWORD:-hunter2}" }
http: { listen: "[::]:80", allowed_hosts: [coordinator.example, "10.0.0.7:80"], public_url: "https://a.example", agents: off }
coordinator_token: ${DEV_PASSKEY}
manifest: manifest.yaml
ai_providers:
  local:
    cli_command: ./agent.sh
    cli_args: [--turns, 10, "~/x", "$HOME", "a$$b"]
    prompt: stdin
    environment: { A: 007, B: "${DEV_PASSKEY}" }
    pass_environment: [API_KEY, MY_*]
    passkey_in_prompt: true
    wrap: [./jail.sh, "{working_directory}"]
    run_as: worker
    begin_args: [--session, "{conversation}"]
    resume_args: [--resume, "{conversation}"]
  fast: { preset: claude, cli_command: ~/bin/claude, model: "${MODEL:-haiku}", permissions: bypass, telemetry: on, continue: off, cli_args: [--bare] }
  codex: { preset: codex }
agents: { agt_a: { passkey: 0123 } }
checks: { tests: { command: [make, check], timeout: 5m, clean: true, protected: ['ci/**'], projects: [prj_a] } }
checks_rounds: 3
session: { default_timeout: 1h, max_timeout: 2h, cleanup_interval: 1m }
start: { timeout: 1.5, aging: 2h, clone_wait: 7s, limit: 3, interval: 1h }
stop: { timeout: 0, leak_grace: 1s }
run: { linger: 5, max_runtime: 3h, silence_timeout: 20m }
limits:
  { per_project: 4, per_agent: 2, per_provider: 6, chat_reserve: 1, min_free_disk: 2 GiB, min_free_memory: 64 KiB,
    memory_per_agent: 2 GiB, processes_per_agent: 300, tasks_per_launch: 20, subtasks_per_task: 10,
    messages_per_launch: 30 }
notice: { grace: 1m }
chat: { poll_hold: 0, idle_timeout: 1h }
backoff: { initial: 10ms, max: 1s }
parking: { initial: 1m, max: 2h }
continue: { enabled: off, max_age: 2days }
shutdown: { sigterm: keep, sigint: stop }
log: { level: "warn,agent_coordinator=debug", format: json, file: ~/ac.log }
output: { max_file: 1 MiB, files: 2 }
workspace: { root: /srv/workspaces, base: develop, branch: "work/{agent_id}-{task_id}", submodules: true, lfs: pointers, publish: branch, merge_hooks: run, merge_hooks_in: { prj_a: off, prj_b: ask }, keep: 2days, shared_at_once: 3, snapshots: false, ignored_max: 1 MiB, max_disk: 3 GiB, rebuildable: [target], hooks: { after_create: [npm, ci], before_run: [make, up], after_run: [make, down], before_remove: [make, clean], timeout: 2min }, limits: { git_memory: 2 GiB, git_time: 10min, files: 5000, objects: 6000 } }
retention: { history: 10days, events: 2h, max_events: 5000, chats: 2days, output: 3days, output_size: 1 GiB }
forge: { poll_interval: 5s, write_interval: 2s, writes_per_hour: 99, write_settle: 1m 30s, dry_run: true, claims_from: [rival, Other], webhook: { path: /hooks/x, secret: "${FORGE_WEBHOOK_SECRET}" } }
github:
  { base_url: "https://Ghe.example/api/v3/", token: "${GITHUB_TOKEN}", bot_name: coder, bot_label: "🤖", processing_label: b/p,
    done_label: b/d, paused_label: b/z, stopped_label: b/s, failed_label: b/f, blocked_label: b/b,
    repositories: { acme/shop: { project_id: prj_a, agent: agt_a } } }
gitlab:
  { base_url: "http://localhost:8080/gitlab", token_file: gitlab_token, bot_name: coder, bot_label: a, processing_label: b,
    done_label: c, paused_label: d, stopped_label: e, failed_label: f, blocked_label: g,
    projects: { a/b/c: { project_id: prj_b, agents: [agt_b, agt_a] }, 42: { project_id: prj_b, agent: agt_a } } }
task_stop: { enabled: false, check_interval: 4 }
pause_resume: { enabled: false, signal_file: ./stop, check_interval: 5, paused_task_expiry_days: 7 }
"#;

#[test]
fn every_setting_arrives() {
    let config = valid(EVERY_SETTING);
    let local = &config.providers["local"];
    let program = "/etc/ac/agent.sh".to_owned();
    let own = CommandLine::Own { program, prompt: PromptVia::Stdin, passkey_in_prompt: true };
    assert_eq!(local.command_line, own);
    assert_eq!(local.cli_args, ["--turns", "10", "/home/me/x", "$HOME", "a$b"]);
    assert_eq!(local.environment["A"].reveal(), "007");
    assert_eq!(local.wrap, ["/etc/ac/jail.sh", "{working_directory}"]);
    assert_eq!(local.run_as.as_deref(), Some("worker"));
    assert_eq!(local.begin_args, ["--session", "{conversation}"]);
    assert_eq!(local.resume_args, ["--resume", "{conversation}"]);
    assert!(local.continues && !config.providers["fast"].continues);
    assert_eq!(local.environment["B"].reveal(), "dev-hunter2");
    for (name, is_passed) in
        [("PATH", true), ("LC_ALL", true), ("API_KEY", true), ("MY_X", true), ("OTHER", false)]
    {
        assert_eq!(local.pass_environment.passes(name), is_passed, "{name}");
    }
    let fast = CommandLine::Preset {
        preset: Preset::Claude,
        program: Some("/home/me/bin/claude".to_owned()),
        model: Some("haiku".to_owned()),
        permissions: Permissions::Bypass,
        telemetry: Telemetry::On,
    };
    assert_eq!(config.providers["fast"].command_line, fast);
    assert_eq!(config.providers["fast"].cli_args, ["--bare"]);
    assert_eq!(config.providers["codex"], ProviderConfig::of_preset(Preset::Codex));
    assert_eq!(config.agents.values().next().expect("one agent").passkey.reveal(), "0123");
    let (seconds, hour) = (Duration::from_secs, Duration::from_hours(1));
    let expected = Config {
        workspace: Workspace {
            root: Some(PathBuf::from("/srv/workspaces")),
            base: Some("develop".to_owned()),
            branch: "work/{agent_id}-{task_id}".to_owned(),
            submodules: true,
            lfs: LfsFiles::Pointers,
            publish: PublishResults::Branch,
            merge_hooks: MergeHooks::Run,
            merge_hooks_in: [("prj_a", MergeHooks::Off), ("prj_b", MergeHooks::Ask)]
                .map(|(id, hooks)| (id.parse().unwrap(), hooks))
                .into(),
            keep: Some(Duration::from_hours(48)),
            shared_at_once: Some(3),
            snapshots: false,
            ignored_max: 1 << 20,
            max_disk: 3 << 30,
            rebuildable: vec!["target".to_owned()],
        },
        hooks: WorkspaceHooks {
            after_create: Some(vec!["npm".to_owned(), "ci".to_owned()]),
            before_run: Some(vec!["make".to_owned(), "up".to_owned()]),
            after_run: Some(vec!["make".to_owned(), "down".to_owned()]),
            before_remove: Some(vec!["make".to_owned(), "clean".to_owned()]),
            timeout: Duration::from_mins(2),
        },
        git_limits: GitLimits {
            git_memory: 2 << 30,
            git_time: Duration::from_mins(10),
            files: 5000,
            objects: 6000,
        },
        general: General {
            polling_interval: Duration::from_millis(250),
            max_concurrent: 12,
            language: Language::Japanese,
            checks_rounds: 3,
            coordinator_token: Some(Secret::new("dev-hunter2")),
            manifest: Some(PathBuf::from("/etc/ac/manifest.yaml")),
        },
        paths: Paths {
            state_dir: PathBuf::from("/etc/ac/state"),
            mcp_socket_path: PathBuf::from("/run/ac/mcp.sock"),
            server: ServerAddress::Url("https://coordinator.example/mcp".to_owned()),
        },
        store: Store {
            url: StoreUrl::Postgres(Box::new("postgres://ac@localhost/ac".parse().unwrap())),
            password: Some(Secret::new("hunter2")),
            password_file: None,
        },
        http: Http {
            listen: Listen {
                address: Some("[::]:80".parse().expect("an address")),
                is_default: false,
            },
            allowed_hosts: ["coordinator.example", "10.0.0.7:80"]
                .map(|host| host.parse().expect("a host"))
                .into(),
            public_url: Some("https://a.example".parse().expect("an origin")),
            agents: false,
        },
        providers: config.providers.clone(),
        agents: config.agents.clone(),
        checks: vec![NamedCheck {
            name: "tests".to_owned(),
            keys: CheckKeys {
                command: vec!["make".to_owned(), "check".to_owned()],
                timeout: seconds(300),
                clean: true,
                protected: vec!["ci/**".to_owned()],
                projects: vec!["prj_a".parse().expect("an id")],
            },
        }],
        forges: forge::every_setting(),
        session: Session {
            default_timeout: hour,
            max_timeout: 2 * hour,
            cleanup_interval: seconds(60),
        },
        start: Start {
            timeout: Duration::from_millis(1_500),
            aging: 2 * hour,
            clone_wait: seconds(7),
            limit: 3,
            interval: hour,
        },
        stop: Stop { timeout: Duration::ZERO, leak_grace: seconds(1) },
        run: RunLimits {
            linger: seconds(5),
            max_runtime: Some(3 * hour),
            silence_timeout: SilenceLimits::all(Some(seconds(1_200))),
        },
        limits: StartLimits {
            per_project: Some(4),
            per_agent: Some(2),
            per_provider: Some(6),
            chat_reserve: 1,
            min_free_disk: Some(2 << 30),
            min_free_memory: Some(1 << 16),
        },
        agent_limits: AgentLimits {
            memory_per_agent: Some(2 << 30),
            processes_per_agent: Some(300),
        },
        creation: CreationLimits {
            tasks_per_launch: 20,
            subtasks_per_task: 10,
            messages_per_launch: 30,
        },
        notice: Notice { grace: seconds(60) },
        chat: Chat { poll_hold: Duration::ZERO, idle_timeout: hour },
        backoff: Backoff { initial: Duration::from_millis(10), max: seconds(1) },
        parking: Parking { initial: seconds(60), max: 2 * hour },
        conversations: ContinueLimits { enabled: false, max_age: 48 * hour },
        shutdown: Shutdown { sigterm: AtShutdown::Keep, sigint: AtShutdown::Stop },
        log: LogConfig {
            level: "warn,agent_coordinator=debug".to_owned(),
            format: LogFormat::Json,
            file: Some(PathBuf::from("/home/me/ac.log")),
        },
        output: Output { max_file: 1024 * 1024, files: 2 },
        retention: Retention {
            history: 240 * hour,
            events: 2 * hour,
            max_events: 5_000,
            chats: Some(48 * hour),
            output: 72 * hour,
            output_size: 1 << 30,
        },
        secret_variables: config.secret_variables.clone(),
    };
    assert_eq!(config, expected);
}

#[test]
fn a_star_passes_the_whole_environment() {
    let config = valid("ai_providers: { a: { cli_command: a, pass_environment: ['*'] } }");
    assert!(config.providers["a"].pass_environment.passes("ANYTHING"));
}

#[test]
fn one_report_names_every_problem() {
    insta::assert_snapshot!(report(
        r#"# Everything that can be wrong.
polling_intervall: 10
max_concurrent: 0
max_concurrent: 5
language: english
ai_providers:
  claude:
    cli_args: "--dangerously-skip-permissions"
    prompt: standard-input
    passkey_in_prompt: 1
  codex: codex
agents:
  agt_developer:
    passkey: ${NOT_SET}
  agt_reviewer:
    pass_key: hunter2
  agt_typed: hunter2
  "agt/infra":
    passkey: "${UNSET:?ask the infra team}"
session:
  default_timeout: 2 fortnights
  max_timeout: 10
  cleanup_interval: [300]
store:
  url: postgres://me:hunter2@db/ac
start: 120
log:
  level: inof
  format: yaml
shutdown:
  sigterm: kepe
output:
  max_file: ${BAD_NUMBER}
manifest: ${}
unheard_of: "\e[31m"
"#
    ));
}

#[test]
fn a_key_of_an_earlier_version_is_explained() {
    for (file, expected) in [
        (
            "retention: { events: 2h, deleted: 5m }",
            ["coordinator_config.yaml:1:26: `retention.deleted` was removed", "archived"],
        ),
        (
            "workspace: { keep: 2h, paths: [src] }",
            ["coordinator_config.yaml:1:24: `workspace.paths` was removed", "after_create"],
        ),
    ] {
        let report = report(file);
        for words in expected {
            assert!(report.contains(words), "{words}: {report}");
        }
        assert!(!report.contains("unknown key"), "{report}");
    }
}

#[test]
fn hooks_of_single_projects_come_before_those_of_all() {
    let config = valid("workspace: { merge_hooks: off, merge_hooks_in: { prj_a: run } }");
    let of = |id: &str| config.workspace.merge_hooks_of(&id.parse().unwrap());
    assert_eq!((of("prj_a"), of("prj_b")), (MergeHooks::Run, MergeHooks::Off));
    let report = report("workspace: { merge_hooks_in: { a b: run, prj_a: rum, prj_b: [] } }");
    for words in ["`a b`", "did you mean `run`?", "`ask`, `run` or `off`"] {
        assert!(report.contains(words), "{words}: {report}");
    }
}

#[test]
fn what_does_not_fit_a_preset_is_said() {
    insta::assert_snapshot!(report(
        "ai_providers:\n  a: { preset: cluade }\n  b: { preset: codex, prompt: stdin, passkey_in_prompt: true }\n  \
         c: { cli_command: c, model: opus, permissions: bypass, telemetry: on }\n  d: { preset: claude, cli_args: [\"{prompt}\"] }\n  \
         e: { cli_command: e, cli_args: [\"--at={mcp_sokcet}\"], environment: { AGENT: \"{agent}\" } }\n  \
         f: { preset: claude, permissions: al, modle: x }\n"
    ));
}

#[test]
fn values_from_variables_are_not_in_the_report() {
    insta::assert_snapshot!(report(
        "max_concurrent: ${BAD_NUMBER}\nstart: {timeout: \"${BAD_NUMBER}\"}\nlog: {level: \"${BAD_NUMBER}\"}\n\
         language: ${BAD_NUMBER}\nstore: {url: \"${BAD_NUMBER}\"}\n"
    ));
}

#[test]
fn secrets_in_the_file_are_masked() {
    insta::assert_snapshot!(report(
        "agents:\n  agt_a: { passkey: hunter2, passkey: hunter22 }\n  agt_b:\n    passkey: [hunter2]\n\
         ai_providers:\n  a:\n    cli_command: a\n    environment: { API: hunter2, B: \"${NOPE} hunter2\" }\n"
    ));
}

#[test]
fn a_syntax_error_stands_alone() {
    insta::assert_snapshot!(report("agents:\n  agt_a:\n    passkey: hunter2\n  - agt_b: x\n"));
}

#[test]
fn a_bare_reference_between_braces_is_explained() {
    insta::assert_snapshot!(report("agents:\n  agt_a: { passkey: ${DEV_PASSKEY} }\n"));
}

#[test]
fn the_file_must_be_a_mapping() {
    insta::assert_snapshot!(report("- polling_interval: 10\n"));
}

#[test]
fn cross_checks_name_both_sides() {
    insta::assert_snapshot!(report(&format!(
        "state_dir: /{}\nmcp_socket_path: /{}\nsession:\n  default_timeout: 25h\nbackoff:\n  initial: 2s\n  max: 1s\nlimits: {{ chat_reserve: 3 }}\nparking: {{ initial: 2h }}\n",
        "d".repeat(100),
        "é".repeat(60)
    )));
}

#[test]
fn a_listener_for_other_machines_needs_a_token_and_names() {
    insta::assert_snapshot!(
        "beyond_loopback_everywhere",
        report("http:\n  listen: 0.0.0.0:7420\n")
    );
    insta::assert_snapshot!(
        "beyond_loopback",
        report("http:\n  listen: 10.0.0.7:7420\ncoordinator_token: null\n")
    );
    insta::assert_snapshot!(
        "no_address",
        report("http: { listen: 7420, allowed_hosts: [a/b, 'http://x'] }\n")
    );
    valid("http: { listen: '10.0.0.7:7420' }\ncoordinator_token: secret\n");
    valid("http: { listen: '0.0.0.0:0', allowed_hosts: [a] }\ncoordinator_token: secret\n");
    assert_eq!(valid("http: { listen: off }\n").http.listen.address, None);
    assert_eq!(
        valid("http: { listen: 'localhost:80' }\n").http.listen.address,
        "127.0.0.1:80".parse().ok()
    );
}

#[test]
fn a_long_line_is_shown_in_part() {
    let report =
        report(&format!("ai_providers: {{ {}: {{ cli_commando: x }} }}\n", "p".repeat(900)));
    assert!(report.lines().all(|line| line.chars().count() < 400), "{report}");
    assert!(report.contains("cli_commando: x"), "{report}");
}

#[test]
fn a_long_default_path_is_explained_without_a_file() {
    let home = format!("/{}", "h".repeat(120));
    let environment = Environment::new("/nowhere", [("HOME", home.as_str())]);
    let error = load(None, &environment).expect_err("too long for a socket");
    insta::assert_snapshot!(error.to_string());
}

#[test]
fn no_agent_runs_as_the_keeper() {
    let text = format!("ai_providers:\n  mine: {{ cli_command: agent, run_as: {KEEPER} }}\n");
    let report = report(&text);
    let place = "coordinator_config.yaml:2:39: `ai_providers.mine.run_as` is not valid";
    assert!(report.contains(place) && report.contains("reserved"), "{report}");
}

#[test]
fn only_the_first_problems_are_shown_in_full() {
    use std::fmt::Write;
    let text = (0..5_000).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "key{i}: 1");
        text
    });
    let report = report(&text);
    assert!(
        report.ends_with("5000 problems in coordinator_config.yaml, the first 50 are shown"),
        "{report}"
    );
    assert!(report.len() < 100_000);
}

#[test]
fn the_state_folder_follows_the_surroundings() {
    let check = |variables: &[(&str, &str)], expected: &str| {
        let environment = Environment::new("/", variables.iter().copied());
        assert_eq!(paths::default_state_dir(&environment), PathBuf::from(expected));
    };
    check(&[("HOME", "/h")], "/h/.local/state/agent-coordinator");
    check(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")], "/x/agent-coordinator");
    check(&[("HOME", "/h"), ("XDG_STATE_HOME", "relative")], "/h/.local/state/agent-coordinator");
    check(&[("HOME", "/h"), ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")], "/var/lib/a");
    check(&[("STATE_DIRECTORY", "")], "/var/lib/agent-coordinator");
    check(&[], "/var/lib/agent-coordinator");
}

#[test]
fn a_client_finds_its_daemon_by_a_file_that_is_wrong_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("coordinator_config.yaml");
    std::fs::write(
        &file,
        "state_dir: here\nunknown: 1\nagents: { agt: { passkey: \"${UNSET}\" } }\n",
    )
    .unwrap();
    let environment = Environment::new(folder.path(), []);
    assert!(load(Some(&file), &environment).is_err());
    let paths = find_daemon(Some(&file), &environment).unwrap();
    assert_eq!(paths.control_socket(), folder.path().join("here/control.sock"));
    std::fs::write(&file, "state_dir: ${UNSET}\n").unwrap();
    assert!(find_daemon(Some(&file), &environment).is_err());
}
