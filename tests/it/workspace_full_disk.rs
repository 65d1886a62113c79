//! The disk space of workspaces, with the real binary: the limit, and a disk that is full at each
//! step.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use machine::crash_point::CrashPoint;
use machine::sys::files;
use serde_json::Value;

use crate::support::{Mount, git, skip, until, until_some_within};
use crate::workspaces::{Bed, COMMITS};

/// The steps of an agent that goes on working until the file `go` is in its directory.
const WAITS: &[&str] = &["authenticate", "get-my-task", "wait-for:go", "report:success"];

/// Writes content that no program makes smaller into the project's directory, and commits it.
fn add_random_file(bed: &Bed, name: &str, mebibytes: usize) {
    let from = format!("if=/dev/urandom of={name} bs=1M count={mebibytes} status=none");
    let mut dd = Command::new("dd");
    dd.args(from.split(' ')).current_dir(bed.daemon.work());
    assert!(dd.status().unwrap().success());
    git(&bed.daemon.work(), &["add", name]);
    git(&bed.daemon.work(), &["commit", "-qm", name]);
}

#[test]
fn at_the_limit_old_clones_go_first_and_then_new_ones_wait() {
    let agents: &[(&str, &[&str])] =
        &[("one", COMMITS), ("two", WAITS), ("three", WAITS), ("four", WAITS)];
    let settings = "workspace: { keep: off, max_disk: 64 MiB }";
    let bed = Bed::configured(settings, agents);
    add_random_file(&bed, "large", 22);
    let bed = bed.daemon_with_clones(agents);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    bed.until_kept("tsk_1");
    daemon.task("tsk_2", "prj", "two");
    daemon.until_in_state("two", "running");
    // Two clones and the kept work fill the limit. The clone of the closed task is removed.
    daemon.task("tsk_3", "prj", "three");
    daemon.until_in_state("three", "running");
    let first: Value = daemon.json(&["workspace", "show", "tsk_1"]);
    assert_eq!(first["state"], "removed");
    // The others are in use.
    daemon.task("tsk_4", "prj", "four");
    let expected = ["of `workspace.max_disk` 64.0 MiB", "PRJ-2 22.", "PRJ-3 22."];
    for command in [
        &["why", "four", "prj"][..],
        &["status"],
        &["workspace", "list"],
        &["workspace", "show", "tsk_4"],
    ] {
        until("the reason is shown", || {
            let shown = daemon.done(command);
            expected.iter().all(|part| shown.contains(part))
        });
    }
    assert!(daemon.done(&["why", "four", "prj"]).contains("workspace_disk"));
    fs::write(bed.tree("tsk_2").join("go"), "").unwrap();
    daemon.until_in_state("four", "running");
    for task in ["tsk_3", "tsk_4"] {
        fs::write(bed.tree(task).join("go"), "").unwrap();
    }
    daemon.until_ended("four");
}

#[test]
fn an_early_removal_that_a_crash_interrupts_is_repeated() {
    for point in [CrashPoint::WorkspaceInTrash, CrashPoint::WorkspaceRemoved] {
        let agents: &[(&str, &[&str])] = &[("one", COMMITS), ("two", WAITS), ("three", WAITS)];
        let settings = "workspace: { keep: off, max_disk: 64 MiB }";
        let bed = Bed::configured(settings, agents);
        add_random_file(&bed, "large", 22);
        let mut bed = bed.daemon_with_clones(agents);
        bed.restart_to_die(point);
        bed.daemon.task("tsk_1", "prj", "one");
        bed.until_kept("tsk_1");
        bed.daemon.task("tsk_2", "prj", "two");
        bed.daemon.until_in_state("two", "running");
        bed.daemon.task("tsk_3", "prj", "three");
        bed.until_dead_and_restarted(point);
        let daemon = &bed.daemon;
        daemon.until_in_state("three", "running");
        until("the row says that the files are gone", || {
            daemon.json(&["workspace", "show", "tsk_1"])["state"] == "removed"
        });
        let names = names_in(&daemon.state().join("workspaces/prj"));
        let is_half = |name: &String| name.starts_with(".trash-") || name.starts_with(".gone-");
        assert!(!names.iter().any(is_half), "{point:?}: {names:?}");
        for task in ["tsk_2", "tsk_3"] {
            fs::write(bed.tree(task).join("go"), "").unwrap();
        }
        daemon.until_ended("three");
        // It comes back, as after any removal.
        daemon.done(&["task", "restore", "tsk_1"]);
        until("the files are back", || {
            daemon.json(&["workspace", "show", "tsk_1"])["state"] == "ready"
        });
        assert_eq!(fs::read_to_string(bed.tree("tsk_1").join("one.txt")).unwrap(), "one\n");
    }
}

#[test]
fn a_finished_clone_that_was_deleted_by_hand_counts_as_removed_and_comes_back() {
    let bed = Bed::new(&[("one", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    let tree = bed.tree("tsk");
    fs::remove_dir_all(tree.parent().unwrap()).unwrap();
    daemon.done(&["reload"]);
    until("the row says that the files are gone", || {
        daemon.json(&["workspace", "show", "tsk"])["state"] == "removed"
    });
    daemon.done(&["task", "restore", "tsk"]);
    until("the files are back", || daemon.json(&["workspace", "show", "tsk"])["state"] == "ready");
    assert_eq!(fs::read_to_string(bed.tree("tsk").join("one.txt")).unwrap(), "one\n");
}

pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A file that takes all space of a file system but some. It is removed when this is dropped.
pub(super) struct Filler(PathBuf);

impl Filler {
    pub(super) fn new(root: &Path) -> Self {
        let filler = Self(root.join(".filler"));
        filler.leave(0);
        filler
    }

    /// Leaves this number of mebibytes free.
    pub(super) fn leave(&self, mebibytes: u64) {
        let mut file = fs::File::create(&self.0).unwrap();
        let zeros = vec![0; 64 << 10];
        while file.write_all(&zeros).is_ok() {}
        // A smaller piece may still fit.
        while file.write_all(&[0]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(mebibytes << 20)).unwrap();
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A small file system for the clones.
pub(super) fn mount(folder: &Path, size: &str) -> Option<(Mount, PathBuf)> {
    let root = folder.join("clones");
    fs::create_dir(&root).unwrap();
    let mount = Mount::small(&root, &format!("size={size},mode=0700"));
    if mount.is_none() {
        skip("a small file system can be mounted by root only");
    }
    mount.map(|mount| (mount, root))
}

#[test]
fn a_disk_that_is_full_when_work_is_kept_costs_the_reserve_and_loses_nothing() {
    let fills: &[&str] = &[
        "authenticate",
        "get-my-task",
        "run:echo one >>common.txt; git commit -qam work; head -c 64m /dev/zero >zeros || true",
        "report:success",
    ];
    let agents: &[(&str, &[&str])] = &[("one", fills)];
    let bed = Bed::configured("workspace: { keep: off, root: FOLDER/clones }", agents);
    let Some((_mount, root)) = mount(bed.daemon.folder(), "32m") else { return };
    // A file system with little free space has no reserve, so the test makes one.
    fs::write(root.join(".reserve"), vec![1; 8 << 20]).unwrap();
    let bed = bed.daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    let kept = bed.until_kept("tsk");
    assert_eq!(kept["content"]["is_complete"], true, "{kept}");
    assert!(!root.join(".reserve").exists());
    let zeros = bed.tree("tsk").join("zeros").metadata().unwrap().len();
    let commit = kept["content"]["kept_commit"].as_str().unwrap();
    let size =
        git(&root.join("prj/keep.git"), &["cat-file", "-s", &format!("{commit}:worktree/zeros")]);
    assert_eq!(size, zeros.to_string());
}

#[test]
fn a_disk_that_is_full_when_a_clone_is_made_is_named_and_the_task_starts_later() {
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let bed = Bed::configured("workspace: { keep: off, root: FOLDER/clones }", agents);
    add_random_file(&bed, "large", 20);
    let Some((_mount, root)) = mount(bed.daemon.folder(), "64m") else { return };
    let bed = bed.daemon_with_clones(agents);
    let daemon = &bed.daemon;
    let project = root.join("prj");
    let filler = Filler::new(&root);
    // There is no room for the objects, and then for them, but not for the files.
    for (mebibytes, step) in [(10, "`git index-pack`"), (30, "`git read-tree`")] {
        filler.leave(mebibytes);
        if mebibytes == 10 {
            daemon.task("tsk", "prj", "one");
        }
        let is_shown = |command: &[&str]| {
            let shown = daemon.cli(command).stdout;
            let reason = format!("the disk of `{}` is full: {step} failed", root.display());
            shown.contains(&reason)
        };
        until_some_within(
            Duration::from_mins(1),
            || {
                let commands: [&[&str]; 2] =
                    [&["why", "one", "prj"], &["workspace", "show", "tsk"]];
                commands.into_iter().all(is_shown).then_some(())
            },
            || daemon.done(&["workspace", "show", "tsk"]),
        );
        until("half a clone goes", || {
            !names_in(&project).iter().any(|name| name.starts_with(".new-"))
        });
    }
    drop(filler);
    let is_kept = || (daemon.json(&["workspace", "show", "tsk"])["state"] == "ready").then_some(());
    let complaint = || daemon.done(&["workspace", "show", "tsk"]);
    until_some_within(Duration::from_mins(1), is_kept, complaint);
    bed.until_kept("tsk");
    assert_eq!(git(&project.join("keep.git"), &["fsck", "--no-dangling"]), "");
}

/// Returns a daemon with a clone whose work is kept, on a disk that can be filled; `None` if no disk
/// can be mounted.
fn kept_on_a_small_disk() -> Option<(Mount, PathBuf, Bed)> {
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let bed = Bed::configured("workspace: { keep: off, root: FOLDER/clones }", agents);
    let (mount, root) = mount(bed.daemon.folder(), "32m")?;
    let bed = bed.daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    bed.until_kept("tsk");
    Some((mount, root, bed))
}

#[test]
fn a_disk_that_is_full_at_a_merge_is_named_and_changes_nothing() {
    let Some((_mount, root, bed)) = kept_on_a_small_disk() else { return };
    let daemon = &bed.daemon;
    // The branch goes on, so that the merge makes a commit.
    add_random_file(&bed, "other", 1);
    let before = git(&daemon.work(), &["rev-parse", "main"]);
    let filler = Filler::new(&root);
    let refused = daemon.cli(&["task", "merge", "tsk"]);
    let is_named = refused.stderr.contains(&format!("the disk of `{}` is full", root.display()));
    assert!(refused.code != 0 && is_named, "{}", refused.stderr);
    assert_eq!(git(&daemon.work(), &["rev-parse", "main"]), before);
    assert_eq!(git(&daemon.work(), &["status", "--porcelain"]), "");
    drop(filler);
    daemon.done(&["task", "merge", "tsk"]);
    assert_eq!(bed.read("common.txt"), "common\none\n");
}

#[test]
fn a_disk_that_is_full_at_a_removal_costs_no_late_change() {
    let Some((_mount, root, bed)) = kept_on_a_small_disk() else { return };
    let daemon = &bed.daemon;
    let late = bed.tree("tsk").join("late.txt");
    fs::write(&late, "late\n").unwrap();
    let filler = Filler::new(&root);
    daemon.done(&["task", "discard", "tsk"]);
    until("the reason is shown", || {
        let shown = daemon.json(&["workspace", "show", "tsk"]);
        let reason = shown["reason"].as_str().unwrap_or_default();
        shown["state"] == "ready" && reason.contains("is full")
    });
    assert!(late.exists());
    drop(filler);
    let shown = || daemon.json(&["workspace", "show", "tsk"]);
    let is_removed = || (shown()["state"] == "removed").then_some(());
    until_some_within(Duration::from_mins(1), is_removed, || shown().to_string());
    let commit = shown()["content"]["kept_commit"].as_str().unwrap().to_owned();
    let kept = ["show".to_owned(), format!("{commit}:worktree/late.txt")];
    assert_eq!(git(&root.join("prj/keep.git"), &kept.each_ref().map(String::as_str)), "late");
}

#[test]
fn an_upgrade_without_room_is_one_entry_of_the_inbox_until_there_is_room() {
    let bed = Bed::new(&[("one", COMMITS), ("two", COMMITS), ("three", COMMITS)]);
    let daemon = &bed.daemon;
    daemon.task("tsk_1", "prj", "one");
    bed.until_kept("tsk_1");
    // Version 0.1.0 linked packs. A sparse one is larger than the disk.
    let keep = daemon.state().join("workspaces/prj/keep.git");
    let large = keep.join("objects/pack/large");
    File::create(&large).unwrap().set_len(1 << 43).unwrap();
    let probe = File::create(daemon.folder().join("probe")).unwrap();
    if files::share(&File::open(&large).unwrap(), &probe).is_ok() {
        return skip("copies need no room on this file system");
    }
    fs::hard_link(&large, daemon.folder().join("linked")).unwrap();
    fs::remove_file(keep.join("mended")).unwrap();
    let inbox = || daemon.json(&["inbox", "--kind", "workspace"]);
    for (task, agent) in [("tsk_2", "two"), ("tsk_3", "three")] {
        daemon.task(task, "prj", agent);
        until("the reason is shown", || {
            daemon.done(&["why", agent, "prj"]).contains("copies 8796093022208 bytes")
        });
    }
    let listed = inbox();
    assert_eq!(listed.as_array().unwrap().len(), 1, "one of the project: {listed}");
    assert_eq!(listed[0]["title"], "No disk space for the upgrade of prj");
    let text = listed[0]["text"].as_str().unwrap();
    assert!(text.contains("copies 8.0 TiB once, but only "), "{text}");
    assert!(listed[0]["remedy"].as_str().unwrap().contains("`workspace.root`"), "{listed}");
    // The text has the free bytes, which other tests change.
    let of_project = daemon.json(&["inbox", "--project", "prj", "--kind", "workspace"]);
    assert_eq!(of_project.as_array().unwrap().len(), 1, "{of_project}");
    assert_eq!(of_project[0]["id"], listed[0]["id"]);

    let work = daemon.work();
    let directory = ["--directory", work.to_str().unwrap(), "--workspace", "clone"];
    daemon.done(&[&["project", "add", "other"], &directory[..]].concat());
    daemon.done(&["project", "set", "other", "--assign", "one"]);
    daemon.task("tsk_4", "other", "one");
    bed.until_kept("tsk_4");
    assert_eq!(inbox().as_array().unwrap().len(), 1);

    // No task of an archived project waits.
    let other = daemon.state().join("workspaces/other/keep.git");
    let large_other = other.join("objects/pack/large");
    File::create(&large_other).unwrap().set_len(1 << 43).unwrap();
    fs::hard_link(&large_other, daemon.folder().join("linked-other")).unwrap();
    fs::remove_file(other.join("mended")).unwrap();
    daemon.task("tsk_5", "other", "one");
    until("the other project has an entry", || inbox().as_array().unwrap().len() == 2);
    daemon.done(&["task", "set", "tsk_5", "--status", "cancelled"]);
    daemon.done(&["project", "archive", "other"]);
    let left = inbox();
    assert_eq!(left.as_array().unwrap().len(), 1, "only that of the other project: {left}");
    assert_eq!(left[0]["id"], listed[0]["id"]);

    fs::remove_file(&large).unwrap();
    for task in ["tsk_2", "tsk_3"] {
        bed.until_kept(task);
    }
    assert_eq!(inbox().as_array().unwrap().len(), 0);
}
