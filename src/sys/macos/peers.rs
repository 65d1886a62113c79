//! The process at the other end of a Unix socket, and its ancestors.
//!
//! Weaker than on Linux: an agent's process that has lost its parent has no keeper above it any more. It is known by its session or
//! its mark, and one that has shed both is taken for a person's.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};

use super::processes;
use crate::domain::instance::{MARK_VARIABLE, SHIM_COMM};

/// Pid of whoever used the other end last, and effective user of whoever connected it.
pub fn credentials(socket: &impl AsFd) -> io::Result<(i32, u32)> {
    let pid = getsockopt(socket, sockopt::LocalPeerPid)?;
    let credentials = getsockopt(socket, sockopt::LocalPeerCred)?;
    Ok((pid, credentials.uid()))
}

/// The name of this process.
pub fn own_comm() -> String {
    processes::comm(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or_default()
}

/// The name and the parent of a process.
pub fn comm_and_parent(pid: i32) -> Option<(String, i32)> {
    Some((processes::comm(pid)?, processes::read(pid)?.parent))
}

/// The keeper that a process has lost as an ancestor, where that leads its session still, with the mark of its agent; `None` for a
/// process with neither.
pub fn lost_keeper(pid: i32) -> Option<(Option<i32>, Option<String>)> {
    let leader = processes::read(pid).map(|process| process.session);
    let keeper = leader.filter(|leader| processes::comm(*leader).is_some_and(|comm| comm == SHIM_COMM));
    let mark = processes::find_variable(pid, MARK_VARIABLE);
    (keeper.is_some() || mark.is_some()).then_some((keeper, mark))
}
