//! Who is at the other end of a connection. On a Unix socket, a process of the daemon's own user is a person's or a script's,
//! unless one of its ancestors is a keeper of agents: then it is an agent, and has no operator's or coordinator's rights
//! (supervision.md, "Security with one uid"). Of other users, only agents come in that run as them by the
//! configuration (`run_as`). Over the network nobody is anything before it shows a token.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock};

use nix::unistd::Uid;

use crate::domain::LaunchId;
use crate::domain::instance::SHIM_COMM;
use crate::sys::{peers, processes};

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, on a Unix socket.
    Local(LocalPeer),
    /// Anyone who reaches the address that is listened on, loopback or not: known by what it shows only.
    Network(SocketAddr),
}

impl Peer {
    /// What its process may be trusted with; nothing is known of that over the network.
    pub fn kind(&self) -> Option<&PeerKind> {
        match self {
            Self::Local(peer) => Some(&peer.kind),
            Self::Network(_) => None,
        }
    }
}

/// For logs.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(peer) => write!(f, "pid {}", peer.pid),
            Self::Network(address) => address.fmt(f),
        }
    }
}

/// What the process at the other end of a Unix socket may be trusted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerKind {
    /// The daemon's own user or root, outside every agent.
    Operator,
    /// A process below a keeper, or one that can't be told from such.
    Agent {
        /// Whose keeper it is below, where that is known.
        launch: Option<LaunchId>,
    },
    /// Another user.
    Stranger,
}

/// A process at the other end of a Unix socket, as the kernel noted it when it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPeer {
    pub kind: PeerKind,
    pub pid: i32,
    pub uid: u32,
}

/// Users of agents that are not the daemon's own (`run_as`). Of the process, as its sockets are.
static ADMITTED: RwLock<BTreeSet<u32>> = RwLock::new(BTreeSet::new());

/// From now on, processes of these users are agents where they are below a keeper; anything else of them stays a stranger.
pub fn admit_agents_of(uids: impl IntoIterator<Item = u32>) {
    *ADMITTED.write().unwrap_or_else(PoisonError::into_inner) = uids.into_iter().collect();
}

fn is_admitted(uid: u32) -> bool {
    ADMITTED.read().unwrap_or_else(PoisonError::into_inner).contains(&uid)
}

/// More ancestors than this are no process tree but a mistake.
const MAX_ANCESTORS: usize = 4096;

impl LocalPeer {
    /// Looks at the other end of a connected Unix socket.
    ///
    /// # Errors
    /// When the kernel doesn't tell; treat that as a stranger.
    pub fn of(socket: &impl AsFd) -> std::io::Result<Self> {
        let (pid, uid) = peers::credentials(socket)?;
        let kind = if uid == Uid::effective().as_raw() || uid == 0 {
            kind_of(pid)
        } else if is_admitted(uid) {
            // That it is below a keeper must be seen: what can't be told is more likely that user's own.
            match kind_of(pid) {
                PeerKind::Agent { launch: Some(launch) } => PeerKind::Agent { launch: Some(launch) },
                PeerKind::Agent { launch: None } | PeerKind::Operator | PeerKind::Stranger => PeerKind::Stranger,
            }
        } else {
            PeerKind::Stranger
        };
        Ok(Self { kind, pid, uid })
    }
}

fn kind_of(pid: i32) -> PeerKind {
    let mut walked = Vec::new();
    match kind_by_ancestors(pid, &mut walked) {
        PeerKind::Operator => kind_by_traces(&walked).unwrap_or(PeerKind::Operator),
        seen => seen,
    }
}

/// What has no keeper above it any more, where orphans don't fall to theirs, and yet shows that it is an agent's.
fn kind_by_traces(walked: &[i32]) -> Option<PeerKind> {
    let mut leaders = walked.iter().filter_map(|pid| peers::session_leader(*pid));
    let is_keeper = |pid: &i32| processes::comm(*pid).is_some_and(|comm| is_keeper(*pid, &comm));
    if let Some(keeper) = leaders.find(is_keeper) {
        return Some(PeerKind::Agent { launch: launch_of_keeper(keeper) });
    }
    walked.iter().any(|pid| peers::is_marked(*pid)).then_some(PeerKind::Agent { launch: None })
}

/// Walks up from `pid`. What is gone can't show that it was no agent, so it counts as one.
fn kind_by_ancestors(pid: i32, walked: &mut Vec<i32>) -> PeerKind {
    let unknown = PeerKind::Agent { launch: None };
    let own_comm = peers::own_comm();
    let mut pid = pid;
    let mut n_ancestors = 0;
    while n_ancestors < MAX_ANCESTORS {
        let Some((comm, parent)) = peers::comm_and_parent(pid) else { return unknown };
        if is_keeper(pid, &comm) {
            return PeerKind::Agent { launch: launch_of_keeper(pid) };
        }
        walked.push(pid);
        if parent == 0 {
            return PeerKind::Operator;
        }
        match peers::comm_and_parent(parent) {
            // What a killed keeper leaves behind falls to its daemon: this one, or a coordinator beside it.
            Some((comm, _)) if comm == own_comm => return unknown,
            Some(_) => pid = parent,
            // Hidden (`hidepid`): of another user, so no keeper of ours. Or just gone: then its child has a new parent by now.
            None => match peers::comm_and_parent(pid) {
                Some((_, again)) if again == parent => return PeerKind::Operator,
                _ => {}
            },
        }
        n_ancestors += 1;
    }
    unknown
}

/// Whether a process of this name is one: anybody may take the name.
fn is_keeper(pid: i32, comm: &str) -> bool {
    comm == SHIM_COMM && is_of_daemons_user(pid)
}

/// Whether a process is ours or root's, as all keepers on this machine are.
fn is_of_daemons_user(pid: i32) -> bool {
    processes::user(pid).is_some_and(|uid| uid == 0 || uid == Uid::current().as_raw())
}

/// The launch that a keeper keeps: the folder in its argument list is named after it.
fn launch_of_keeper(pid: i32) -> Option<LaunchId> {
    let folder = processes::arguments(pid).into_iter().rfind(|argument| !argument.is_empty())?;
    std::str::from_utf8(&folder).ok()?.rsplit('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_started_us_is_an_operator() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(kind_of(i32::try_from(parent).unwrap()), PeerKind::Operator);
    }

    #[test]
    fn a_child_of_the_daemon_that_is_no_keeper_counts_as_an_agent() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let kind = kind_of(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kind, PeerKind::Agent { launch: None });
    }

    #[test]
    fn a_process_that_is_gone_counts_as_an_agent() {
        assert_eq!(kind_of(i32::MAX), PeerKind::Agent { launch: None });
    }

    #[test]
    fn a_connection_tells_who_made_it() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = LocalPeer::of(&ours).unwrap();
        assert_eq!((peer.pid, peer.uid), (i32::try_from(std::process::id()).unwrap(), Uid::effective().as_raw()));
    }
}
