//! Starts child processes as another user, and limits them.
#![allow(unsafe_code, reason = "what runs between fork and exec may only make plain system calls")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::birth;

/// The ids that a process of another user gets.
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
    /// All groups, including the primary one.
    pub groups: Vec<u32>,
}

/// The limits of a child, and of each process that it starts.
pub struct ProcessLimits {
    /// In bytes.
    pub memory: u64,
    pub processor_time: Duration,
}

/// Lets a command run as another user, and with limits. Needs root. The child enters `folder` as
/// that user, who must have the right to.
///
/// # Errors
/// The path of the folder has a zero byte.
pub fn run_as(
    command: &mut Command,
    user: UserIds,
    most: &ProcessLimits,
    folder: &Path,
) -> io::Result<()> {
    let UserIds { uid, gid, groups } = user;
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let limits = limits(most.memory, most.processor_time);
    let become_user = move || {
        // Another user cannot raise them again.
        for (resource, limit) in limits {
            setrlimit(resource, limit)?;
        }
        birth::become_user(uid, gid, &groups)?;
        Ok(rustix::process::chdir(&folder)?)
    };
    // SAFETY: only system calls between fork and exec, no allocation and no lock.
    unsafe { command.pre_exec(become_user) };
    Ok(())
}

/// Lets a command run in a session of its own, so that it has no terminal, and as another user if
/// one is named. It enters `folder` as that user.
///
/// # Errors
/// The path of the folder has a zero byte.
pub fn run_apart(command: &mut Command, user: Option<UserIds>, folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let begin = move || {
        rustix::process::setsid()?;
        if let Some(user) = &user {
            birth::become_user(user.uid, user.gid, &user.groups)?;
        }
        Ok(rustix::process::chdir(&folder)?)
    };
    // SAFETY: only system calls between fork and exec, no allocation and no lock.
    unsafe { command.pre_exec(begin) };
    Ok(())
}

/// Returns the limits of a process: the memory that it may allocate, in bytes, and its processor
/// time. The end of that time is a signal (XCPU) by which it is known.
pub fn limits(memory: u64, processor_time: Duration) -> [(Resource, Rlimit); 2] {
    let seconds = processor_time.as_secs();
    let memory = Rlimit { current: Some(memory), maximum: Some(memory) };
    let time = Rlimit { current: Some(seconds), maximum: Some(seconds + 5) };
    [(Resource::Data, memory), (Resource::Cpu, time)]
}
