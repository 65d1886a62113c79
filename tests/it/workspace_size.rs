//! Large content in clones, with the real binary: the daemon's memory does not grow with it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::{until, until_some_within};
use crate::workspaces::Bed;

/// The most memory that keeping and restoring may add, in KiB.
const MOST_ADDED: u64 = 64 << 10;

/// Returns a number of the environment, with which the long form of a test runs.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Returns the most memory that a process has used so far, in KiB.
fn peak(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn large_and_many_files_are_kept_without_memory_and_rebuildable_ones_are_not() {
    // Git streams a file that is larger than 512 MiB.
    let mebibytes = number("SIZE_LARGE_MIB", 520);
    let n_small = number("SIZE_N_SMALL", 2_000);
    let rebuildable = number("SIZE_REBUILDABLE_MIB", 2_048);
    let work = format!(
        "run:echo target/ >.gitignore; git add .gitignore; git commit -qm ignore; \
         truncate -s {mebibytes}M large; mkdir target many; truncate -s {rebuildable}M target/out; \
         seq 1 {n_small} | (cd many; split -l 1 -a 5)"
    );
    let steps: &[&str] = &["authenticate", "get-my-task", &work, "report:success"];
    let bed = Bed::new(&[("one", steps)]);
    let daemon = &bed.daemon;
    let before = peak(daemon.pid());
    daemon.task("tsk", "prj", "one");
    let shown = || daemon.cli(&["workspace", "show", "tsk", "--json"]).stdout;
    let is_kept = || {
        let shown: Value = serde_json::from_str(&shown()).ok()?;
        (shown["content"]["is_complete"] == true).then_some(shown)
    };
    let kept = until_some_within(Duration::from_mins(20), is_kept, shown);
    assert_eq!(kept["content"]["n_uncommitted"], n_small + 1, "{kept}");
    daemon.done(&["task", "discard", "tsk"]);
    until("the files are removed", || {
        daemon.json(&["workspace", "show", "tsk"])["state"] == "removed"
    });
    let to = daemon.folder().join("restored");
    daemon.done(&["task", "restore", "tsk", "--to", to.to_str().unwrap()]);
    assert_eq!(to.join("large").metadata().unwrap().len(), mebibytes << 20);
    let n_restored = fs::read_dir(to.join("many")).unwrap().count();
    assert_eq!(u64::try_from(n_restored).unwrap(), n_small);
    assert!(!to.join("target").exists());
    let added = peak(daemon.pid()) - before;
    assert!(added < MOST_ADDED, "the daemon used {added} KiB more");
}
