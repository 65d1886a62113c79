//! The process at the other end of a Unix socket, and its ancestors.
//!
//! This is weaker than on Linux: a process of an agent that has lost its parent no longer has a
//! shim above it. It is recognised by its session or its mark. A process that has shed both
//! counts as a person's.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

use nix::libc;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::process::Pid;

use super::processes;
use domain::instance::MARK_VARIABLE;
use domain::peer::{Executable, Sight};

/// Returns the pid of the process that last used the other end, and the effective user that
/// connected it.
pub fn credentials(socket: &impl AsFd) -> io::Result<(i32, u32)> {
    let pid = getsockopt(socket, sockopt::LocalPeerPid)?;
    let credentials = getsockopt(socket, sockopt::LocalPeerCred)?;
    Ok((pid, credentials.uid()))
}

/// Returns the name of this process.
pub fn own_name() -> Vec<u8> {
    processes::comm(rustix::process::getpid().as_raw_nonzero().get())
        .unwrap_or_default()
        .into_bytes()
}

/// Looks at a process, from this process's point of view.
pub fn look(pid: i32) -> Sight {
    if let (Some(name), Some(process)) = (processes::comm(pid), processes::read(pid)) {
        return Sight::Seen {
            start_ticks: process.start_ticks,
            name: name.into_bytes(),
            parent: process.parent,
        };
    }
    match Pid::from_raw(pid).map(rustix::process::test_kill_process) {
        Some(Err(Errno::PERM)) => Sight::OtherUser,
        Some(Err(Errno::SRCH)) => Sight::Gone,
        Some(Ok(()) | Err(_)) | None => Sight::Unreadable,
    }
}

/// Returns which program a process executes.
pub fn executable(pid: i32) -> Executable {
    let mut path = [0_u8; 4096];
    let size = u32::try_from(path.len()).expect("a path of some thousand bytes");
    // SAFETY: the kernel writes up to `size` bytes, which is what is there.
    let n = unsafe { libc::proc_pidpath(pid, path.as_mut_ptr().cast::<c_void>(), size) };
    let (Ok(n @ 1..), Ok(own)) = (usize::try_from(n), std::env::current_exe()) else {
        return Executable::Unreadable;
    };
    let is_ours = path.get(..n) == Some(own.as_os_str().as_bytes());
    if is_ours { Executable::Ours } else { Executable::Other }
}

/// Returns the process whose session shows the lost ancestors of a process.
pub fn session_leader(pid: i32) -> Option<i32> {
    processes::read(pid).map(|process| process.session)
}

/// Returns whether a process has the mark of an agent. Any process can forge the mark of a
/// particular agent.
pub fn is_marked(pid: i32) -> bool {
    processes::find_variable(pid, MARK_VARIABLE).is_some()
}
