//! The initial state of shims and agents: sessions, descriptors, users, signals, and the
//! protection of their memory.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

use nix::libc;
use rustix::process::{DumpableBehavior, Signal};

/// Flags for `posix_spawn`: a shim has a session of its own.
pub const SPAWN_FLAGS: libc::c_int = libc::POSIX_SPAWN_SETSID as libc::c_int;
/// The name of a shim in its arguments.
pub const SHIM_ARGUMENT: &str = "agent-coordinator";

/// Added to the agent's badness, so that the kernel kills it before its shim and the daemon if
/// memory runs out.
const OOM_SCORE: i32 = 300;
/// The signals that may be ignored in a shim. The daemon starts it with the default for all others:
/// the C library uses the first ones itself (glibc two, musl three), and ignores them in the
/// processes that it spawns. Rust's runtime ignores the last one.
const IGNORED_IN_SHIMS: [libc::c_int; 4] = [32, 33, 34, libc::SIGPIPE];
/// The kernel's `struct sigaction` on 64-bit Linux: handler, flags, restorer (on some), mask.
static DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Sets the name by which other processes know this process.
pub fn take_name(name: &str) -> io::Result<()> {
    Ok(rustix::thread::set_name(&CString::new(name)?)?)
}

/// Protects `/proc/<pid>/environ`, `mem` and `fd` from processes of the same user, which agents
/// are.
pub fn hide_memory() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Closes all descriptors from `first` on, independent of those that the daemon was started with.
pub fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: changes descriptors only; the caller uses none of these yet.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes this process die with its parent, or more exactly with the thread that forked it.
///
/// All functions from here to [`default_signals`] are for a child between fork and exec: system
/// calls, no allocation and no lock.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Becomes another user for good: the groups come first, while they may still be set, and the user
/// last.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: system calls on numbers, and on a list that lives through them. The child has one
    // thread.
    unsafe {
        for result in [
            libc::setgroups(groups.len(), groups.as_ptr()),
            libc::setresgid(gid, gid, gid),
            libc::setresuid(uid, uid, uid),
        ] {
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Resets the signals that a shim may ignore. An ignored signal stays ignored through an exec; one
/// with a handler does not.
pub fn default_signals() {
    for signal in IGNORED_IN_SHIMS {
        // The C library is not used, because it hides the signals that it uses itself.
        // SAFETY: all zeros are the default disposition without flags or mask.
        unsafe {
            let nothing = std::ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const DEFAULT_ACTION,
                nothing,
                size_of::<u64>(),
            );
        }
    }
}

/// Makes the kernel kill the process before its shim and the daemon if memory runs out.
pub fn go_first(pid: i32) -> io::Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let score: i32 = std::fs::read_to_string(&path)?.trim().parse().unwrap_or(0);
    std::fs::write(path, (score + OOM_SCORE).min(1000).to_string())
}
