//! Work that an earlier version kept: it is found, listed, merged and restored.
//!
//! The fixtures have the layout of the version before results were looked for on all branches: a
//! database of schema 25, a keep repository without notes about merges, and content without the
//! facts of later versions. Its clones were removed.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::daemon::{Daemon, IN_A_FILE};
use crate::support::{git, until};

/// The settings of a keep repository of that version.
const SETTINGS: [[&str; 2]; 5] = [
    ["gc.auto", "0"],
    ["gc.pruneExpire", "never"],
    ["maintenance.auto", "false"],
    ["core.logAllRefUpdates", "always"],
    ["receive.denyDeletes", "true"],
];

/// Returns a daemon on the files of that version. The first task has a result and a file in no
/// commit, and its agent tried another way on a branch of its own. The second one was merged as a
/// squash, and the third one changed nothing.
fn daemon_after_upgrade() -> Daemon {
    let mut daemon = Daemon::configured(&format!("{IN_A_FILE}\nworkspace: {{ keep: off }}"));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/workspaces");
    let bundle = fixtures.join("keep.bundle");
    let bundle = bundle.to_str().unwrap();
    let (work, state) = (daemon.work(), daemon.state());
    git(&work, &["init", "-q", "-b", "main"]);
    git(&work, &["pull", "-q", bundle, "refs/agent-coordinator/source/heads/main"]);
    let keep = state.join("workspaces/prj/keep.git");
    fs::create_dir_all(&keep).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
    git(&keep, &["init", "-q", "--bare", "--template="]);
    for [name, value] in SETTINGS {
        git(&keep, &["config", name, value]);
    }
    git(&keep, &["fetch", "-q", bundle, "+refs/*:refs/*"]);
    let sql = fs::read_to_string(fixtures.join("state.sql")).unwrap();
    let sql = sql.replace("'WORK'", &format!("'{}'", work.display()));
    Connection::open(state.join("state.db")).unwrap().execute_batch(&sql).unwrap();
    daemon.start();
    daemon
}

fn show(daemon: &Daemon, task: &str) -> String {
    daemon.done(&["task", "show", task])
}

#[test]
fn results_that_an_earlier_version_kept_are_listed_and_mean_the_same() {
    let daemon = daemon_after_upgrade();
    let listed = daemon.json(&["task", "list", "--project", "prj"]);
    let step = |id: &str| {
        let task = listed.as_array().unwrap().iter().find(|task| task["id"] == id).unwrap();
        task["to_merge"].clone()
    };
    assert_eq!(step("tsk_1"), "merge");
    assert_eq!((step("tsk_2"), step("tsk_3")), (Value::Null, Value::Null));
    assert_eq!(daemon.status()["to_merge"], json!([{ "project_id": "prj", "n_results": 1 }]));
    assert_eq!(daemon.json(&["inbox", "--kind", "unmerged"]), json!([]));
    let result = "result: 1 commit, 1 file +1 -0, 1 uncommitted on the branch agents/prj-1\n";
    assert!(show(&daemon, "tsk_1").contains(result), "{}", show(&daemon, "tsk_1"));
    let diff = daemon.done(&["task", "diff", "tsk_1", "--stat"]);
    assert!(diff.contains("one.txt") && !diff.contains("two.txt"), "{diff}");
    let merge = git(&daemon.work(), &["rev-parse", "main"]);
    assert!(show(&daemon, "tsk_2").contains(&format!("merged as {merge}\n")));
    assert!(show(&daemon, "tsk_3").contains("changed nothing"));
}

#[test]
fn a_clone_of_an_earlier_version_comes_back_with_its_files_and_branches() {
    let daemon = daemon_after_upgrade();
    daemon.done(&["task", "restore", "tsk_1"]);
    until("the clone is there", || {
        daemon.json(&["workspace", "show", "tsk_1"])["state"] == "ready"
    });
    let tree = PathBuf::from(daemon.done(&["workspace", "path", "tsk_1"]).trim());
    for (name, content) in [("one.txt", "one\n"), ("note.txt", "note\n")] {
        assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), content, "{name}");
    }
    assert_eq!(git(&tree, &["log", "--format=%s"]), "add one\nfirst");
    assert_eq!(git(&tree, &["log", "-1", "--format=%s", "side"]), "try another way");
}

#[test]
fn a_result_of_an_earlier_version_is_merged_once_and_again_after_its_revert() {
    let daemon = daemon_after_upgrade();
    let work = daemon.work();
    let squash = git(&work, &["rev-parse", "main"]);
    daemon.done(&["task", "merge", "tsk_1"]);
    assert_eq!(fs::read_to_string(work.join("one.txt")).unwrap(), "one\n");
    let merge_two = ["task", "merge", "tsk_2", "--squash"];
    let repeated = daemon.done(&merge_two);
    assert!(repeated.contains("had the result before"), "{repeated}");
    let unchanged = daemon.done(&["task", "merge", "tsk_3"]);
    assert!(unchanged.contains("changed nothing"), "{unchanged}");
    git(&work, &["revert", "--no-edit", &squash]);
    let revert = git(&work, &["rev-parse", "HEAD"]);
    let shown = show(&daemon, "tsk_2");
    assert!(shown.contains(&format!("reverted by {revert}")), "{shown}");
    daemon.done(&merge_two);
    assert_eq!(fs::read_to_string(work.join("two.txt")).unwrap(), "two\n");
}
