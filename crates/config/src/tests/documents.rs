//! The documents of the settings: `config/coordinator_config.yaml` and `docs/configuration.md`. The
//! texts come from the declarations of the keys.
//!
//! After a change of a declaration, write both files with
//! `AGENT_COORDINATOR_WRITE_DOCUMENTS=1 cargo test -p agent-coordinator-config documents`.

use std::fmt::Write as _;
use std::fs;

use super::*;
use crate::declaration::{Description, KeyDescription};
use crate::forge::{RepositoryKeys, default_base_url};
use crate::providers::ProviderKeys;
use domain::configuration::Applies;
use domain::forge::{ForgeKind, LabelNames};

const WRITE: &str = "AGENT_COORDINATOR_WRITE_DOCUMENTS";

/// The length of the longest comment line in the example.
const WIDTH: usize = 100;

const EXAMPLE_INTRODUCTION: &str = "\
# Configuration of agent-coordinator: every setting, with its default.
#
# A line that begins with `#` and a key shows the default of that setting. Remove the `#` to change it.
# The entries below ai_providers, agents, checks, github, gitlab and webhook are examples. Without a
# configuration file all settings have their defaults. `agent-coordinator check` names every mistake at
# once.
#
# The daemon uses the first of these files that exists: --config FILE, $AGENT_COORDINATOR_CONFIG,
# ./coordinator_config.yaml, ~/.config/agent-coordinator/coordinator_config.yaml,
# /etc/agent-coordinator/coordinator_config.yaml.
#
# A running daemon reads the file again when it changes, on SIGHUP, and for `agent-coordinator reload`.
# A file with mistakes changes nothing. A change of a setting counts at once, unless its text says
# otherwise.
#
# Durations are seconds (10, 2.5) or have units (250ms, 10s, 1h 30m). Sizes are bytes (65536) or have
# units (64 KiB, 10 MiB). Values may contain ${NAME}, ${NAME:-default} and ${NAME:?message}; $$ is a
# dollar; ~/ at the beginning is the home folder. Between { and } a ${NAME} must stand in quotes.
# Relative paths start at the folder of this file.
";

const TABLE_INTRODUCTION: &str = "\
# Configuration

<!-- Written by a test from the declarations in crates/config/src. Its `//!` says how: crates/config/src/tests/documents.rs -->

The daemon reads one YAML file. [config/coordinator_config.yaml](../config/coordinator_config.yaml) is one to start from. It
has every setting with its effect, its values, its default, and the time when a change counts. Its head says where the
daemon looks for its file, and how values are written. `agent-coordinator check` names every mistake in a file at once.

## Changes while the daemon runs

A running daemon reads its file again

- when the file changes: it watches the folder, so a file that an editor puts in its place counts;
- on SIGHUP;
- for `agent-coordinator reload`, which waits and prints each changed setting with its old and new value. If the file is
  wrong, it prints the mistakes and exits with 78.

The log says the same. **A file with mistakes changes nothing**: the last good one stays in use, and `status` says since
when and why until the file is repaired. A change counts at once, for decisions from then on, unless the text of the setting
says otherwise:

- for new starts: running agents keep what they were given;
- after a restart: `status` lists the settings that wait for it.

A reload itself ends no agent. A lowered number of agents (`max_concurrent`, `limits`) ends none either: no more agents
start until enough have ended. A lowered time limit (`run`, `session`) ends the agents that exceed it.

- `agents.NAME.passkey`: the old passkey opens no session any more; open sessions go on. An agent that is created later
  gets its passkey from the entry, unless it is created with one. Removing an entry leaves the agent its passkey.
- `coordinator_token`: the server refuses the old token at once, so change it there first. Coordinators (`supervise`) ask
  again until the server accepts theirs.
- `manifest`: the daemon applies it if the setting or the content of the file changed. It removes nothing.
  What a person deleted stays deleted: it is left out with a warning, also by `apply`.
- `${…}` are the variables that the daemon was started with. A new value of a variable needs a restart.
- A daemon that was started without any file looks for one on SIGHUP and `reload` only.
";

/// A part of a chapter.
enum Part {
    Keys(Description),
    /// Keys of entries, with the name of an entry in the example.
    Entry(&'static str, Description),
}

fn chapters() -> Vec<(&'static str, Vec<Part>)> {
    use Part::{Entry, Keys as K};
    // No entry has all keys.
    let of_preset =
        |key: &KeyDescription| matches!(key.key, "preset" | "permissions" | "model" | "telemetry");
    let with_preset = only(ProviderKeys::describe(), of_preset);
    let with_command = only(ProviderKeys::describe(), |key| !of_preset(key));
    let [github, gitlab] = [ForgeKind::GitHub, ForgeKind::GitLab].map(of_forge);
    vec![
        (
            "Limits and language",
            vec![
                K(General::describe()),
                K(StartLimits::describe()),
                K(AgentLimits::describe()),
                K(CreationLimits::describe()),
            ],
        ),
        ("Places", vec![K(Paths::describe()), K(Http::describe()), K(Store::describe())]),
        (
            "Agents",
            vec![
                Entry("claude", with_preset),
                Entry("my_agent", Description { about: "", ..with_command }),
                Entry("agt_developer", AgentCredentials::describe()),
                Entry("tests", CheckKeys::describe()),
            ],
        ),
        (
            "Work from GitHub and GitLab",
            [K(ForgeAccess::describe()), K(Webhook::describe())]
                .into_iter()
                .chain(github)
                .chain(gitlab)
                .chain([K(TaskStop::describe()), K(PauseResume::describe())])
                .collect(),
        ),
        (
            "Time limits",
            vec![
                K(Session::describe()),
                K(Start::describe()),
                K(Stop::describe()),
                K(RunLimits::describe()),
                K(Notice::describe()),
                K(Chat::describe()),
                K(Backoff::describe()),
                K(Parking::describe()),
                K(ContinueLimits::describe()),
            ],
        ),
        (
            "The daemon itself",
            vec![
                K(Shutdown::describe()),
                K(LogConfig::describe()),
                K(Output::describe()),
                K(Workspace::describe()),
                K(WorkspaceHooks::describe()),
                K(GitLimits::describe()),
                K(Retention::describe()),
            ],
        ),
    ]
}

/// Returns the keys of a host of this kind.
fn of_forge(kind: ForgeKind) -> [Part; 3] {
    let mut account = ForgeAccount::describe();
    let mut labels = LabelNames::describe();
    let mut repositories = RepositoryKeys::describe();
    default_base_url(kind).clone_into(&mut account.keys[0].default);
    let mut name = "acme/shop";
    if kind == ForgeKind::GitLab {
        name = "acme/web/shop";
        account.about = "The same keys for GitLab, with `projects` in place of `repositories`.";
        account.keys[1].example = Some("${GITLAB_TOKEN}");
        account.section = "gitlab";
        labels.section = "gitlab";
        repositories.section = "gitlab.projects.*";
    }
    [Part::Keys(account), Part::Keys(labels), Part::Entry(name, repositories)]
}

fn only(keys: Description, is_in: impl Fn(&KeyDescription) -> bool) -> Description {
    Description { keys: keys.keys.into_iter().filter(is_in).collect(), ..keys }
}

// ── The example ──

fn example() -> String {
    let mut text = EXAMPLE_INTRODUCTION.to_owned();
    for (title, parts) in chapters() {
        let rule = "─".repeat(WIDTH - title.chars().count() - 6);
        let _ = write!(text, "\n\n# ── {title} {rule}\n");
        let mut section = String::new();
        for part in parts {
            match part {
                Part::Keys(keys) => {
                    write_section(&mut text, &keys, keys.section, &section);
                    keys.section.clone_into(&mut section);
                }
                Part::Entry(name, keys) => {
                    let path = keys.section.replace('*', name);
                    write_section(&mut text, &keys, &path, &section);
                    section = path;
                }
            }
        }
    }
    text
}

/// Writes a section. `before` is the path of the section before it, whose header stands already.
fn write_section(text: &mut String, keys: &Description, path: &str, before: &str) {
    let names: Vec<&str> = path.split('.').filter(|name| !name.is_empty()).collect();
    let is_open = |depth: usize| before.split('.').take(depth).eq(names[..depth].iter().copied());
    let mut is_first = false;
    for depth in 1..=names.len() {
        if is_open(depth) {
            continue;
        }
        let indent = "  ".repeat(depth - 1);
        if !is_first {
            text.push('\n');
            write_comment(text, &indent, &sentences(keys.about));
        }
        let _ = writeln!(text, "{indent}#{}:", names[depth - 1]);
        is_first = true;
    }
    let indent = "  ".repeat(names.len());
    for key in &keys.keys {
        if !is_first {
            text.push('\n');
        }
        is_first = false;
        write_comment(text, &indent, &sentences(key.effect));
        write_comment(text, &indent, &values_of(key));
        let value = key.example.unwrap_or(&key.default);
        let _ = writeln!(text, "{indent}#{}: {value}", key.key);
    }
}

fn values_of(key: &KeyDescription) -> String {
    let when = match key.applies {
        Applies::Now => "",
        Applies::ToNewStarts => " A change counts for new starts.",
        Applies::AfterRestart => " A change counts after a restart.",
    };
    format!("Values: {}.{when}", key.values)
}

/// Returns the text of a doc comment on one line.
fn sentences(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn write_comment(text: &mut String, indent: &str, comment: &str) {
    if comment.is_empty() {
        return;
    }
    let mut line = format!("{indent}#");
    for word in comment.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = format!("{indent}#");
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

// ── The tables ──

fn tables() -> String {
    let mut text = TABLE_INTRODUCTION.to_owned();
    for (title, parts) in chapters() {
        let _ = write!(text, "\n## {title}\n\n| Section | Content | Keys |\n|---|---|---|\n");
        for (section, about, keys) in rows(parts) {
            let _ = writeln!(text, "| {section} | {about} | {} |", keys.join(", "));
        }
    }
    text
}

/// Returns each section with the first sentence about it and its keys. Descriptions of one section
/// follow each other.
fn rows(parts: Vec<Part>) -> Vec<(String, String, Vec<String>)> {
    let mut rows: Vec<(String, String, Vec<String>)> = Vec::new();
    for part in parts {
        let (Part::Keys(keys) | Part::Entry(_, keys)) = part;
        if keys.section.starts_with("gitlab.") {
            continue;
        }
        let section = match keys.section {
            "" => "(top level)".to_owned(),
            section => format!("`{}`", section.replace('*', "NAME")),
        };
        if rows.last().is_none_or(|(last, ..)| *last != section) {
            rows.push((section, first_sentence(keys.about), Vec::new()));
        }
        let (.., names) = rows.last_mut().expect("a row was pushed");
        if keys.section == "gitlab" {
            *names = vec!["as `github`".to_owned()];
        } else {
            names.extend(keys.keys.iter().map(name_of));
        }
    }
    rows
}

fn name_of(key: &KeyDescription) -> String {
    let mark = if key.is_required { " (required)" } else { "" };
    format!("`{}`{mark}", key.key)
}

fn first_sentence(text: &str) -> String {
    let text = sentences(text);
    match text.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => text,
    }
}

#[track_caller]
fn check(file: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, expected).expect("a file of the repository");
    }
    let written = fs::read_to_string(&path).expect("a file of the repository");
    assert!(
        written == expected,
        "{file} is not what the declarations say; run this test with {WRITE}=1 to write it"
    );
}

#[test]
fn the_example_is_what_the_declarations_say() {
    check("config/coordinator_config.yaml", &example());
}

#[test]
fn the_tables_are_what_the_declarations_say() {
    check("docs/configuration.md", &tables());
}
