//! Faults, with the real binary as a daemon: killed daemons, shims and agents, full disks,
//! damaged files. The numbers (F-n) are those of docs/project/faults.md.
#![allow(clippy::unwrap_used, reason = "a test")]

#[cfg(debug_assertions)]
mod crash_points;
mod database;
mod endings;
mod files;
mod full_disk;
mod limits;
mod ordinary_user;
mod output;
mod postgres;
mod restart;
mod secrets;
mod shim_program;
mod starting;
mod terminal;
mod time_limits;
mod trees;
mod unstartable;
mod versions;

use std::fs::File;
use std::path::PathBuf;

use machine::instance_dir::{self, SHIM_COMM};
use machine::sys::processes;
use rustix::fs::FlockOperation;
use serde_json::Value;

use crate::daemon::Daemon;

pub use ordinary_user::of_user as daemon_of_ordinary_user;

/// A process that no daemon ends. The drop of this value ends it, however the test ends.
struct Ended(i32);

impl Drop for Ended {
    fn drop(&mut self) {
        crate::support::kill(self.0, rustix::process::Signal::KILL);
    }
}

/// Returns the shim of the agent with this pid.
pub fn shim_of(agent: i32) -> i32 {
    let shim = processes::read(agent).unwrap().parent;
    assert_eq!(processes::comm(shim).as_deref(), Some(SHIM_COMM));
    shim
}

/// Returns the instance folder of a launch.
fn folder(daemon: &Daemon, launch: &Value) -> PathBuf {
    let launch = launch["launch_id"].as_str().unwrap().parse().unwrap();
    instance_dir::find(&daemon.state(), &launch).unwrap()
}

/// A gate at which any number of agents wait until it is dropped. They use no processor time.
struct Gate {
    /// The locked file.
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
