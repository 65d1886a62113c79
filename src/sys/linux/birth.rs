//! What keepers and agents begin with: sessions, descriptors, users, signals, and what keeps others out of their memory.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

use nix::libc;
use rustix::process::{DumpableBehavior, Signal};

/// For `posix_spawn`: a keeper has a session of its own.
pub const SPAWN_FLAGS: libc::c_int = libc::POSIX_SPAWN_SETSID as libc::c_int;
/// What a keeper is called in its arguments.
pub const KEEPERS_ARGUMENT: &str = "agent-coordinator";

/// Added to the agent's badness, so that for want of memory it goes before its keeper and the daemon.
const OOM_SCORE: i32 = 300;
const HIGHEST_SIGNAL: libc::c_int = 64;
/// The kernel's `struct sigaction` on 64-bit Linux: handler, flags, restorer (on some), mask.
static DEFAULT_ACTION: [u64; 4] = [0; 4];

/// The name by which others know this process.
pub fn take_name(name: &str) -> io::Result<()> {
    Ok(rustix::thread::set_name(&CString::new(name)?)?)
}

/// Closes `/proc/<pid>/environ`, `mem` and `fd` to processes of the same user: to agents.
pub fn hide_memory() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Closes all descriptors from `first` on, whatever the daemon itself was started with.
pub fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: changes descriptors only; the caller uses none of these yet.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// This process dies with its parent, or more exactly with the thread that forked it.
///
/// From here to [`default_signals`], all is for a child between fork and exec: system calls, no allocation and no lock.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Becomes another user for good: groups while it is still allowed, the user last.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: system calls on numbers, and on a list that lives through them. The child has one thread.
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

/// An ignored signal stays ignored through an exec, and the daemon may have been started with some.
pub fn default_signals() {
    for signal in 1..=HIGHEST_SIGNAL {
        // Not by the C library, which hides two signals of its own from us and ignores them in what it spawns.
        // SAFETY: all zeros are the default disposition without flags or mask; for KILL and STOP it fails without effect.
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

/// For want of memory, the process goes before its keeper and the daemon.
pub fn go_first(pid: i32) -> io::Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let score: i32 = std::fs::read_to_string(&path)?.trim().parse().unwrap_or(0);
    std::fs::write(path, (score + OOM_SCORE).min(1000).to_string())
}
