//! The initial state of shims and agents: sessions, descriptors, users, signals, and the
//! protection of their memory.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::io;
use std::os::fd::RawFd;
use std::ptr;

use nix::libc;

use domain::instance::SHIM_COMM;

/// Flags for `posix_spawn`: a shim has a session of its own, and only the descriptors that are
/// handed to it.
pub const SPAWN_FLAGS: libc::c_int = SETSID | libc::POSIX_SPAWN_CLOEXEC_DEFAULT;
/// `POSIX_SPAWN_SETSID` of `<spawn.h>`, since macOS 10.15.
const SETSID: libc::c_int = 0x0400;
/// The name of a shim in its arguments, which is the name of its process.
pub const SHIM_ARGUMENT: &str = SHIM_COMM;
/// The largest number of groups that the kernel holds for a process.
const MOST_GROUPS: usize = 16;
const HIGHEST_SIGNAL: libc::c_int = 31;

/// Does nothing: a process cannot name itself, so its name is the one in its arguments.
pub const fn take_name(_name: &str) -> io::Result<()> {
    Ok(())
}

/// Prevents debuggers from attaching. Processes of the same user can still read the arguments and
/// the environment.
pub fn hide_memory() -> io::Result<()> {
    // SAFETY: a request about this process, without memory.
    let result = unsafe { libc::ptrace(libc::PT_DENY_ATTACH, 0, ptr::null_mut(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Does nothing, because there are none: see [`SPAWN_FLAGS`].
pub const fn close_from(_first: RawFd) -> io::Result<()> {
    Ok(())
}

/// Does nothing on this system: an agent whose shim is killed lives until the daemon has seen the
/// shim's end.
///
/// All functions from here to [`default_signals`] are for a child between fork and exec: system
/// calls, no allocation and no lock.
pub const fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// Becomes another user for good: the groups come first, while they may still be set, and the user
/// last. Real, effective and saved ids all change, because root calls this. The process gets at
/// most the first 16 groups.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups = &groups[..groups.len().min(MOST_GROUPS)];
    let n_groups = libc::c_int::try_from(groups.len()).unwrap_or_default();
    // SAFETY: system calls on numbers, and on a list that lives through them. The child has one
    // thread.
    unsafe {
        for result in
            [libc::setgroups(n_groups, groups.as_ptr()), libc::setgid(gid), libc::setuid(uid)]
        {
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Resets all signals. An ignored signal stays ignored through an exec, and the daemon may have
/// been started with some.
pub fn default_signals() {
    for signal in 1..=HIGHEST_SIGNAL {
        // SAFETY: the default disposition; for KILL and STOP it fails without effect.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Does nothing on this system, which makes its own choice.
pub const fn go_first(_pid: i32) -> io::Result<()> {
    Ok(())
}
