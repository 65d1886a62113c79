//! The process at the other end of a Unix socket, and its ancestors.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// Pid and effective user of whoever connected.
pub fn credentials(socket: &impl AsFd) -> io::Result<(i32, u32)> {
    let credentials = getsockopt(socket, PeerCredentials)?;
    Ok((credentials.pid(), credentials.uid()))
}

/// The name of this process.
pub fn own_comm() -> String {
    std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned()
}

/// The name and the parent of a process, from `/proc/<pid>/stat`: `pid (comm) state ppid …`, where comm may hold anything.
pub fn comm_and_parent(pid: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (comm_from, comm_to) = (stat.find('(')? + 1, stat.rfind(')')?);
    let parent = stat[comm_to + 1..].split_whitespace().nth(1)?.parse().ok()?;
    Some((stat[comm_from..comm_to].to_owned(), parent))
}

/// The process whose session shows what it has lost as an ancestor: none is lost, orphans stay below their keeper.
pub const fn session_leader(_pid: i32) -> Option<i32> {
    None
}

/// Whether only its mark shows that a process is an agent's: its ancestors do.
pub const fn is_marked(_pid: i32) -> bool {
    false
}
