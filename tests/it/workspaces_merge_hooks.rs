//! Hooks of the project's repository at a merge, with the real binary.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use agent_coordinator::crash_point::CrashPoint;

use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

/// The settings with which hooks run.
const RUN: &str = "workspace: { keep: off, merge_hooks: run }";

impl Bed {
    /// Returns a bed with a finished task, whose branch has gone on meanwhile.
    fn with_hook(settings: &str, script: &str) -> Self {
        let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
        let bed = Self::configured(settings, agents).daemon_with_clones(agents);
        bed.daemon.task("tsk", "prj", "one");
        bed.until_kept("tsk");
        let work = bed.daemon.work();
        fs::write(work.join("own.txt"), "own\n").unwrap();
        git(&work, &["add", "own.txt"]);
        git(&work, &["commit", "-qm", "own"]);
        fs::create_dir_all(work.join(".git/hooks")).unwrap();
        fs::write(bed.hook(), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bed.hook(), fs::Permissions::from_mode(0o755)).unwrap();
        bed
    }

    fn hook(&self) -> PathBuf {
        self.daemon.work().join(".git/hooks/pre-merge-commit")
    }

    /// Merges with a daemon that dies at `point`, and waits until the next one has cleared up.
    fn merge_and_die(&mut self, point: CrashPoint) {
        self.restart_to_die(point);
        self.daemon.cli(&["task", "merge", "tsk"]);
        self.until_dead_and_restarted(point);
        let project = self.daemon.state().join("workspaces/prj");
        until("no record of a merge is left", || {
            let mut names = fs::read_dir(&project).unwrap().flatten().map(|it| it.file_name());
            !names.any(|name| name.to_string_lossy().starts_with("merging-"))
        });
        let status = git(&self.daemon.work(), &["status", "--porcelain"]);
        assert_eq!(status, "", "{point:?}");
    }
}

#[test]
fn a_person_says_whether_the_hooks_of_the_repository_run() {
    let bed = Bed::with_hook("workspace: { keep: off }", "cat one.txt >.git/judged; exit 1");
    let asked = bed.daemon.cli(&["task", "merge", "tsk"]).stderr;
    let hook = bed.hook().canonicalize().unwrap().display().to_string();
    for words in [&hook, "may run files of the result", "--run-hooks", "--no-hooks"] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    assert_eq!(bed.read(".git/judged"), "");
    let refused = bed.daemon.cli(&["task", "merge", "tsk", "--run-hooks"]).stderr;
    assert!(refused.contains("refused the merge") && refused.contains(&hook), "{refused}");
    assert_eq!((bed.read(".git/judged"), bed.read("one.txt")), ("one\n".into(), String::new()));
    bed.daemon.done(&["task", "merge", "tsk", "--no-hooks"]);
    assert_eq!(bed.read("one.txt"), "one\n");
}

#[test]
fn a_judged_merge_is_undone_or_complete_after_a_crash() {
    for point in [
        CrashPoint::MergeRecorded,
        CrashPoint::MergeWritten,
        CrashPoint::MergeJudged,
        CrashPoint::MergeDelivered,
    ] {
        let mut bed = Bed::with_hook(RUN, "exit 0");
        let before = git(&bed.daemon.work(), &["rev-parse", "HEAD"]);
        bed.merge_and_die(point);
        let is_merged = point == CrashPoint::MergeDelivered;
        let is_moved = git(&bed.daemon.work(), &["rev-parse", "HEAD"]) != before;
        let has_file = bed.daemon.work().join("one.txt").exists();
        assert_eq!((is_moved, has_file), (is_merged, is_merged), "{point:?}");
        bed.daemon.done(&["task", "merge", "tsk"]);
        assert_eq!(bed.read("one.txt"), "one\n", "{point:?}");
        assert_eq!(bed.read("common.txt"), "common\none\n", "{point:?}");
    }
}

#[test]
fn a_merge_that_a_hook_refused_is_undone_after_a_crash() {
    let mut bed = Bed::with_hook(RUN, "exit 1");
    bed.merge_and_die(CrashPoint::MergePutBack);
    assert!(!bed.daemon.work().join("one.txt").exists());
    fs::remove_file(bed.hook()).unwrap();
    bed.daemon.done(&["task", "merge", "tsk"]);
    assert_eq!(bed.read("one.txt"), "one\n");
}
