//! What goes wrong, with the real binary as a daemon: daemons, keepers and agents that are killed, disks that are full, files
//! that are damaged. The numbers in the names of the parts' comments are the rows of the fault catalogue (supervision.md).
#![allow(clippy::unwrap_used, reason = "a test")]

#[cfg(debug_assertions)]
mod crash_points;
mod endings;
mod full_disk;
mod ordinary_user;
mod restart;
mod secrets;
mod starting;
mod time_limits;
mod trees;

use agent_coordinator::instance_dir::{SHIM_COMM, proc_fs};

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
    let keeper = proc_fs::read(agent).unwrap().parent;
    assert_eq!(proc_fs::comm(keeper).as_deref(), Some(SHIM_COMM));
    keeper
}
