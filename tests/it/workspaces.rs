//! Clones of tasks, with the real binary: agents work apart, and people get the results.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::support::{git, until, until_some};

/// The steps of an agent that commits a file of its own and appends to a common one.
pub(super) const COMMITS: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo $AGENT_ID >$AGENT_ID.txt; echo $AGENT_ID >>common.txt",
    "run:git add $AGENT_ID.txt common.txt && git commit -qm work",
    "report:success",
];

/// A daemon whose project is a git repository with a clone for each task.
pub(super) struct Bed {
    pub(super) daemon: Daemon,
}

impl Bed {
    pub(super) fn new(agents: &[(&str, &[&str])]) -> Self {
        let bed = Self::configured("workspace: { keep: off }", agents);
        bed.daemon_with_clones(agents)
    }

    pub(super) fn configured(settings: &str, agents: &[(&str, &[&str])]) -> Self {
        let daemon = Daemon::configured(settings);
        git(&daemon.work(), &["init", "-q", "-b", "main"]);
        for (agent, steps) in agents {
            daemon.steps(agent, steps);
        }
        std::fs::write(daemon.work().join("common.txt"), "common\n").unwrap();
        git(&daemon.work(), &["add", "."]);
        git(&daemon.work(), &["commit", "-qm", "first"]);
        Self { daemon }
    }

    pub(super) fn daemon_with_clones(mut self, agents: &[(&str, &[&str])]) -> Self {
        self.daemon.start();
        let work = self.daemon.work();
        let directory = work.to_str().unwrap();
        self.daemon.done(&[
            "project",
            "add",
            "prj",
            "--directory",
            directory,
            "--workspace",
            "clone",
        ]);
        for (agent, _) in agents {
            self.daemon.done(&["agent", "add", agent, "--ai-type", "claude"]);
            self.daemon.done(&["project", "set", "prj", "--assign", agent]);
        }
        self
    }

    /// Waits until the content of the task's workspace is kept after a launch.
    pub(super) fn until_kept(&self, task: &str) -> Value {
        until_some("the content is kept", || {
            let found = self.daemon.cli(&["workspace", "show", task, "--json"]);
            let found: Value = serde_json::from_str(&found.stdout).ok()?;
            (found["state"] == "ready" && found["content"]["n_commits"].as_u64() > Some(0))
                .then_some(found)
        })
    }

    pub(super) fn tree(&self, task: &str) -> PathBuf {
        PathBuf::from(self.daemon.done(&["workspace", "path", task]).trim())
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.daemon.work().join(name)).unwrap_or_default()
    }
}

#[test]
fn two_agents_work_at_once_and_a_person_gets_both_results() {
    let both: &[(&str, &[&str])] = &[("one", COMMITS), ("two", COMMITS)];
    let bed = Bed::new(both);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    daemon.task("tsk_2", "prj", "two");
    let (first, second) = (bed.until_kept("tsk_1"), bed.until_kept("tsk_2"));
    assert_eq!(
        (&first["branch"], &second["branch"]),
        (&"agents/prj-1".into(), &"agents/prj-2".into())
    );
    assert_eq!(bed.read("one.txt"), "", "the project's directory is as it was");
    assert!(!bed.tree("tsk_1").join("two.txt").exists());
    let diff = daemon.done(&["task", "diff", "PRJ-1"]);
    assert!(diff.contains("+++ b/one.txt") && !diff.contains("two"), "{diff}");
    let stat = daemon.done(&["task", "diff", "PRJ-1", "--stat"]);
    assert!(stat.contains("one.txt"), "{stat}");

    let merged = daemon.done(&["task", "merge", "PRJ-1"]);
    assert!(merged.starts_with("main has the result: "), "{merged}");
    assert_eq!(
        (bed.read("one.txt"), bed.read("common.txt")),
        ("one\n".into(), "common\none\n".into())
    );
    let refused = daemon.cli(&["task", "merge", "PRJ-2"]);
    assert!(refused.stderr.contains("common.txt"), "the conflict is named: {}", refused.stderr);
    assert_eq!(bed.read("two.txt"), "");
    assert_eq!(git(&daemon.work(), &["status", "--porcelain"]), "");
    let again = daemon.done(&["task", "merge", "PRJ-1"]);
    assert!(again.contains("had the result before"), "{again}");

    // A result that is not wanted goes, and comes back.
    daemon.done(&["task", "discard", "PRJ-2"]);
    until("the files are removed", || {
        let shown: Value = daemon.json(&["workspace", "show", "tsk_2"]);
        shown["state"] == "removed"
    });
    let diff = daemon.done(&["task", "diff", "PRJ-2"]);
    assert!(diff.contains("+++ b/two.txt"), "the commits are kept: {diff}");
    daemon.done(&["task", "set", "tsk_2", "--status", "todo"]);
    daemon.done(&["task", "set", "tsk_2", "--status", "in_progress"]);
    until("the agent works again on its earlier branch", || {
        let shown: Value = daemon.json(&["workspace", "show", "tsk_2"]);
        let n_commits = shown["content"]["n_commits"].as_u64();
        shown["state"] == "ready" && shown["branch"] == "agents/prj-2" && n_commits == Some(2)
    });
    assert_eq!(
        std::fs::read_to_string(bed.tree("tsk_2").join("common.txt")).unwrap(),
        "common\ntwo\ntwo\n"
    );
}

#[test]
fn a_retry_goes_on_where_the_last_launch_stopped() {
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:[ -e half.txt ] || { echo half >half.txt; exit 7; }",
        "run:git add half.txt && git commit -qm done && env >../seen",
        "report:success",
    ];
    let settings = "backoff: { initial: 10ms, max: 10ms }";
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    let kept = bed.until_kept("tsk");
    assert_eq!(
        (&kept["content"]["n_commits"], &kept["content"]["n_files"]),
        (&1.into(), &1.into())
    );
    let tree = bed.tree("tsk");
    let seen = std::fs::read_to_string(tree.parent().unwrap().join("seen")).unwrap();
    assert!(seen.contains("AGENT_WORKSPACE=clone"), "{seen}");
    assert!(seen.contains(&format!("WORKING_DIRECTORY={}", tree.display())), "{seen}");
    let answers = bed.daemon.done(&["logs", "one", "prj"]);
    assert!(answers.contains("\"branch\":\"agents/prj-1\""), "{answers}");
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let waits: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];
    let bed = Bed::new(&[("one", waits)]);
    let daemon = &bed.daemon;
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path().to_str().unwrap();
    let refused = |arguments: &[&str], expected: &str| {
        let said = daemon.cli(arguments);
        assert!(said.code != 0 && said.stderr.contains(expected), "{arguments:?}: {}", said.stderr);
    };
    let add = ["project", "add", "bad", "--directory", folder, "--workspace"];
    refused(&[&add[..], &["clone"]].concat(), "is in no git repository");
    refused(&[&add[..], &["worktree"]].concat(), "expected one of shared, clone");
    refused(
        &["project", "set", "prj", "--workspace", "shared"],
        "chosen when a project is created",
    );
    daemon.task("tsk", "prj", "one");
    daemon.until_in_state("one", "running");
    refused(&["task", "merge", "tsk"], "or merge what there is now (`now`, `--now`)");
    let (status, said) = daemon.post("/tasks/tsk/workspace/merge", &serde_json::json!({}));
    assert!(status == 409 && said.contains(r#""code":"task_open""#), "{status} {said}");
    refused(&["task", "merge", "tsk", "--now", "--into", "agents/prj-1"], "cannot get the result");
    refused(&["task", "merge", "tsk", "--now", "--into", "nothing"], "has no branch `nothing`");
    refused(&["task", "diff", "PRJ-99"], "PRJ-99");
    let unstarted = daemon.done(&["task", "add", "--project", "prj", "--title", "later"]);
    refused(&["task", "diff", unstarted.trim()], "Task PRJ-2 has no workspace");
    std::fs::write(bed.tree("tsk").join("go"), "").unwrap();
    daemon.until_ended("one");
}

#[test]
fn a_source_that_is_gone_is_named_and_the_task_starts_when_it_is_back() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    let (source, aside) = (daemon.work().join(".git"), daemon.work().join("aside"));
    std::fs::rename(&source, &aside).unwrap();
    daemon.task("tsk", "prj", "one");
    until("the reason is shown", || {
        let why = daemon.done(&["why", "one", "prj"]);
        why.contains("workspace_broken")
    });
    let shown = daemon.done(&["workspace", "show", "tsk"]);
    assert!(shown.contains("is in no git repository"), "{shown}");
    std::fs::rename(&aside, &source).unwrap();
    daemon.done(&["workspace", "retry", "tsk"]);
    bed.until_kept("tsk");
}

/// The moments at which the daemon dies while it makes a workspace.
pub const MAKING: [CrashPoint; 9] = [
    CrashPoint::WorkspaceWanted,
    CrashPoint::KeepHalfMade,
    CrashPoint::SourceFollowed,
    CrashPoint::BasePinned,
    CrashPoint::WorkspaceBegun,
    CrashPoint::WorkspaceCheckedOut,
    CrashPoint::WorkspaceMade,
    CrashPoint::WorkspaceNamed,
    CrashPoint::WorkspaceReported,
];

/// The same while it keeps the content.
pub const KEEPING: [CrashPoint; 6] = [
    CrashPoint::ObjectsCopied,
    CrashPoint::PackMoved,
    CrashPoint::ObjectsTaken,
    CrashPoint::FilesTaken,
    CrashPoint::ContentKept,
    CrashPoint::ResultNamed,
];

#[test]
fn whenever_the_daemon_dies_while_it_makes_a_workspace_the_next_one_has_the_whole_result() {
    MAKING.into_iter().for_each(die_and_go_on);
}

#[test]
fn whenever_the_daemon_dies_while_it_keeps_one_the_next_one_has_the_whole_result() {
    KEEPING.into_iter().for_each(die_and_go_on);
}

/// Lets the daemon die at `point` of a task with one commit, and checks what the next one has.
fn die_and_go_on(point: CrashPoint) {
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let settings = "workspace: { keep: off }\nbackoff: { initial: 10ms, max: 10ms }";
    let mut bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    bed.daemon.terminate();
    let mut command = bed.daemon.command();
    command.env(VARIABLE, format!("{point:?}"));
    bed.daemon.spawn_as(command);
    bed.daemon.until_ready();
    bed.daemon.try_task("tsk", "prj", "one");
    assert_eq!(bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
    bed.daemon.start();
    let kept = bed.until_kept("tsk");
    let content = &kept["content"];
    let found = (&content["n_commits"], &content["n_files"], &content["is_complete"]);
    assert_eq!(found, (&1.into(), &2.into(), &true.into()), "{point:?}");
    let project = bed.daemon.state().join("workspaces/prj");
    let names = std::fs::read_dir(&project).unwrap().flatten().map(|entry| entry.file_name());
    let remains: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(remains.is_empty(), "{point:?} left {remains:?}");
    assert_eq!(git(&project.join("keep.git"), &["fsck", "--no-dangling"]), "", "{point:?}");
    bed.daemon.done(&["task", "merge", "tsk"]);
    assert_eq!(bed.read("common.txt"), "common\none\n", "{point:?}");
}

/// The moments of a merge and of a removal.
const ENDS: [CrashPoint; 4] = [
    CrashPoint::MergeMade,
    CrashPoint::MergeDelivered,
    CrashPoint::WorkspaceInTrash,
    CrashPoint::WorkspaceRemoved,
];

#[test]
fn a_merge_and_a_removal_are_repeated_after_a_crash() {
    for point in ENDS {
        let mut bed = Bed::new(&[("one", COMMITS)]);
        bed.daemon.task("tsk", "prj", "one");
        bed.until_kept("tsk");
        bed.daemon.terminate();
        let mut command = bed.daemon.command();
        command.env(VARIABLE, format!("{point:?}"));
        bed.daemon.spawn_as(command);
        bed.daemon.until_ready();
        bed.daemon.cli(&["task", "merge", "tsk"]);
        assert_eq!(bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
        bed.daemon.start();
        bed.daemon.done(&["task", "merge", "tsk"]);
        assert_eq!(bed.read("common.txt"), "common\none\n", "{point:?}");
        until("the files are removed", || {
            bed.daemon.json(&["workspace", "show", "tsk"])["state"] == "removed"
        });
        let project = bed.daemon.state().join("workspaces/prj");
        let names = std::fs::read_dir(&project).unwrap().flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, ["files.git", "keep.git"], "{point:?}");
    }
}
