//! Identifies the other end of a connection.
//!
//! On a Unix socket, a process of the daemon's own user belongs to a person or a script. If one of
//! its ancestors is a shim of agents, it is an agent, and has no rights of an operator or a
//! coordinator. A process of another user is only admitted if it is an agent that runs as this user
//! by the configuration (`run_as`). Over the network, a client has no rights before it shows a
//! token.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, RwLock};

use nix::unistd::Uid;

use domain::LaunchId;
use domain::peer::{
    self, Ancestor, Ancestry, Daemons, PeerRights, PeerUser, ProcessId, Sight, Top,
};
use machine::locks;
use machine::sys::{orphans, peers, processes};

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, on a Unix socket.
    Local(LocalPeer),
    /// A client that reaches the listening address, loopback or not. It is known only by the
    /// credentials that it shows.
    Network(SocketAddr),
}

impl Peer {
    /// Returns the trust in the process. Nothing is known of a process over the network.
    pub fn kind(&self) -> Option<&PeerKind> {
        match self {
            Self::Local(peer) => Some(&peer.kind),
            Self::Network(_) => None,
        }
    }
}

/// The form for logs.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(peer) => write!(f, "pid {}", peer.pid),
            Self::Network(address) => address.fmt(f),
        }
    }
}

/// The trust in the process at the other end of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerKind {
    /// The daemon's own user or root, outside every agent.
    Operator,
    /// A process below a shim, or one that can't be told from such a process.
    Agent {
        /// The launch whose shim is an ancestor of it, if a coordinator has reported the process of
        /// that shim.
        launch: Option<LaunchId>,
    },
    /// Another user.
    Unauthenticated,
}

/// A process at the other end of a Unix socket, as the kernel noted it when it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPeer {
    pub kind: PeerKind,
    pub pid: i32,
    pub uid: u32,
    pub lineage: Lineage,
}

/// The processes that show to which agent a process belongs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage {
    /// The process first, then its ancestors.
    processes: Arc<[ProcessId]>,
    /// True if these are all of its ancestors.
    is_whole: bool,
    /// The last of them that looks like a shim.
    pub outermost_shim: Option<ProcessId>,
}

impl Lineage {
    fn of(ancestry: &Ancestry) -> Self {
        let processes = ancestry
            .chain
            .iter()
            .chain(&ancestry.session_leaders)
            .map(|process| process.id)
            .collect();
        let is_whole = ancestry.top == Top::Root && orphans::FALL_TO_REAPER;
        Self { processes, is_whole, outermost_shim: peer::outermost_shim(ancestry) }
    }
}

/// The users of agents that are not the daemon's own (`run_as`). They belong to the whole process,
/// like its sockets.
static ADMITTED: RwLock<BTreeSet<u32>> = RwLock::new(BTreeSet::new());

/// This process and its name.
static OWN: LazyLock<(ProcessId, Vec<u8>)> = LazyLock::new(|| {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let id = seen(pid).map_or(ProcessId { pid, start_ticks: 0 }, |own| own.id);
    (id, peers::own_name())
});

/// Coordinators that connected to this process.
static COORDINATORS: RwLock<BTreeSet<ProcessId>> = RwLock::new(BTreeSet::new());

/// Makes processes of these users agents, too, from now on if they are below a shim. Their other
/// processes stay strangers.
pub fn admit_agents_of(uids: impl IntoIterator<Item = u32>) {
    locks::write(&ADMITTED).extend(uids);
}

fn is_admitted(uid: u32) -> bool {
    locks::read(&ADMITTED).contains(&uid)
}

/// The greatest number of looks at processes for one connection. A chain that takes more is not a
/// usual tree of processes.
const MAX_LOOKS: usize = 4096;

impl LocalPeer {
    /// Looks at the other end of a connected Unix socket.
    ///
    /// # Errors
    /// Fails if the kernel doesn't identify it. Treat that as a stranger.
    pub fn of(socket: &impl AsFd) -> std::io::Result<Self> {
        let (pid, uid) = peers::credentials(socket)?;
        let user = if uid == Uid::effective().as_raw() || uid == 0 {
            PeerUser::Daemon
        } else if is_admitted(uid) {
            PeerUser::OfAgents
        } else {
            PeerUser::Other
        };
        let (kind, lineage) = look(pid, user);
        Ok(Self { kind, pid, uid, lineage })
    }

    /// Returns the same peer as an agent of the launch that `find` names for one of its ancestors.
    /// Returns `None` if it is not an agent, or if its launch was not reported. Each call asks
    /// again, because an agent may connect before its coordinator reports the start.
    pub fn with_launch(&self, find: impl FnOnce(&[ProcessId]) -> Option<LaunchId>) -> Option<Self> {
        match self.kind {
            PeerKind::Agent { .. } => {
                let launch = find(&self.lineage.processes)?;
                Some(Self { kind: PeerKind::Agent { launch: Some(launch) }, ..self.clone() })
            }
            PeerKind::Operator | PeerKind::Unauthenticated => None,
        }
    }

    /// Returns the process and its ancestors for an agent whose launch was not reported when it was
    /// looked at. Returns `None` if these are not all ancestors.
    pub fn ancestors_of_unknown_agent(&self) -> Option<&[ProcessId]> {
        let is_unknown_agent = matches!(self.kind, PeerKind::Agent { launch: None });
        (is_unknown_agent && self.lineage.is_whole).then_some(&*self.lineage.processes)
    }

    /// Makes the processes below this one agents from now on. This one is a coordinator, which
    /// inherits the children of a killed shim.
    pub fn note_as_coordinator(&self) {
        let Some(&process) = self.lineage.processes.first() else {
            return;
        };
        if locks::read(&COORDINATORS).contains(&process) {
            return;
        }
        let mut coordinators = locks::write(&COORDINATORS);
        coordinators.retain(|known| seen(known.pid).is_some_and(|now| now.id == *known));
        coordinators.insert(process);
    }
}

fn look(pid: i32, user: PeerUser) -> (PeerKind, Lineage) {
    let ancestry = match user {
        PeerUser::Daemon | PeerUser::OfAgents => ancestry_of(pid),
        PeerUser::Other => Ancestry::UNKNOWN,
    };
    let coordinators = locks::read(&COORDINATORS);
    let daemons = Daemons { own: OWN.0, own_name: &OWN.1, coordinators: &coordinators };
    let kind = match peer::rights(user, &ancestry, daemons) {
        PeerRights::Operator => PeerKind::Operator,
        PeerRights::Unauthenticated => PeerKind::Unauthenticated,
        PeerRights::Agent => PeerKind::Agent { launch: None },
    };
    (kind, Lineage::of(&ancestry))
}

/// Walks up from `pid`. If a process ends meanwhile, it looks again. A chain that cannot be
/// followed has an unknown top.
fn ancestry_of(pid: i32) -> Ancestry {
    let mut ancestry = Ancestry::UNKNOWN;
    let mut next = pid;
    for _ in 0..MAX_LOOKS {
        let sight = peers::look(next);
        // This comes after the look at the parent. If the parent is still the same, the look was
        // not at another process with its pid.
        if let Some(child) = ancestry.chain.last() {
            match peers::look(child.id.pid) {
                Sight::Seen { start_ticks, parent: 0, .. }
                    if start_ticks == child.id.start_ticks =>
                {
                    ancestry.top = Top::Root;
                    break;
                }
                Sight::Seen { start_ticks, parent, .. } if start_ticks == child.id.start_ticks => {
                    if parent != next {
                        next = parent;
                        continue;
                    }
                }
                Sight::Seen { .. } | Sight::OtherUser | Sight::Unreadable | Sight::Gone => break,
            }
        }
        match sight {
            Sight::Seen { start_ticks, name, parent } => {
                ancestry.chain.push(ancestor(next, start_ticks, name));
                next = parent;
                if parent == 0 {
                    ancestry.top = Top::Root;
                    break;
                }
            }
            Sight::OtherUser => {
                ancestry.top = Top::OtherUser;
                break;
            }
            Sight::Gone if !ancestry.chain.is_empty() => {}
            Sight::Gone | Sight::Unreadable => break,
        }
    }
    let leaders = ancestry.chain.iter().filter_map(|process| peers::session_leader(process.id.pid));
    ancestry.session_leaders = leaders.filter_map(seen).collect();
    ancestry.is_marked = ancestry.chain.iter().any(|process| peers::is_marked(process.id.pid));
    ancestry
}

fn seen(pid: i32) -> Option<Ancestor> {
    match peers::look(pid) {
        Sight::Seen { start_ticks, name, .. } => Some(ancestor(pid, start_ticks, name)),
        Sight::OtherUser | Sight::Unreadable | Sight::Gone => None,
    }
}

fn ancestor(pid: i32, start_ticks: u64, name: Vec<u8>) -> Ancestor {
    let id = ProcessId { pid, start_ticks };
    let executable = peers::executable(pid);
    let mut ancestor = Ancestor { id, name, is_of_daemons_user: false, executable };
    ancestor.is_of_daemons_user = ancestor.is_named_like_shim() && is_of_daemons_user(pid);
    ancestor
}

/// Returns whether a process belongs to the daemon's user or to root, as all shims on this
/// machine do.
fn is_of_daemons_user(pid: i32) -> bool {
    processes::user(pid).is_some_and(|uid| uid == 0 || uid == Uid::current().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_started_us_is_an_operator() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(look(i32::try_from(parent).unwrap(), PeerUser::Daemon).0, PeerKind::Operator);
    }

    #[test]
    fn a_child_of_the_daemon_that_is_no_shim_counts_as_an_agent() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let kind = look(i32::try_from(child.id()).unwrap(), PeerUser::Daemon).0;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kind, PeerKind::Agent { launch: None });
    }

    #[test]
    fn a_process_that_is_gone_counts_as_an_agent() {
        assert_eq!(look(i32::MAX, PeerUser::Daemon).0, PeerKind::Agent { launch: None });
    }

    #[test]
    fn a_connection_tells_who_made_it() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = LocalPeer::of(&ours).unwrap();
        assert_eq!(
            (peer.pid, peer.uid),
            (i32::try_from(std::process::id()).unwrap(), Uid::effective().as_raw())
        );
    }
}
