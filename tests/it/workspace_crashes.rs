//! The daemon dies while a launch uses a clone, with the real binary: the next one starts, adopts or
//! ends the launch, and has the whole result.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use machine::crash_point::{CrashPoint, VARIABLE};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{git, skip, until_some};
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

/// The id of an ordinary user, who owns the project's repository.
const PERSON: u32 = 1;

fn give_all(path: &Path) {
    lchown(path, Some(PERSON), Some(PERSON)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_all(&entry.unwrap().path());
        }
    }
}

/// The daemon dies in the middle of the upgrade of a project from version 0.1.0, which linked packs
/// and left files of root in the repository of a person.
#[test]
fn an_upgrade_that_was_cut_off_is_completed_and_nothing_is_lost() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root gives files to other users");
    }
    let steps: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo $AGENT_ID >$AGENT_ID.txt && git add . && git commit -qm work",
        "report:success",
    ];
    for point in [CrashPoint::PackCopied, CrashPoint::EntryGiven] {
        let mut bed = Bed::new(&[("one", steps), ("two", steps)]);
        bed.daemon.task("tsk_1", "prj", "one");
        bed.until_kept("tsk_1");
        let keep = bed.daemon.state().join("workspaces/prj/keep.git");
        let work = bed.daemon.work();
        fs::set_permissions(bed.daemon.folder(), Permissions::from_mode(0o711)).unwrap();
        let linked = bed.daemon.folder().join("linked");
        fs::create_dir(&linked).unwrap();
        let packs = || {
            let entries = fs::read_dir(keep.join("objects/pack")).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        for file in packs() {
            fs::hard_link(&file, linked.join(file.file_name().unwrap())).unwrap();
        }
        give_all(&work);
        let of_root = ["common.txt", ".git/index", ".git/refs/heads", ".git/refs/heads/main"];
        for name in of_root {
            lchown(work.join(name), Some(0), Some(0)).unwrap();
        }
        fs::remove_file(keep.join("mended")).unwrap();
        let n_of_root = || {
            let owners = of_root.map(|name| work.join(name).metadata().unwrap().uid());
            owners.iter().filter(|uid| **uid == 0).count()
        };
        let is_linked = |file: &PathBuf| {
            let found = file.metadata().unwrap();
            found.is_file() && found.nlink() > 1
        };

        bed.restart_to_die(point);
        bed.daemon.task("tsk_2", "prj", "two");
        assert_eq!(bed.daemon.wait().signal(), Some(Signal::KILL.as_raw()), "{point:?}");
        assert!(!keep.join("mended").exists(), "{point:?}");
        if point == CrashPoint::PackCopied {
            let all = packs();
            let n_linked = all.iter().filter(|file| is_linked(file)).count();
            assert!(n_linked > 0 && n_linked < all.len(), "it is in the middle");
        } else {
            assert_eq!(n_of_root(), of_root.len() - 1, "it is in the middle");
        }
        assert_eq!(git(&keep, &["fsck", "--no-dangling"]), "", "{point:?}");

        bed.daemon.start();
        bed.until_kept("tsk_2");
        assert!(keep.join("mended").is_file() && !packs().iter().any(is_linked), "{point:?}");
        assert!(!keep.join("objects/pack/.new-copy").exists(), "{point:?}");
        assert_eq!(n_of_root(), 0, "{point:?}");
        for file in fs::read_dir(&linked).unwrap() {
            fs::set_permissions(file.as_ref().unwrap().path(), Permissions::from_mode(0o600))
                .unwrap();
            fs::write(file.unwrap().path(), "overwritten").unwrap();
        }
        assert_eq!(git(&keep, &["fsck", "--no-dangling"]), "", "{point:?}");
        for task in ["tsk_1", "tsk_2"] {
            bed.daemon.done(&["task", "merge", task]);
        }
        let read = ["one.txt", "two.txt"].map(|name| bed.read(name));
        assert_eq!(read, ["one\n", "two\n"], "{point:?}");
        assert_eq!(work.join("two.txt").metadata().unwrap().uid(), PERSON, "{point:?}");
    }
}
