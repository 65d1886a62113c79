//! The command line by its contract: what people and scripts read, and the exit codes they branch on.
#![allow(clippy::unwrap_used, reason = "a test")]

mod call;
mod configuration;
mod forge;
mod help;
mod logs;
mod operate;
mod reference;
mod things;

use crate::daemon::{Daemon, Said};

/// That a command fails with this exit code, says why on standard error, and nothing on standard output.
#[track_caller]
fn check_fails(daemon: &Daemon, arguments: &[&str], code: i32, why: &str) -> Said {
    let said = daemon.cli(arguments);
    assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(why), "{arguments:?}: {}", said.stderr);
    said
}
