//! What people do with results, with the real binary: restore them, rebase them, let the agent
//! resolve a conflict, and discard them for ever.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;

use serde_json::Value;

use crate::support::{git, until};
use crate::workspaces::Bed;

impl Bed {
    fn until_state(&self, task: &str, state: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("the clone of {task} is {state}"), || {
            last = self.daemon.json(&["workspace", "show", task]);
            last["state"] == state
        });
        last
    }
}

/// The steps of an agent that leaves a commit, a staged file and an ignored one.
const LEAVES: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo '*.log' >.gitignore; git add .gitignore; git commit -qm ignore",
    "run:echo done >done.txt; git add done.txt; git commit -qm work",
    "run:echo open >open.txt; echo secret >secret.log; git rm -q common.txt",
    "report:success",
];

#[test]
fn a_removed_clone_comes_back_with_all_its_files() {
    let bed = Bed::new(&[("one", LEAVES)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    let before = bed.until_kept("tsk");
    let to = daemon.folder().join("a/copy");
    daemon.done(&["task", "discard", "PRJ-1"]);
    bed.until_state("tsk", "removed");
    assert!(!daemon.cli(&["workspace", "path", "tsk"]).stderr.is_empty());
    // The files without a clone.
    let said = daemon.done(&["task", "restore", "PRJ-1", "--to", to.to_str().unwrap()]);
    assert_eq!(said.trim(), to.to_str().unwrap());
    assert_eq!(fs::read_to_string(to.join("secret.log")).unwrap(), "secret\n");
    let again = daemon.cli(&["task", "restore", "PRJ-1", "--to", to.to_str().unwrap()]);
    assert!(again.stderr.contains("is not a new or an empty folder"), "{}", again.stderr);
    assert_eq!(daemon.json(&["workspace", "show", "tsk"])["state"], "removed");
    // The clone, although the task is done.
    let said = daemon.done(&["task", "restore", "PRJ-1"]);
    assert!(said.contains("is being made"), "{said}");
    let after = bed.until_state("tsk", "ready");
    assert_eq!(daemon.task_status("tsk"), "done");
    assert_eq!(after["discarded_at"], Value::Null);
    for fact in ["branch", "base", "base_commit"] {
        assert_eq!(after[fact], before[fact], "{fact}");
    }
    let tree = bed.tree("tsk");
    for (name, content) in
        [("done.txt", "done\n"), ("open.txt", "open\n"), ("secret.log", "secret\n")]
    {
        assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), content, "{name}");
    }
    assert!(!tree.join("common.txt").exists());
    assert_eq!(git(&tree, &["log", "--format=%s"]), "work\nignore\nfirst");
    let diff = daemon.done(&["task", "diff", "tsk"]);
    assert!(diff.contains("+++ b/done.txt"), "{diff}");
    // Asked again, it stays as it is.
    let said = daemon.done(&["task", "restore", "PRJ-1"]);
    assert!(said.contains("it is ready"), "{said}");
    let audited = daemon.logged("done by a person");
    assert!(audited.iter().any(|line| {
        line["what"] == "workspace" && line["after"].to_string().contains("wanted")
    }));
    daemon.done(&["task", "merge", "tsk"]);
    assert_eq!(bed.read("done.txt"), "done\n");
    bed.until_state("tsk", "removed");
}

#[test]
fn what_was_never_kept_cannot_be_restored() {
    let waits: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
    let bed = Bed::new(&[("one", waits)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    daemon.until_in_state("one", "running");
    let to = daemon.folder().join("copy");
    let refused = daemon.cli(&["task", "restore", "tsk", "--to", to.to_str().unwrap()]);
    assert!(refused.stderr.contains("nothing of it was kept yet"), "{}", refused.stderr);
    assert!(!to.exists());
    let said = daemon.done(&["task", "restore", "tsk"]);
    assert!(said.contains("it is in_use"), "{said}");
    fs::write(bed.tree("tsk").join("go"), "").unwrap();
    daemon.until_ended("one");
}

#[test]
fn a_clone_that_was_deleted_by_hand_is_made_again_from_the_kept_state() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:if [ -e done.txt ]; then ls >../seen; fi",
        "run:[ -e ../seen ] || { echo open >open.txt; echo >done.txt; git add done.txt; }",
        "run:[ -e ../seen ] || git commit -qm work",
        "report:blocked",
    ];
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let settings = "backoff: { initial: 10ms, max: 10ms }\nworkspace: { keep: off }";
    let bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let tree = bed.tree("tsk");
    fs::remove_dir_all(&tree).unwrap();
    daemon.done(&["task", "set", "tsk", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    let broken = bed.until_state("tsk", "broken");
    assert!(broken["reason"].as_str().unwrap().contains("are gone"), "{broken}");
    daemon.done(&["workspace", "retry", "tsk"]);
    let seen = tree.parent().unwrap().join("seen");
    until("the agent has worked on what was kept", || {
        seen.exists() && daemon.task_status("tsk") == "blocked"
    });
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("done.txt") && seen.contains("open.txt"), "{seen}");
    let after = bed.until_state("tsk", "ready");
    assert_eq!(after["content"]["n_commits"], 1);
}
