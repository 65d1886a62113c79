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
mod trees;
