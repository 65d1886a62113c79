//! The daemon dies while a launch uses a clone, with the real binary: the next one starts, adopts or
//! ends the launch, and has the whole result.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use agent_coordinator::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{git, until_some};
use crate::workspaces::Bed;

/// The steps of an agent that begins when the next daemon is there. It notes its starts beside its
/// clone.
const WAITS_FIRST: &[&str] = &[
    "append:../agents",
    "wait-for:../go",
    "authenticate",
    "get-my-task",
    "run:echo one >>common.txt; git commit -qam work; echo open >open.txt",
    "report:success",
];
const WHOLE: &[&str] = &[
    "append:../agents",
    "authenticate",
    "get-my-task",
    "run:echo one >>common.txt; git commit -qam work; echo open >open.txt",
    "report:success",
];
/// A process stays behind. The daemon reports an exit alone only in that case: without one, it finds
/// that all processes have ended, and reports the end at once.
const LEAVES_A_CHILD: &[&str] = &[
    "append:../agents",
    "authenticate",
    "get-my-task",
    "run:echo one >>common.txt; git commit -qam work; echo open >open.txt",
    "report:success",
    "term-ignoring-child",
];

impl Bed {
    /// Starts the daemon again, so that it dies at `point`.
    pub(super) fn restart_to_die(&mut self, point: CrashPoint) {
        self.daemon.terminate();
        let mut command = self.daemon.command();
        command.env(VARIABLE, format!("{point:?}"));
        self.daemon.spawn_as(command);
        self.daemon.until_ready();
    }

    /// Waits until the daemon has died at its crash point, and starts the next one.
    #[track_caller]
    pub(super) fn until_dead_and_restarted(&mut self, point: CrashPoint) {
        assert_eq!(self.daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
        self.daemon.start();
    }

    /// Returns the folder of the only clone that the project has or had.
    fn folder_of_clone(&self) -> PathBuf {
        let project = self.daemon.state().join("workspaces/prj");
        let names = fs::read_dir(project).unwrap().map(|entry| entry.unwrap());
        let mut found =
            names.filter(|entry| entry.file_name().to_string_lossy().starts_with("wsp_"));
        let first = found.next().unwrap();
        assert!(found.next().is_none(), "there is one clone");
        first.path()
    }
}

/// Lets the daemon die at `point`. The launches of the task then end with these outcomes, and one
/// agent has done the work.
fn die_at(point: CrashPoint, steps: &[&str], outcomes: &[&str]) {
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let settings = "workspace: { keep: off }\nbackoff: { initial: 10ms, max: 10ms }\n\
        stop: { leak_grace: 200ms }";
    let mut bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    bed.restart_to_die(point);
    bed.daemon.task("tsk", "prj", "one");
    bed.until_dead_and_restarted(point);
    let folder = bed.folder_of_clone();
    fs::write(folder.join("go"), "").unwrap();
    let kept = bed.until_kept("tsk");
    let content = &kept["content"];
    let found = (&content["n_commits"], &content["n_uncommitted"], &content["is_complete"]);
    assert_eq!(found, (&1.into(), &1.into(), &true.into()), "{point:?}");
    assert_eq!(bed.folder_of_clone(), folder, "{point:?}: the launch has the same clone");
    let ended = until_some("the launches have ended", || {
        let ended = bed.daemon.ended("one");
        let all = ended.iter().rev().map(|launch| launch["outcome"].as_str().unwrap().to_owned());
        let all: Vec<String> = all.collect();
        all.iter().any(|outcome| outcome == "completed").then_some(all)
    });
    assert_eq!(ended, outcomes, "{point:?}");
    let starts = fs::read_to_string(folder.join("agents")).unwrap();
    assert_eq!(starts.lines().count(), 1, "{point:?}: one agent was started");
    let rows: Value = bed.daemon.json(&["workspace", "list", "--all"]);
    assert_eq!(rows.as_array().unwrap().len(), 1, "{point:?}: {rows}");
    let keep = bed.daemon.state().join("workspaces/prj/keep.git");
    assert_eq!(git(&keep, &["fsck", "--no-dangling"]), "", "{point:?}");
    bed.daemon.done(&["task", "merge", "tsk", "--with-uncommitted"]);
    let read = ["common.txt", "open.txt"].map(|name| bed.read(name));
    assert_eq!(read, ["common\none\n", "open\n"], "{point:?}");
}

#[test]
fn a_claim_without_a_process_is_a_failed_start_and_the_next_launch_has_the_clone() {
    for point in [CrashPoint::Claimed, CrashPoint::FolderMade, CrashPoint::FolderReady] {
        die_at(point, WAITS_FIRST, &["start_failed", "completed"]);
    }
}

#[test]
fn an_agent_that_works_in_a_clone_is_adopted_with_it() {
    for point in [
        CrashPoint::Spawned,
        CrashPoint::AgentForked,
        CrashPoint::StartRecorded,
        CrashPoint::StartReported,
    ] {
        die_at(point, WAITS_FIRST, &["completed"]);
    }
}

#[test]
fn a_clone_whose_launch_has_ended_is_kept_after_the_end_was_reported() {
    die_at(CrashPoint::ExitSeen, LEAVES_A_CHILD, &["completed"]);
    for point in [CrashPoint::EndSeen, CrashPoint::EndReported] {
        die_at(point, WHOLE, &["completed"]);
    }
}
