//! Starts child processes as another user.
#![allow(unsafe_code, reason = "what runs between fork and exec may only make plain system calls")]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::birth;

/// Lets a command run as another user, with these groups and no other ones. Needs root. The
/// child enters its working directory before it becomes that user.
pub fn run_as(command: &mut Command, uid: u32, gid: u32, groups: Vec<u32>) {
    // SAFETY: only system calls between fork and exec, no allocation and no lock.
    unsafe { command.pre_exec(move || birth::become_user(uid, gid, &groups)) };
}
