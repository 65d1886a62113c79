//! Workspaces when git does not work, with the real binary: what is shown meanwhile, and that all
//! goes on when the fault is over.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{git, is_gone, until, until_some_within};
use crate::workspaces::{Bed, COMMITS};

const QUICK: &[&str] = &["authenticate", "get-my-task", "report:success"];

/// Returns a `PATH` with a folder before the usual ones that has this script as `git`. `exec GIT`
/// in the script starts the real one.
pub fn path_with_git(folder: &Path, script: &str) -> std::ffi::OsString {
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let program = programs.join("git");
    let real = real_git();
    let script = script.replace("exec GIT", &format!("exec {}", real.display()));
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let all = [programs].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(all).unwrap()
}

fn real_git() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let all: Vec<PathBuf> = std::env::split_paths(&path).collect();
    all.iter().map(|folder| folder.join("git")).find(|file| file.is_file()).unwrap()
}

/// Returns a `PATH` with all programs but git.
fn path_without_git(folder: &Path) -> std::ffi::OsString {
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    for from in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
            if entry.file_name() != "git" {
                let _ = symlink(entry.path(), programs.join(entry.file_name()));
            }
        }
    }
    programs.into()
}

fn restart_with(daemon: &mut Daemon, path: &std::ffi::OsStr) {
    daemon.terminate();
    start_with(daemon, path);
}

/// Starts a daemon with this `PATH` and waits until it is ready.
pub fn start_with(daemon: &mut Daemon, path: &std::ffi::OsStr) {
    let mut command = daemon.command();
    command.env("PATH", path);
    daemon.spawn_as(command);
    daemon.until_ready();
}

#[test]
fn a_git_that_cannot_be_used_is_named_and_the_task_starts_when_it_can() {
    let old = "echo git version 2.30.2";
    let broken = "echo out of order >&2; exit 3";
    for (script, expected) in [
        (None, "git is not installed"),
        (Some(old), "git version 2.30.2 is too old; install git 2.38 or newer"),
        (Some(broken), "out of order"),
    ] {
        let mut bed = Bed::new(&[("one", COMMITS)]);
        let folder = bed.daemon.folder().to_owned();
        let path = match script {
            Some(script) => path_with_git(&folder, script),
            None => path_without_git(&folder),
        };
        restart_with(&mut bed.daemon, &path);
        bed.daemon.task("tsk", "prj", "one");
        until("the reason is shown", || {
            let why = bed.daemon.done(&["why", "one", "prj"]);
            why.contains("preparing_workspace") && why.contains(expected)
        });
        let shown = bed.daemon.done(&["workspace", "show", "tsk"]);
        assert!(shown.contains(expected), "{shown}");
        bed.daemon.terminate();
        bed.daemon.start();
        bed.until_kept("tsk");
    }
}

#[test]
fn a_git_that_hangs_delays_no_other_project_and_never_asks_for_a_password() {
    let mut bed = Bed::new(&[("one", COMMITS)]);
    let folder = bed.daemon.folder().to_owned();
    let seen = folder.join("seen");
    let hangs = format!(
        "case \"$*\" in *index-pack*) env >{0}.new; echo $$ >>{0}.new; mv {0}.new {0}; \
         exec sleep 600;; esac\n\
         exec GIT \"$@\"",
        seen.display()
    );
    let path = path_with_git(&folder, &hangs);
    restart_with(&mut bed.daemon, &path);
    bed.daemon.task("tsk", "prj", "one");
    until("git hangs", || seen.exists());
    let written = std::fs::read_to_string(&seen).unwrap();
    for expected in ["GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false"] {
        assert!(written.lines().any(|line| line == expected), "{written}");
    }
    let hanging: i32 = written.lines().last().unwrap().parse().unwrap();
    let other = folder.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("two.steps"), QUICK.join("\n")).unwrap();
    let other = other.to_str().unwrap();
    bed.daemon.done(&["project", "add", "other", "--directory", other, "--workspace", "shared"]);
    bed.daemon.done(&["agent", "add", "two", "--ai-type", "claude"]);
    bed.daemon.done(&["project", "set", "other", "--assign", "two"]);
    bed.daemon.task("quick", "other", "two");
    bed.daemon.until_ended("two");
    assert!(!is_gone(hanging), "the other project did not wait for it");
    assert!(bed.daemon.done(&["why", "one", "prj"]).contains("preparing_workspace"));

    // A daemon that is killed leaves the process behind, and the next one ends it.
    bed.daemon.kill();
    assert!(!is_gone(hanging));
    bed.daemon.start();
    bed.until_kept("tsk");
    assert!(is_gone(hanging), "the next daemon ended it before it changed the clone");
}

#[test]
fn a_git_that_hangs_delays_a_start_without_a_clone_for_its_snapshot_only() {
    let mut daemon = Daemon::configured("");
    git(&daemon.work(), &["init", "-q", "-b", "main"]);
    let hangs = "case \"$*\" in *version*) exec GIT \"$@\";; *) exec sleep 600;; esac";
    let path = path_with_git(daemon.folder(), hangs);
    start_with(&mut daemon, &path);
    daemon.project("prj");
    daemon.agent("one", "prj", QUICK);
    daemon.task("tsk", "prj", "one");
    until("the wait is shown", || daemon.done(&["why", "one", "prj"]).contains("taking_snapshot"));
    let is_ended = || (!daemon.ended("one").is_empty()).then_some(());
    until_some_within(Duration::from_mins(1), is_ended, || "the agent did not start".to_owned());
    let status = daemon.done(&["status"]);
    assert!(status.contains("it was not taken within 20 s"), "{status}");
    // A daemon that is killed would leave the git of the next snapshot behind.
    daemon.terminate();
}

#[test]
fn a_git_that_is_killed_while_it_reads_a_clone_is_run_again() {
    let mut bed = Bed::new(&[("one", COMMITS)]);
    let folder = bed.daemon.folder().to_owned();
    // One call dies while it reads, and another one leaves the lock of a ref behind.
    let dies = format!(
        "once() {{ [ ! -e {0}/$1 ] && touch {0}/$1; }}\n\
         case \"$*\" in\n\
         *'batch-check=%(objectname)'*) once read && kill -9 $$;;\n\
         *'update-ref refs/agent-coordinator/kept/'*) once write && \
         {{ for ref; do case $ref in refs/*) mkdir -p {1}/${{ref%/*}}; \
         touch {1}/$ref.lock;; esac; done; kill -9 $$; }};;\n\
         esac\n\
         exec GIT \"$@\"",
        folder.display(),
        bed.daemon.state().join("workspaces/prj/keep.git").display()
    );
    let path = path_with_git(&folder, &dies);
    restart_with(&mut bed.daemon, &path);
    bed.daemon.task("tsk", "prj", "one");
    let shown = || bed.daemon.cli(&["workspace", "show", "tsk", "--json"]).stdout;
    let is_kept = || {
        let shown: Value = serde_json::from_str(&shown()).ok()?;
        (shown["content"]["is_complete"] == true).then_some(shown)
    };
    let kept = until_some_within(Duration::from_mins(1), is_kept, shown);
    assert_eq!(kept["content"]["n_commits"], 1, "{kept}");
    assert!(folder.join("read").exists() && folder.join("write").exists());
}
