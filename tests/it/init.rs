//! `init`: a newcomer's first command, with and without a daemon, and with bad input.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{Daemon, PROGRAM};
use crate::support::{skip, until};

/// A home folder with a folder of a project and without a configuration.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("work/my shop")).unwrap();
        Self { folder }
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("work/my shop").canonicalize().unwrap()
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join(".config/agent-coordinator")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.folder.path());
        command.current_dir(self.project()).arg("init").args(arguments);
        command
    }

    /// Runs the command with the text as its standard input. Returns its exit code and its texts.
    fn init(&self, arguments: &[&str]) -> (i32, String, String) {
        texts(&self.command(arguments).output().unwrap())
    }
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn make_repository(folder: &Path) {
    let git = |arguments: &[&str]| {
        let done = Command::new("git").arg("-C").arg(folder).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "-q"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"]);
}

/// Runs the command on a terminal on which a person types these lines. Returns what the terminal
/// shows; `None` if there is no program that makes one.
fn on_terminal(home: &Home, answers: &str) -> Option<String> {
    let inner = format!("exec {PROGRAM} init");
    let mut script = Command::new("script");
    script.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.folder.path());
    script.env("TERM", "xterm").args(["-qec", &inner, "/dev/null"]).current_dir(home.project());
    let child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        skip("there is no script(1), which makes terminals");
        return None;
    };
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap().replace('\r', ""))
}

#[test]
fn a_person_on_a_terminal_is_asked_and_may_take_the_defaults() {
    let home = Home::new();
    make_repository(&home.project());
    let Some(shown) = on_terminal(&home, "example\nno\nSay hello\n") else { return };
    for question in ["Which agent works here? [", "a clone of its own", "The title of a first task"]
    {
        assert!(shown.contains(question), "{question}: {shown}");
    }
    let manifest = fs::read_to_string(home.configuration().join("manifest.yaml")).unwrap();
    assert!(manifest.contains("Say hello") && manifest.contains("shared"), "{manifest}");

    let other = Home::new();
    make_repository(&other.project());
    let Some(shown) = on_terminal(&other, "\n\n\n") else { return };
    let manifest = fs::read_to_string(other.configuration().join("manifest.yaml")).unwrap();
    assert!(manifest.contains("clone") && !manifest.contains("tasks:"), "{shown}\n{manifest}");
}

#[test]
fn a_folder_that_may_not_be_written_is_refused_and_nothing_is_made() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let home = Home::new();
    fs::set_permissions(home.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.command(&["--yes"]);
    let Ok(output) = command.uid(65534).gid(65534).output() else {
        skip("an ordinary user may not run what was built here");
        return;
    };
    let (code, told, refused) = texts(&output);
    assert_eq!((code, told.as_str()), (1, ""), "{refused}");
    assert!(refused.contains("agents could not work there: Permission denied"), "{refused}");
    assert!(!home.configuration().exists());
}

#[test]
fn a_newcomer_gets_to_a_finished_task_with_one_command_and_the_daemon() {
    let home = Home::new();
    let (code, said, error) = home.init(&["--yes", "--agent", "example", "--task", "Say hello"]);
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    assert!(said.contains("example    bundled with"), "{said}");
    assert!(said.contains("next: start the daemon with `agent-coordinator run`"), "{said}");
    let written = |name: &str| home.configuration().join(name);
    // The daemon of the test has a state directory and a port of its own.
    let mut daemon = Daemon::configured("");
    let config = fs::read_to_string(written("coordinator_config.yaml")).unwrap();
    let own = "state_dir: state\nhttp: { listen: '127.0.0.1:0' }\n";
    fs::write(daemon.config(), format!("{config}{own}")).unwrap();
    let manifest = "manifest.yaml";
    fs::copy(written(manifest), daemon.config().with_file_name(manifest)).unwrap();
    daemon.start();
    until("the task is done", || daemon.task_status("tsk_my-shop-1") == "done");
    assert!(fs::read_to_string(home.project().join("hello.txt")).unwrap().starts_with("Hello"));

    let before = fs::read_to_string(written("manifest.yaml")).unwrap();
    let (code, said, _) = home.init(&["--yes"]);
    assert_eq!(code, 0);
    assert!(said.contains("nothing changed: ") && said.contains("start the daemon"), "{said}");
    assert_eq!(fs::read_to_string(written("manifest.yaml")).unwrap(), before);
}

#[test]
fn a_program_in_a_usual_folder_is_named_and_gets_the_setting_that_it_needs() {
    let home = Home::new();
    let folder = home.folder.path().join(".bun/bin");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("codex");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, said, error) = home.init(&["--yes", "--agent", "codex"]);
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    let named = format!("it is at `{}`: add `ai_providers: {{ codex: ", program.display());
    assert!(said.contains("program `codex` was not found") && said.contains(&named), "{said}");
    let mut check = Command::new(PROGRAM);
    check.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.folder.path()).arg("check");
    let (code, said, error) = texts(&check.output().unwrap());
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    assert!(said.contains(&format!("  program: {}\n", program.display())), "{said}");
}

#[test]
fn a_daemon_that_runs_gets_the_project_once() {
    let home = Home::new();
    make_repository(&home.project());
    let empty = home.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let made = Command::new("git").arg("-C").arg(&empty).args(["init", "-q"]).output().unwrap();
    assert!(made.status.success());
    let daemon = Daemon::running("");
    let init = |arguments: &[&str]| {
        let mut command = daemon.command();
        command.current_dir(home.project()).arg("init").args(arguments);
        texts(&command.output().unwrap())
    };
    let (code, said, error) = init(&["--yes", "--agent", "claude", "--name", "Shop", "--json"]);
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["is_changed"], true);
    let id = report["project_id"].as_str().unwrap();
    let project = daemon.json(&["project", "show", id]);
    assert_eq!(project["name"], "Shop");
    assert_eq!(project["workspace"], "clone", "it is a git repository");
    assert_eq!(project["working_directory"], home.project().to_str().unwrap());
    assert_eq!(project["agents"], serde_json::json!([report["agent_id"]]));
    let (code, said, _) = init(&["--yes"]);
    assert_eq!(code, 0);
    assert!(said.contains("nothing changed: it is the project "), "{said}");
    let (code, said, error) = init(&[empty.to_str().unwrap(), "--yes", "--json"]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("the git repository has no commit yet"), "{error}");
    let report: Value = serde_json::from_str(&said).unwrap();
    let project = daemon.json(&["project", "show", report["project_id"].as_str().unwrap()]);
    assert_eq!(project["workspace"], "shared");
    // The bundled agent is part of the daemon.
    let other = home.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let folder = other.to_str().unwrap();
    let (code, said, error) =
        init(&[folder, "--yes", "--agent", "example", "--task", "Say hello", "--json"]);
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    let task = report["task_id"].as_str().unwrap();
    until("the bundled agent has done it", || daemon.task_status(task) == "done");
    assert!(fs::read_to_string(other.join("hello.txt")).unwrap().starts_with("Hello from agt_"));
    assert!(!home.configuration().exists());
}

#[test]
fn bad_input_changes_nothing_and_says_what_to_do() {
    let home = Home::new();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let (found, said, error) = home.init(arguments);
        assert_eq!(found, code, "{arguments:?}: {said}{error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!home.configuration().exists());
    };
    check(&["/", "--yes"], 1, "an agent would work on the whole machine");
    check(&["no-such-folder", "--yes"], 1, "no-such-folder: No such file or directory");
    check(&["--agent", "exampel", "--yes"], 2, "did you mean `example`?");
    check(&["--workspace", "clone", "--yes"], 2, "is in no git repository; run `git init` there");
    // A folder of this name is not a repository: a sandbox of an agent CLI may leave an empty one.
    fs::create_dir(home.project().join(".git")).unwrap();
    check(&["--workspace", "clone", "--yes"], 2, "is in no git repository; run `git init` there");
    fs::remove_dir(home.project().join(".git")).unwrap();
    // Something else has the place of the folder for the configuration.
    fs::write(home.folder.path().join(".config"), "").unwrap();
    check(&["--yes"], 1, ".config");
    fs::remove_file(home.folder.path().join(".config")).unwrap();
    // Without git, a repository is a folder like any other.
    make_repository(&home.project());
    let mut command = home.command(&["--workspace", "clone", "--yes"]);
    let (code, said, error) = texts(&command.env("PATH", "/nowhere").output().unwrap());
    assert!(code == 2 && error.contains("no program `git`"), "{code} {said}{error}");
    assert!(!home.configuration().exists());
    fs::remove_dir_all(home.project().join(".git")).unwrap();
    let config = home.configuration().join("coordinator_config.yaml");
    fs::create_dir_all(home.configuration()).unwrap();
    for (text, code, expected) in [
        ("max_concurent: 3\n", 78, "did you mean `max_concurrent`?"),
        ("max_concurrent: 3\n", 69, "no daemon runs that could add the project"),
    ] {
        fs::write(&config, text).unwrap();
        let (found, said, error) = home.init(&["--yes"]);
        assert_eq!(found, code, "{said}{error}");
        assert!(error.contains(expected), "{error}");
        assert_eq!(fs::read_to_string(&config).unwrap(), text);
        assert_eq!(fs::read_dir(home.configuration()).unwrap().count(), 1);
    }
}
