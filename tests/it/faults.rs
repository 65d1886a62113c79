//! What goes wrong, with the real binary as a daemon: daemons, keepers and agents that are killed, disks that are full, files
//! that are damaged. The numbers in the names of the parts' comments are the rows of the fault catalogue (supervision.md).
#![allow(clippy::unwrap_used, reason = "a test")]

mod catalogue;
#[cfg(debug_assertions)]
mod crash_points;
mod database;
mod endings;
mod files;
mod full_disk;
mod limits;
mod ordinary_user;
mod output;
mod restart;
mod secrets;
mod starting;
mod terminal;
mod time_limits;
mod trees;
mod unstartable;

use std::fs::File;
use std::path::PathBuf;

use agent_coordinator::instance_dir::{self, SHIM_COMM};
use agent_coordinator::sys::processes;
use rustix::fs::FlockOperation;
use serde_json::Value;

use crate::daemon::Daemon;

pub use ordinary_user::of_user as daemon_of_ordinary_user;

/// A process that no daemon will end: the test does, however it ends itself.
struct Ended(i32);

impl Drop for Ended {
    fn drop(&mut self) {
        crate::support::kill(self.0, rustix::process::Signal::KILL);
    }
}

/// The process that keeps the agent with this pid.
pub fn keeper_of(agent: i32) -> i32 {
    let keeper = processes::read(agent).unwrap().parent;
    assert_eq!(processes::comm(keeper).as_deref(), Some(SHIM_COMM));
    keeper
}

/// The instance folder of a launch.
fn folder(daemon: &Daemon, launch: &Value) -> PathBuf {
    let launch = launch["launch_id"].as_str().unwrap().parse().unwrap();
    instance_dir::find(&daemon.state(), &launch).unwrap()
}

/// What any number of agents wait for without doing anything, as long as this is.
struct Gate {
    /// Locked.
    _file: File,
}

impl Gate {
    /// The step with which an agent waits for it.
    const STEP: &str = "run:flock -s gate true";

    fn closed(daemon: &Daemon) -> Self {
        let file = File::create(daemon.work().join("gate")).unwrap();
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        Self { _file: file }
    }
}
