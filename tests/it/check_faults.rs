//! Checks whose commands misbehave, with the real binary: they are ended, and nothing else suffers.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::Value;

use crate::support::{until, until_some_within};
use crate::workspace_full_disk::mount;
use crate::workspaces::Bed;

const COMMITS: &[&str] = &[
    "authenticate",
    "get-my-task",
    "run:echo try >>tries.txt",
    "run:git add tries.txt && git commit -qm try",
    "report:success",
];
/// The longest wait for a check that prints or writes much.
const LONG: std::time::Duration = std::time::Duration::from_mins(3);

fn bed(settings: &str) -> Bed {
    let settings = format!("backoff: {{ initial: 10ms, max: 10ms }}\n{settings}");
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let bed = Bed::configured(&settings, agents).daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    bed
}

/// Waits until the task has this status, and returns its checks.
#[track_caller]
fn checks_at(bed: &Bed, status: &str) -> Vec<Value> {
    let shown = || bed.daemon.json(&["task", "show", "tsk"]);
    let task = until_some_within(
        LONG,
        || Some(shown()).filter(|task| task["status"] == status),
        || format!("{}\n{}", shown(), bed.daemon.log()),
    );
    task["checks"].as_array().unwrap().clone()
}

#[test]
fn a_check_that_hangs_ignores_signals_and_forks_is_ended_with_all_its_processes() {
    let bed = bed(r#"
stop: { timeout: 300ms }
checks_rounds: 0
checks:
  tests:
    timeout: 1s
    command:
      - sh
      - -c
      - >-
        [ -e ../again ] && exit 0;
        touch ../again;
        trap '' TERM INT HUP;
        hang() { while :; do sleep 1; done; };
        hang &
        setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &
        hang
"#);
    let checks = checks_at(&bed, "done");
    let results: Vec<_> = checks.iter().map(|check| check["result"].as_str().unwrap()).collect();
    assert_eq!(results, ["not_run", "passed"], "{checks:?}");
    bed.daemon.until_nothing_is_left();
}

#[test]
fn a_check_that_prints_very_much_keeps_only_the_end_of_it() {
    let bed = bed(r"
checks_rounds: 0
checks:
  tests:
    command:
      - sh
      - -c
      - >-
        yes $(head -c 4000 /dev/zero | tr '\0' x) | head -c 150000000;
        echo; echo the end; exit 3
");
    let checks = checks_at(&bed, "blocked");
    assert_eq!((&checks[0]["result"], &checks[0]["exit_code"]), (&"failed".into(), &3.into()));
    let output = checks[0]["output"].as_str().unwrap();
    assert!(output.len() <= 8 * 1024 && output.ends_with("the end\n"), "{}", output.len());
    let state = bed.daemon.state();
    // The clones have a reserve.
    let used = space_of(&state) - space_of(&state.join("workspaces"));
    assert!(used < 100 << 20, "{used}");
}

#[test]
fn a_check_that_fills_the_disk_fails_and_gives_the_space_back() {
    let settings = r#"
checks_rounds: 0
checks:
  tests:
    clean: true
    command: [sh, -c, "head -c 64m /dev/zero >zeros; echo it is full; exit 1"]"#;
    let agents: &[(&str, &[&str])] = &[("one", COMMITS)];
    let bed = Bed::configured(settings, agents);
    let Some((_mount, root)) = mount(bed.daemon.folder(), "32m") else { return };
    let bed = bed.daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    let checks = checks_at(&bed, "blocked");
    assert!(checks[0]["output"].as_str().unwrap().contains("it is full"), "{checks:?}");
    until("the fresh clone is gone", || space_of(&root) < 8 << 20);
    let kept = bed.until_kept("tsk");
    assert_eq!(kept["content"]["is_complete"], true, "{kept}");
    assert_eq!(fs::read_to_string(bed.tree("tsk").join("tries.txt")).unwrap(), "try\n");
}

#[test]
fn a_success_without_a_change_is_checked_like_any_other() {
    let steps: &[&str] = &["authenticate", "get-my-task", "report:success"];
    let agents: &[(&str, &[&str])] = &[("one", steps)];
    let settings = "checks_rounds: 0\nchecks: { tests: { command: [test, -e, tries.txt] } }";
    let bed = Bed::configured(settings, agents).daemon_with_clones(agents);
    bed.daemon.task("tsk", "prj", "one");
    let checks = checks_at(&bed, "blocked");
    assert_eq!(checks[0]["result"], "failed");
}

/// Returns the space that a file, or a folder with all that is in it, uses.
fn space_of(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else { return 0 };
    let inside = found.is_dir().then(|| fs::read_dir(path).into_iter().flatten().flatten());
    let inside = inside.into_iter().flatten().map(|entry| space_of(&entry.path()));
    found.blocks() * 512 + inside.sum::<u64>()
}
