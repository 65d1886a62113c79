//! The contract of the command line: the texts for people and scripts, and the exit codes for
//! scripts.
#![allow(clippy::unwrap_used, reason = "a test")]

mod call;
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

/// Checks that a command fails with this exit code, gives the reason on standard error, and prints
/// nothing on standard output.
#[track_caller]
fn check_fails(daemon: &Daemon, arguments: &[&str], code: i32, why: &str) -> Said {
    let said = daemon.cli(arguments);
    assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(why), "{arguments:?}: {}", said.stderr);
    said
}
