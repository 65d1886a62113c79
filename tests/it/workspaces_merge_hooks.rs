//! Hooks of the project's repository at a merge, with the real binary.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use machine::crash_point::CrashPoint;
use serde_json::{Value, json};

use crate::support::{git, until};
use crate::workspaces::{Bed, COMMITS};

/// The settings with which hooks run.
const RUN: &str = "workspace: { keep: off, merge_hooks: run }";

impl Bed {
    /// Returns a bed with a finished task, whose branch has gone on meanwhile.
    fn with_hook(settings: &str, script: &str) -> Self {
        let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
        let bed = Self::configured(settings, agents).daemon_with_clones(agents);
        bed.diverge("tsk");
        fs::create_dir_all(bed.daemon.work().join(".git/hooks")).unwrap();
        fs::write(bed.hook(), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bed.hook(), fs::Permissions::from_mode(0o755)).unwrap();
        bed
    }

    /// Lets the agent finish a task, and a person go on with the branch.
    fn diverge(&self, task: &str) {
        self.daemon.task(task, "prj", "one");
        self.until_kept(task);
        let work = self.daemon.work();
        fs::write(work.join("own.txt"), task).unwrap();
        git(&work, &["add", "own.txt"]);
        git(&work, &["commit", "-qm", "own"]);
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
fn hooks_run_in_one_project_by_the_file_and_only_no_hooks_is_remembered() {
    let settings = "workspace: { keep: off, merge_hooks_in: { prj: run } }";
    let bed = Bed::with_hook(settings, "exit 1");
    let daemon = &bed.daemon;
    let refused = |task: &str| daemon.cli(&["task", "merge", task]).stderr;
    assert!(refused("tsk").contains("refused the merge"), "{}", refused("tsk"));

    let merge = json!({ "runHooks": true, "remember": true });
    let (status, answer) = daemon.post("/tasks/tsk/workspace/merge", &merge);
    assert!(status == 409 && answer.contains("hooks_not_remembered"), "{answer}");
    let said = daemon.cli(&["project", "set", "prj", "--merge-hooks", "run"]);
    assert!(said.code == 1 && said.stderr.contains("only the configuration file"), "{said:?}");
    let other = json!({ "id": "other", "workingDirectory": daemon.work(), "mergeHooks": "run" });
    let (status, answer) = daemon.post("/projects", &other);
    assert!(status == 409 && answer.contains("bad_workspace_setting"), "{answer}");
    let shown = || daemon.json(&["project", "show", "prj"])["merge_hooks"].clone();
    assert_eq!(shown(), Value::Null);

    daemon.done(&["task", "merge", "tsk", "--no-hooks"]);
    assert_eq!((bed.read("one.txt").as_str(), shown()), ("one\n", Value::Null));
    bed.diverge("tsk_2");
    daemon.done(&["task", "merge", "tsk_2", "--no-hooks", "--remember"]);
    assert_eq!(shown(), "off");
    let text = daemon.done(&["project", "show", "prj"]);
    assert!(text.contains("hooks of its repository at merges: off"), "{text}");
    bed.diverge("tsk_3");
    daemon.done(&["task", "merge", "tsk_3"]);
    daemon.done(&["project", "set", "prj", "--merge-hooks", ""]);
    assert_eq!(shown(), Value::Null);
    bed.diverge("tsk_4");
    assert!(refused("tsk_4").contains("refused the merge"), "{}", refused("tsk_4"));
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

#[test]
fn files_that_a_merge_left_are_in_the_inbox_until_a_person_has_dealt_with_them() {
    let mut bed = Bed::with_hook(RUN, "exit 0");
    bed.restart_to_die(CrashPoint::MergeJudged);
    bed.daemon.cli(&["task", "merge", "tsk"]);
    bed.daemon.wait();
    let work = bed.daemon.work().canonicalize().unwrap();
    fs::write(work.join("one.txt"), "of a person\n").unwrap();
    bed.daemon.start();
    let entry = || bed.daemon.json(&["inbox", "--kind", "interrupted_merge"])[0].clone();
    until("the inbox has an entry", || entry() != Value::Null);
    let entry_before = entry();
    let text = entry_before["text"].as_str().unwrap();
    let told = format!("changes are still in {}: common.txt, one.txt. Look", work.display());
    assert!(text.starts_with("PRJ-1 was not merged into main") && text.contains(&told), "{text}");
    assert_eq!(entry_before["project_id"], "prj");
    assert_eq!(bed.read("one.txt"), "of a person\n");
    git(&work, &["reset", "--quiet", "--hard"]);
    until("the entry has ended", || entry() == Value::Null);
    bed.daemon.done(&["task", "merge", "tsk"]);
    assert_eq!(bed.read("one.txt"), "one\n");
}
