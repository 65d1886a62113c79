//! `doctor` on a machine that is well and on one that is not; logins; nothing secret is shown.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::daemon::{Daemon, PROGRAM, SHIM_PROGRAM};
use crate::isolation::{USER, other_user};
use crate::support::install;

/// Runs `doctor` with a `PATH` that has only these programs. Returns its exit code and its findings.
fn doctor(daemon: &Daemon, programs: &[&str], variables: &[(&str, &str)]) -> (i32, Vec<Value>) {
    let folder = daemon.folder().join("bin");
    fs::create_dir_all(&folder).unwrap();
    for program in programs {
        let path = folder.join(program);
        fs::write(&path, "#!/bin/false\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = daemon.command();
    command.env("PATH", &folder).env("HOME", daemon.folder());
    command.envs(variables.iter().copied()).args(["doctor", "--json"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for (_, value) in variables {
        assert!(!text.contains(value), "{text}");
    }
    let report: Value = serde_json::from_str(&text).unwrap();
    let findings = report["findings"].as_array().unwrap().clone();
    (output.status.code().unwrap(), findings)
}

/// Returns the state and the text of the finding about this subject.
fn finding<'a>(findings: &'a [Value], subject: &str) -> (&'a str, &'a str) {
    let found = findings.iter().find(|finding| finding["subject"] == subject);
    let found = found.unwrap_or_else(|| panic!("{subject}: {findings:?}"));
    (found["state"].as_str().unwrap(), found["found"].as_str().unwrap())
}

#[test]
fn a_provider_whose_program_is_not_installed_is_shown_with_the_remedy_of_doctor() {
    let daemon = Daemon::running("ai_providers: { claude: { cli_command: work/none } }");
    daemon.project("prj");
    daemon.agent("agt", "prj", &[]);
    let listed = daemon.status()["not_installed"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["provider"], "claude");
    let remedy = listed[0]["remedy"].as_str().unwrap();
    assert!(daemon.cli(&["doctor"]).stdout.contains(&format!("-> {remedy}")));
    let shown = daemon.cli(&["status"]).stdout;
    assert!(shown.contains("not installed: claude: ") && shown.contains("work/none"), "{shown}");
    for (language, mark) in [("en", "Not installed"), ("ja", "未インストール")] {
        let page = daemon.page("/ui/operations", language);
        assert!(page.contains(mark) && page.contains(remedy), "{page}");
    }
    daemon.configure("ai_providers: { claude: { cli_command: /bin/true } }");
    daemon.done(&["reload"]);
    let listed = daemon.status()["not_installed"].clone();
    assert_eq!(listed.as_array().map_or(0, Vec::len), 0, "{listed}");
}

#[test]
fn a_daemon_that_runs_is_reported_with_its_store_and_disks() {
    let daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    let (code, findings) = doctor(&daemon, &[], &[]);
    assert_eq!(code, 0, "{findings:?}");
    for subject in
        ["configuration", "daemon", "state directory", "store", "clock", "provider claude"]
    {
        assert_eq!(finding(&findings, subject).0, "ok", "{subject}: {findings:?}");
    }
    assert!(findings.iter().any(|each| each["subject"].as_str().unwrap().starts_with("disk of")));
    // git is not in this PATH.
    assert_eq!(finding(&findings, "git").0, "warning");
    // Its own variables decide what it starts.
    assert_eq!(finding(&findings, "environment").0, "unknown");
    daemon.done(&["pause"]);
    let said = daemon.done(&["doctor"]);
    assert!(said.contains("warning  daemon: it starts no agents\n"), "{said}");
    assert!(said.contains("-> `agent-coordinator resume` ends the pause"), "{said}");
}

#[test]
fn another_user_than_that_of_the_daemon_learns_what_could_not_be_looked_at() {
    if other_user().is_none() {
        return;
    }
    let daemon = Daemon::running("store: { url: 'sqlite:one.db' }");
    daemon.write("own.yaml", "state_dir: state\n");
    for path in [daemon.folder().to_owned(), daemon.folder().join("own.yaml")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(daemon.state(), fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("HOME", "/nonexistent").current_dir("/").uid(USER).gid(USER);
    command.args(["doctor", "--offline", "--json", "--config"]);
    let output = command.arg(daemon.folder().join("own.yaml")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let state = daemon.state();
    let told = format!("could not look: `{}` is closed to this user", state.display());
    assert_eq!(finding(findings, "state directory"), ("problem", told.as_str()));
    let socket = format!("socket {}", state.join("control.sock").display());
    let clones = format!("disk of {}", state.join("workspaces").display());
    for subject in ["daemon", &socket, "store", &clones, "clock", "clones of tasks"] {
        assert_eq!(finding(findings, subject), ("unknown", told.as_str()), "{findings:?}");
    }
    let remedies = findings.iter().filter(|each| each["found"] == told.as_str());
    for each in remedies {
        let remedy = each["remedy"].as_str().unwrap();
        assert!(remedy.starts_with("run `doctor` as `root`, who owns that folder"), "{each}");
    }
}

#[test]
fn the_program_of_shims_is_named() {
    let mut daemon = Daemon::configured("");
    let (_, findings) = doctor(&daemon, &[], &[]);
    let beside = Path::new(SHIM_PROGRAM).canonicalize().unwrap();
    let expected = format!("they run `{}`", beside.display());
    assert_eq!(finding(&findings, "shims"), ("ok", expected.as_str()));

    daemon.program = install(PROGRAM.as_ref(), daemon.folder(), "agent-coordinator");
    let (_, findings) = doctor(&daemon, &[], &[]);
    let (state, text) = finding(&findings, "shims");
    assert!(state == "warning" && text.contains("/agent-coordinator`, which needs more"), "{text}");

    let old = "#!/bin/sh\necho agent-coordinator-shim 0.0.9\n";
    for (script, expected, words) in [
        (old, "warning", "`agent-coordinator-shim 0.0.9`"),
        ("#!/nonexistent\n", "unknown", "which did not tell its version"),
        ("#!/bin/sh\n", "unknown", "which did not tell its version"),
    ] {
        daemon.write("script", script);
        let file = daemon.folder().join("script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        install(&file, daemon.folder(), "agent-coordinator-shim");
        let (_, findings) = doctor(&daemon, &[], &[]);
        let (state, text) = finding(&findings, "shims");
        assert!(state == expected && text.contains(words), "{state}: {text}");
    }
}

#[test]
fn the_manifest_on_the_disk_is_validated() {
    let daemon = Daemon::configured("manifest: manifest.yaml");
    let path = daemon.folder().join("manifest.yaml");
    let (code, findings) = doctor(&daemon, &[], &[]);
    let (state, text) = finding(&findings, "manifest");
    assert_eq!((code, state), (1, "problem"), "{text}");
    assert!(text.contains(path.to_str().unwrap()) && text.contains("No such file"), "{text}");
    daemon.write("manifest.yaml", "agents: { agt: { ai_tpye: claude } }");
    let (code, findings) = doctor(&daemon, &[], &[]);
    let (state, text) = finding(&findings, "manifest");
    assert!(code == 1 && state == "problem" && text.contains("ai_tpye"), "{text}");
    daemon.write("manifest.yaml", "agents: { agt: {} }");
    let (code, findings) = doctor(&daemon, &[], &[]);
    let told = format!("{} is correct", path.display());
    assert_eq!((code, finding(&findings, "manifest")), (0, ("ok", told.as_str())));
}

#[test]
fn it_makes_no_file() {
    let mut daemon = Daemon::configured("");
    let mut command = daemon.command();
    let output = command.args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(finding(report["findings"].as_array().unwrap(), "git").0, "ok", "{report}");
    assert!(!daemon.state().join("workspaces").exists());
    daemon.start();
}

#[test]
fn a_login_is_found_by_its_variable_or_its_file_and_never_shown() {
    let daemon = Daemon::configured("ai_providers: { codex: { preset: codex } }");
    let (code, findings) = doctor(&daemon, &[], &[]);
    let (state, text) = finding(&findings, "provider codex");
    assert_eq!((code, state), (1, "problem"), "{text}");
    assert!(text.contains("`codex` was not found"), "{text}");

    let (_, findings) = doctor(&daemon, &["codex", "copilot"], &[]);
    let (state, text) = finding(&findings, "provider codex");
    assert!(state == "problem" && text.contains("login: no"), "{text}");
    assert!(text.contains(".codex/auth.json"), "{text}");
    assert_eq!(finding(&findings, "provider copilot").0, "unknown");

    let secret = [("CODEX_API_KEY", "sk-never-shown")];
    let (_, findings) = doctor(&daemon, &["codex"], &secret);
    let (state, text) = finding(&findings, "provider codex");
    assert!(state == "ok" && text.contains("CODEX_API_KEY is set"), "{text}");

    fs::create_dir(daemon.folder().join(".codex")).unwrap();
    daemon.write(".codex/auth.json", "{}");
    let (_, findings) = doctor(&daemon, &["codex"], &[]);
    let (state, text) = finding(&findings, "provider codex");
    assert!(state == "ok" && text.contains("auth.json exists"), "{text}");
}

#[test]
fn a_cli_that_no_launch_finds_is_named_with_the_setting_that_finds_it() {
    let daemon = Daemon::configured("ai_providers: { codex: { preset: codex } }");
    fs::create_dir_all(daemon.folder().join(".volta/bin")).unwrap();
    fs::create_dir(daemon.folder().join("bin")).unwrap();
    let native = "#!/bin/false\n";
    let script = "#!/usr/bin/env no-such-node\n";
    for (program, text) in [
        (".volta/bin/codex", native),
        (".volta/bin/gemini", native),
        (".volta/bin/copilot", script),
        ("bin/qwen", script),
    ] {
        daemon.write(program, text);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(daemon.folder().join(program), executable).unwrap();
    }
    let (code, findings) = doctor(&daemon, &[], &[]);
    let remedy = |subject: &str| {
        let found = findings.iter().find(|finding| finding["subject"] == subject).unwrap();
        found["remedy"].as_str().unwrap().to_owned()
    };
    let path = |program: &str| daemon.folder().join(program).display().to_string();
    assert_eq!((code, finding(&findings, "provider codex").0), (1, "problem"));
    let setting = "set `environment: { PATH: \"";
    let named =
        format!("it is at `{}`: {setting}{}:", path(".volta/bin/codex"), path(".volta/bin"));
    assert!(remedy("provider codex").starts_with(&named), "{findings:?}");
    assert_eq!(finding(&findings, "provider gemini").0, "warning");
    assert!(remedy("provider gemini").contains(": add `gemini: { preset: "), "{findings:?}");
    let (state, text) = finding(&findings, "provider qwen");
    assert!(state == "warning" && text.contains("interpreter `no-such-node`"), "{text}");
    assert!(remedy("provider qwen").starts_with("install it, or add its folder"), "{findings:?}");
    // A setting of the PATH alone would not start it.
    let lacking = format!(
        "it is at `{}`, but its interpreter `no-such-node` was not found: install that first",
        path(".volta/bin/copilot")
    );
    let said = remedy("provider copilot");
    assert!(said.starts_with(&lacking) && !said.contains("PATH: "), "{said}");
    let mut command = daemon.command();
    command.env("PATH", daemon.folder()).env("HOME", daemon.folder()).arg("check");
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.contains(&format!("  it is at `{}`: ", path(".volta/bin/codex"))), "{said}");
}

#[test]
fn what_is_wrong_is_named_with_a_remedy_and_an_exit_code() {
    let daemon = Daemon::configured("limits: { min_free_disk: 900 TiB }");
    let (code, findings) = doctor(&daemon, &[], &[]);
    assert_eq!(code, 1);
    assert_eq!(finding(&findings, "daemon").1, "no daemon runs");
    let disk = findings.iter().find(|each| each["state"] == "problem").unwrap();
    assert!(disk["subject"].as_str().unwrap().starts_with("disk of"), "{disk}");
    assert!(disk["remedy"].as_str().unwrap().contains("limits.min_free_disk"), "{disk}");
    let said = daemon.cli(&["doctor"]);
    assert!(said.code == 1 && said.stderr.contains("problem"), "{said:?}");
}
