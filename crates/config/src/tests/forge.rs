//! Forges: one host or many, and what can be wrong with them.

use super::*;
use domain::configuration::Applies;
use domain::forge::{ForgeKind, LabelNames, Publish};

fn labels(names: [&str; 7]) -> LabelNames {
    let [
        bot_label,
        processing_label,
        done_label,
        paused_label,
        stopped_label,
        failed_label,
        blocked_label,
    ] = names.map(str::to_owned);
    LabelNames {
        bot_label,
        processing_label,
        done_label,
        paused_label,
        stopped_label,
        failed_label,
        blocked_label,
    }
}

fn watched(name: &str, project: &str, agent: &str) -> WatchedRepository {
    let agents = agent.split(' ').map(|agent| agent.parse().expect("an id")).collect();
    let project = project.parse().expect("an id");
    WatchedRepository {
        name: name.to_owned(),
        project,
        agents,
        publish: Publish::Nothing,
        push_to_pr: false,
        publish_closes: false,
    }
}

/// Returns the settings in `EVERY_SETTING`.
pub(super) fn every_setting() -> Forges {
    let github = ForgeHost {
        kind: ForgeKind::GitHub,
        account: ForgeAccount {
            base_url: "https://ghe.example/api/v3".to_owned(),
            token: Secret::new("gh-hunter2"),
            token_file: None,
            bot_name: "coder".to_owned(),
        },
        labels: labels(["🤖", "b/p", "b/d", "b/z", "b/s", "b/f", "b/b"]),
        repositories: vec![watched("acme/shop", "prj_a", "agt_a")],
    };
    let gitlab = ForgeHost {
        kind: ForgeKind::GitLab,
        account: ForgeAccount {
            base_url: "http://localhost:8080/gitlab".to_owned(),
            token: Secret::new(""),
            token_file: Some(PathBuf::from("/etc/ac/gitlab_token")),
            bot_name: "coder".to_owned(),
        },
        labels: labels(["a", "b", "c", "d", "e", "f", "g"]),
        repositories: vec![
            watched("a/b/c", "prj_b", "agt_b agt_a"),
            watched("42", "prj_b", "agt_a"),
        ],
    };
    Forges {
        access: ForgeAccess {
            poll_interval: Duration::from_secs(5),
            write_interval: Duration::from_secs(2),
            writes_per_hour: Some(99),
            write_settle: Duration::from_secs(90),
            dry_run: true,
            claims_from: ["rival", "Other"].map(str::to_owned).into(),
        },
        webhook: Some(Webhook { path: "/hooks/x".to_owned(), secret: Secret::new("hook-hunter2") }),
        hosts: vec![github, gitlab],
        task_stop: TaskStop { enabled: false, check_interval: 4 },
        pause_resume: PauseResume {
            enabled: false,
            signal_file: PathBuf::from("/etc/ac/state/stop"),
            check_interval: 5,
            paused_task_expiry_days: 7,
        },
    }
}

/// The hosts that the example file shows, with all the defaults.
pub(super) fn of_the_example() -> Forges {
    let host = |kind, base_url: &str, token, repository| ForgeHost {
        kind,
        account: ForgeAccount {
            base_url: base_url.to_owned(),
            token: Secret::new(token),
            token_file: None,
            bot_name: "acme-coder".to_owned(),
        },
        labels: LabelNames::default(),
        repositories: vec![watched(repository, "prj_shop", "agt_developer")],
    };
    Forges {
        webhook: Some(Webhook {
            path: "/webhooks/forge".to_owned(),
            secret: Secret::new("hook-hunter2"),
        }),
        hosts: vec![
            host(ForgeKind::GitHub, "https://api.github.com", "gh-hunter2", "acme/shop"),
            host(ForgeKind::GitLab, "https://gitlab.com", "gl-hunter2", "acme/web/shop"),
        ],
        ..defaults().forges
    }
}

#[test]
fn a_list_is_several_hosts_and_nothing_is_none() {
    let two = "github:\n- { token: a, bot_name: x, repositories: { o/r: { project_id: p, agent: a } } }\n\
               - { token: b, bot_name: y, base_url: https://ghe.example/api/v3 , repositories: { o/r: { project_id: p, agent: a } } }\n\
               - { token: c, bot_name: z, repositories: { o/s: { project_id: p, agent: a } } }\n";
    let hosts = valid(two).forges.hosts;
    let places: Vec<_> =
        hosts.iter().map(|host| (host.host(), host.account.bot_name.as_str())).collect();
    assert_eq!(
        places,
        [("api.github.com", "x"), ("ghe.example/api/v3", "y"), ("api.github.com", "z")]
    );
    for none in
        ["github:\ngitlab:\nforge: { webhook: }\n", "github: []\n", "task_stop:\npause_resume:\n"]
    {
        assert_eq!(valid(none).forges, defaults().forges, "{none}");
    }
}

#[test]
fn a_token_from_a_file_that_ends_with_its_line_is_a_token() {
    let config = valid("github: { token: \"abc\\n\", bot_name: x }");
    assert_eq!(config.forges.hosts[0].account.token, Secret::new("abc"));
}

#[test]
fn the_base_url_of_a_gitlab_may_end_with_its_api() {
    let host = |url: &str| {
        let config = valid(&format!("gitlab: {{ token: x, bot_name: x, base_url: '{url}' }}"));
        let host = &config.forges.hosts[0];
        (host.account.base_url.clone(), host.host().to_owned())
    };
    for end in ["", "/", "/api/v4", "/api/v4/"] {
        let plain = ("https://code.example".to_owned(), "code.example".to_owned());
        assert_eq!(host(&format!("https://code.example{end}")), plain, "{end}");
        let below = ("https://code.example/gitlab".to_owned(), "code.example/gitlab".to_owned());
        assert_eq!(host(&format!("https://code.example/gitlab{end}")), below, "{end}");
    }
}

#[test]
fn the_base_url_of_an_own_github_keeps_its_api() {
    for end in ["", "/"] {
        let url = format!("https://ghe.example/api/v3{end}");
        let config = valid(&format!("github: {{ token: x, bot_name: x, base_url: '{url}' }}"));
        assert_eq!(config.forges.hosts[0].account.base_url, "https://ghe.example/api/v3");
        assert_eq!(config.forges.hosts[0].host(), "ghe.example/api/v3");
    }
}

#[test]
fn each_mistake_about_a_host_is_named() {
    insta::assert_snapshot!(report(
        r#"github:
  base_url: https://github.com
  token: hunter2 hunter2
  token_fil: x
  bot_name: "@coder"
  bot_label: "coding agent Done"
  stopped_label: ""
  repositories:
    acme: { project_id: p, agent: a }
    Acme/Shop: { project_id: "p p" }
    acme/shop: { project_id: p, agent: a }
    o/..: {}
gitlab:
- token: hunter2
  token_file: hunter2.txt
  base_url: https://me:hunter2@code.example
  bot_label: "a,b"
  failed_label: " x"
- base_url: https://code.example/gitlab/api/v4/
  bot_name: b
  projects: { 0: { project_id: p, agent: a }, single: { project_id: p, agent: a } }
- { bot_name: b, token: hunter2, base_url: "ftp://x" }
- { bot_name: b, token: hunter2, projects: { 7: { project_id: p, agent: a } } }
- { bot_name: b, token: hunter2, paused_label: X, done_label: x, projects: { "7": { project_id: p, agent: a } } }
- text
"#
    ));
}

#[test]
fn each_mistake_about_the_agents_of_a_repository_is_named() {
    insta::assert_snapshot!(report(
        r#"github:
  token: hunter2
  bot_name: b
  repositories:
    o/both: { project_id: p, agent: a, agents: [b] }
    o/empty: { project_id: p, agents: [] }
    o/twice: { project_id: p, agents: [a, b, a] }
    o/no_id: { project_id: p, agents: [a, "b c"] }
    o/no_list: { project_id: p, agents: a }
    o/none: { project_id: p, agents: }
"#
    ));
}

#[test]
fn a_repository_has_one_agent_or_several() {
    let agents = |text: &str| {
        let host = format!(
            "{{ token: t, bot_name: x, repositories: {{ o/r: {{ project_id: p, {text} }} }} }}"
        );
        valid(&format!("github: {host}")).forges.hosts[0].repositories[0].agents.clone()
    };
    assert_eq!(agents("agent: a"), agents("agents: [a]"));
    assert_eq!(agents("agent: a, agents: null"), agents("agents: [a]"));
    assert_eq!(agents("agent: null, agents: [a]"), agents("agents: [a]"));
    assert_eq!(agents("agents: [b, a]"), watched("o/r", "p", "b a").agents);
}

#[test]
fn each_mistake_beside_the_hosts_is_named() {
    insta::assert_snapshot!(report(
        r#"http: { listen: off }
forge: { poll_interval: 2days, dry_run: maybe, claims_from: [a, "@b", "c d", []], webhook: { path: webhooks } }
task_stop: { check_interval: 0, enable: false }
pause_resume: { signal_file: "", check_interval: 1001, paused_task_expiry_days: never }
"#
    ));
    insta::assert_snapshot!(
        "paths_of_others",
        report("forge: { webhook: { path: /api/forge, secret: hunter2 } }")
    );
}

#[test]
fn changes_of_hosts_are_told_without_their_secrets() {
    let changes = |old: &str, new: &str| -> Vec<String> {
        let changes = diff(&valid(old), &valid(new));
        assert!(changes.iter().all(|change| change.applies == Applies::Now));
        changes.iter().map(ToString::to_string).collect()
    };
    let host =
        "{ token: hunter2, bot_name: x, repositories: { o/r: { project_id: p, agent: a } } }";
    let added = [
        "github.token: changed",
        "github.bot_name: none → x",
        "github.repositories.o/r.project_id: none → p",
        "github.repositories.o/r.agent: none → a",
    ];
    assert_eq!(changes("", &format!("github: {host}")), added);
    assert_eq!(changes(&format!("github: {host}"), &format!("github: [{host}]")), [""; 0]);
    assert_eq!(
        changes(
            &format!("github: {host}"),
            &format!("github: {}", host.replace("agent: a", "agents: [b, a]"))
        ),
        ["github.repositories.o/r.agent: a → none", "github.repositories.o/r.agents: none → b, a"]
    );
    let changed = format!(
        "github:\n- {}\n- {{ token_file: /t, bot_name: y }}",
        host.replace("agent: a", "agent: b")
    );
    assert_eq!(
        changes(&format!("github: {host}"), &changed),
        [
            "github[0].repositories.o/r.agent: a → b",
            "github[1].token_file: none → /t",
            "github[1].bot_name: none → y",
        ]
    );
    assert_eq!(
        changes(
            "forge: { webhook: { secret: hunter2 } }",
            "forge: { webhook: { secret: hunter3 } }"
        ),
        ["forge.webhook.secret: changed"]
    );
    assert_eq!(changes("", "forge: { claims_from: [b, a] }"), ["forge.claims_from: none → a, b"]);
    assert_eq!(
        changes("", "pause_resume: { signal_file: /run/pause }"),
        ["pause_resume.signal_file: contexts/pause_signal → /run/pause"]
    );
}

#[test]
fn the_pause_file_stays_in_the_folder_that_is_in_use() {
    let moved = diff::without_restart(valid("state_dir: /new"), &valid("state_dir: /old"));
    assert_eq!(moved.forges.pause_resume.signal_file, Path::new("/old/contexts/pause_signal"));
}
