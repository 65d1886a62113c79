//! Who is at the other end of a Unix socket. A process of the daemon's own user is a person's or a script's, unless one of its
//! ancestors is a keeper of agents: then it is an agent, and has no operator's or coordinator's rights (supervision.md,
//! "Security with one uid").

use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;

use crate::domain::instance::SHIM_COMM;

/// What a connection may be trusted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// The daemon's own user or root, outside every agent.
    Operator,
    /// A process below a keeper, or one whose ancestors can't be seen any more.
    Agent,
    /// Another user.
    Stranger,
}

/// The other end of a connection, as the kernel noted it when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub kind: PeerKind,
    pub pid: i32,
    pub uid: u32,
}

/// More ancestors than this are no process tree but a mistake.
const MAX_ANCESTORS: usize = 4096;

impl Peer {
    /// Looks at the other end of a connected Unix socket.
    ///
    /// # Errors
    /// When the kernel doesn't tell; treat that as a stranger.
    pub fn of(socket: &impl AsFd) -> std::io::Result<Self> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        let (pid, uid) = (credentials.pid(), credentials.uid());
        let kind = if uid != Uid::effective().as_raw() && uid != 0 {
            PeerKind::Stranger
        } else if is_below_keeper(pid) {
            PeerKind::Agent
        } else {
            PeerKind::Operator
        };
        Ok(Self { kind, pid, uid })
    }
}

/// Walks up from `pid`. A process that is gone can't show that it was no agent, so it counts as one.
fn is_below_keeper(pid: i32) -> bool {
    let mut pid = pid;
    for _ in 0..MAX_ANCESTORS {
        let Some((comm, parent)) = comm_and_parent(pid) else { return true };
        if comm == SHIM_COMM {
            return true;
        }
        if parent == 0 {
            return false;
        }
        pid = parent;
    }
    true
}

/// The name and the parent of a process, from `/proc/<pid>/stat`: `pid (comm) state ppid …`, where comm may hold anything.
fn comm_and_parent(pid: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (comm_from, comm_to) = (stat.find('(')? + 1, stat.rfind(')')?);
    let parent = stat[comm_to + 1..].split_whitespace().nth(1)?.parse().ok()?;
    Some((stat[comm_from..comm_to].to_owned(), parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_our_own_is_an_operators() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.pid, i32::try_from(std::process::id()).unwrap());
        assert_eq!(peer.kind, PeerKind::Operator);
    }

    #[test]
    fn a_process_that_is_gone_counts_as_an_agent() {
        assert!(is_below_keeper(i32::MAX));
    }
}
