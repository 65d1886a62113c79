//! The contract of the command line: the texts for people and scripts, and the exit codes for
//! scripts.
#![allow(clippy::unwrap_used, reason = "a test")]

mod call;
mod completion;
mod configuration;
mod forge;
mod help;
mod logs;
mod operate;
mod reference;
mod store;
mod terminal;
mod things;
mod wait;

use crate::daemon::{Daemon, Said};
use crate::support::until;

/// Checks that a command fails with this exit code, gives the reason on standard error, and prints
/// nothing on standard output.
#[track_caller]
fn check_fails(daemon: &Daemon, arguments: &[&str], code: i32, why: &str) -> Said {
    let said = daemon.cli(arguments);
    assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(why), "{arguments:?}: {}", said.stderr);
    said
}

/// Returns a daemon with an agent that runs, one that waits, and one that failed. The second
/// has the id `waits`.
fn lively(waits: &str) -> Daemon {
    let daemon = Daemon::running("max_concurrent: 1\nbackoff: { initial: 1h, max: 1h }");
    daemon.project("prj");
    daemon.agent("agt_failed", "prj", &["exit:3"]);
    daemon.task("tsk_failed", "prj", "agt_failed");
    daemon.until_ended("agt_failed");
    daemon.agent("agt_runs", "prj", &["authenticate", "get-my-task", "write:fetched", "sleep:600"]);
    daemon.task("tsk_runs", "prj", "agt_runs");
    daemon.written_pid("fetched");
    daemon.agent(waits, "prj", &[]);
    daemon.task("tsk_waits", "prj", waits);
    until("it waits", || daemon.status()["deferred"].as_array().unwrap().len() == 2);
    daemon
}
