//! Projects without clones, with the real binary: snapshots of their git work tree, the warning of a
//! second agent, and the limit of agents in one work tree.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{git, until};

/// A daemon whose project `prj` works in a git repository.
struct Bed {
    daemon: Daemon,
}

impl Bed {
    fn new(settings: &str, agents: &[(&str, &[&str])]) -> Self {
        let mut bed = Self::unstarted(settings, agents);
        bed.daemon.start();
        bed.daemon.project("prj");
        for (agent, steps) in agents {
            bed.daemon.agent(agent, "prj", steps);
        }
        bed
    }

    fn unstarted(settings: &str, agents: &[(&str, &[&str])]) -> Self {
        let daemon = Daemon::configured(settings);
        git(&daemon.work(), &["init", "-q", "-b", "main"]);
        for (agent, steps) in agents {
            daemon.steps(agent, steps);
        }
        std::fs::write(daemon.work().join("main.txt"), "first\n").unwrap();
        git(&daemon.work(), &["add", "."]);
        git(&daemon.work(), &["commit", "-qm", "first"]);
        Self { daemon }
    }

    fn put(&self, name: &str, content: &str) {
        std::fs::write(self.daemon.work().join(name), content).unwrap();
    }

    fn snapshots(&self) -> Vec<Value> {
        let found = self.daemon.json(&["workspace", "snapshots", "prj"]);
        found.as_array().unwrap().clone()
    }
}

#[test]
fn a_person_gets_back_what_an_agent_destroys() {
    let destroys: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:git stash clear && git reset -q --hard && git clean -fdxq && git gc -q --prune=now",
        "report:success",
    ];
    let bed = Bed::new("", &[("one", destroys)]);
    bed.put("main.txt", "stashed\n");
    git(&bed.daemon.work(), &["stash", "-q"]);
    let stash = git(&bed.daemon.work(), &["rev-parse", "stash@{0}"]);
    bed.put("main.txt", "uncommitted\n");
    bed.put("untracked.txt", "untracked\n");
    bed.daemon.task("tsk", "prj", "one");
    bed.daemon.until_ended("one");
    assert!(!bed.daemon.work().join("untracked.txt").exists(), "the agent did its worst");
    until("both snapshots have their names", || bed.snapshots().len() == 2);
    let snapshots = bed.snapshots();
    let moments: Vec<&Value> = snapshots.iter().map(|snapshot| &snapshot["moment"]).collect();
    assert!(moments.contains(&&"before".into()) && moments.contains(&&"after".into()));
    let launch = snapshots[0]["launch_id"].as_str().unwrap();
    let to = bed.daemon.folder().join("restored");
    let folder = to.to_str().unwrap();
    let restore = ["workspace", "restore", "prj", launch, "--to", folder];
    bed.daemon.done(&restore);
    let read = |name: &str| std::fs::read_to_string(to.join(name)).unwrap();
    assert_eq!(
        (read("main.txt"), read("untracked.txt")),
        ("uncommitted\n".into(), "untracked\n".into())
    );
    let keep = bed.daemon.state().join("workspaces/prj/keep.git");
    assert_eq!(git(&keep, &["show", &format!("{stash}:main.txt")]), "stashed");
    let again = bed.daemon.cli(&restore);
    assert!(again.code != 0 && again.stderr.contains("empty folder"), "{}", again.stderr);
    let shown = bed.daemon.done(&["workspace", "snapshots", "prj"]);
    assert!(shown.contains(launch), "{shown}");
    assert_eq!(
        (&snapshots[0]["agent_id"], &snapshots[0]["short_id"]),
        (&"one".into(), &"PRJ-1".into())
    );
    assert!(
        shown.contains(" one ") && shown.contains(" PRJ-1 ") && !shown.contains("Z "),
        "{shown}"
    );
    let utc = bed.daemon.done(&["workspace", "snapshots", "prj", "--utc"]);
    assert!(utc.contains(snapshots[0]["at"].as_str().unwrap()), "{utc}");
    let unknown = ["workspace", "restore", "prj", "lch_none", "--to", folder];
    let refused = bed.daemon.cli(&unknown);
    assert!(
        refused.stderr.contains("has no snapshot before launch lch_none"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_second_agent_in_a_git_work_tree_is_a_visible_warning() {
    let waits: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
    let bed = Bed::new("", &[("one", waits), ("two", waits)]);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    daemon.until_in_state("one", "running");
    assert_eq!(daemon.status()["crowds"], Value::Null);
    daemon.task("tsk_2", "prj", "two");
    daemon.until_in_state("two", "running");
    let warning = "2 agents work in ";
    until("the status has the warning", || daemon.done(&["status"]).contains(warning));
    let told = daemon.done(&["why", "one", "prj"]);
    assert!(told.contains(warning) && told.contains("`workspace.shared_at_once: 1`"), "{told}");
    let told = daemon.done(&["project", "show", "prj"]);
    assert!(told.contains(warning) && told.contains("(one, two)"), "{told}");
    let told = daemon.page("/ui/projects/prj", "en");
    assert!(told.contains("Several agents work in one directory at once"), "{told}");
    let told = daemon.page("/ui/operations", "ja");
    assert!(told.contains("複数のエージェントが同じディレクトリで"), "{told}");
    let logged = daemon.log().matches("several agents work in one directory").count();
    assert_eq!(logged, 1);
    bed.put("go", "");
    daemon.until_ended("one");
    daemon.until_ended("two");
    until("the warning is over", || daemon.status()["crowds"].is_null());
}

#[test]
fn agents_beyond_shared_at_once_wait_for_their_turn() {
    let first: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
    let second: &[&str] = &["authenticate", "get-my-task", "report:success"];
    let settings = "workspace: { shared_at_once: 1 }";
    let bed = Bed::new(settings, &[("one", first), ("two", second)]);
    let daemon = &bed.daemon;
    // Another project works in a folder of the same work tree.
    let below = daemon.work().join("below");
    std::fs::create_dir(&below).unwrap();
    std::fs::copy(daemon.work().join("two.steps"), below.join("two.steps")).unwrap();
    let directory = below.to_str().unwrap();
    let added =
        daemon.cli(&["project", "add", "other", "--directory", directory, "--assign", "two"]);
    assert_eq!((added.code, added.stdout.trim()), (0, "other"));
    assert!(added.stderr.contains("`--workspace clone`"), "{}", added.stderr);
    daemon.task("tsk_1", "prj", "one");
    daemon.until_in_state("one", "running");
    daemon.task("tsk_2", "other", "two");
    until("the reason is shown", || {
        let why = daemon.done(&["why", "two", "other"]);
        why.contains("does not start: directory_in_use") && why.contains("shared_at_once` is 1")
    });
    assert!(daemon.done(&["status"]).contains("As many agents as may work in its directory"));
    assert_eq!(daemon.ended("two").len(), 0);
    bed.put("go", "");
    daemon.until_ended("two");
    assert_eq!(daemon.status()["crowds"], Value::Null);
    assert_eq!(daemon.logged("several agents work in one directory").len(), 0);
}

#[test]
fn a_git_that_does_not_work_prevents_no_start_and_is_shown() {
    let works: &[&str] = &["authenticate", "get-my-task", "report:success"];
    let mut bed = Bed::unstarted("", &[("one", works)]);
    let programs = bed.daemon.folder().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let broken = programs.join("git");
    std::fs::write(&broken, "#!/bin/sh\necho out of order >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let all = [programs].into_iter().chain(std::env::split_paths(&path)).collect::<Vec<PathBuf>>();
    let mut command = bed.daemon.command();
    command.env("PATH", std::env::join_paths(all).unwrap());
    bed.daemon.spawn_as(command);
    bed.daemon.until_ready();
    bed.daemon.project("prj");
    bed.daemon.agent("one", "prj", works);
    bed.daemon.task("tsk", "prj", "one");
    bed.daemon.until_ended("one");
    let told =
        "the last snapshot of the directory of prj failed: `git version` failed: out of order";
    until("the failure is shown", || bed.daemon.done(&["status"]).contains(told));
    let shown = bed.daemon.done(&["project", "show", "prj"]);
    assert!(shown.contains(told), "{shown}");
    assert!(
        !bed.daemon
            .logged("could not take a snapshot of the directory; agents start there without one")
            .is_empty()
    );
    assert!(bed.daemon.page("/ui/operations", "en").contains("out of order"));
}

#[test]
fn a_directory_outside_of_git_has_no_snapshots() {
    let works: &[&str] = &["authenticate", "get-my-task", "report:success"];
    let daemon = Daemon::running("");
    daemon.with_one_task(works);
    daemon.until_ended("agt");
    assert!(!daemon.state().join("workspaces").exists(), "no git process has run");
    assert_eq!(daemon.json(&["workspace", "snapshots", "prj"]), Value::Array(Vec::new()));
}
