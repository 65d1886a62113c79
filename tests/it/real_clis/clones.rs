//! Agents that commit in the clone of their task, with the permissions of the preset.

use std::fs;

use super::script::Plot;
use super::{Bed, Server, find};
use crate::support::git;

/// No settings of providers, and a check that only a commit passes.
const SETTINGS: &str = "{}\nchecks: { has: { clean: true, command: [grep, work, added.txt] } }";

/// Runs an agent that commits in its clone, a check of the commit, and the merge by a person.
fn commits(cli: &str) {
    let Some(program) = find(cli) else { return };
    let mut bed = Bed::new(cli, &program, Plot::Commit, SETTINGS, None);
    let work = bed.daemon.work();
    git(&work, &["init", "-q", "-b", "main"]);
    fs::write(work.join("common.txt"), "common\n").unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "first"]);
    bed.start(Server::Own);
    let directory = work.to_str().unwrap();
    let clones = ["--workspace", "clone"];
    bed.daemon.done(&[&["project", "add", "prj", "--directory", directory], &clones[..]].concat());
    bed.add_agent(cli);
    bed.daemon.task("tsk", "prj", "agt");
    let ended = bed.until_ended();
    assert_eq!(ended["outcome"], "completed", "{ended}\n{}", bed.said());
    bed.until("the check has passed", || (bed.daemon.task_status("tsk") == "done").then_some(()));
    let merged = bed.daemon.done(&["task", "merge", "tsk"]);
    assert!(merged.starts_with("main has the result: "), "{merged}");
    assert_eq!(fs::read_to_string(work.join("added.txt")).unwrap(), "work\n");
}

#[test]
fn claude_commits_in_a_clone() {
    commits("claude");
}

/// Its sandbox has `.git` read-only, unless the preset opens it.
#[test]
fn codex_commits_in_a_clone() {
    commits("codex");
}

#[test]
fn gemini_commits_in_a_clone() {
    commits("gemini");
}

#[test]
fn qwen_commits_in_a_clone() {
    commits("qwen");
}

#[test]
fn opencode_commits_in_a_clone() {
    commits("opencode");
}

#[test]
fn copilot_commits_in_a_clone() {
    commits("copilot");
}
