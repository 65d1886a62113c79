//! Decides how far the process at the other end of a Unix socket is trusted, from its user and its
//! ancestors. Other code reads the operating system.
//!
//! An operator is a process of the daemon's user or of root that is outside every agent. This must
//! be seen: the chain of ancestors must lead up to the first process of the system, or to a process
//! of another user. Every other process is an agent. Any process can give itself any name, so a
//! name only ever takes rights away. The identities of its ancestors decide which launch an agent
//! belongs to, never a name.

use std::collections::BTreeSet;

use super::instance::SHIM_COMM;

/// The identity of a process. The pid alone may belong to another process later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    pub pid: i32,
    /// The start time, in the unit of the operating system.
    pub start_ticks: u64,
}

/// The program that a process executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executable {
    /// This program.
    Ours,
    Other,
    /// The system does not tell it. Daemons and shims hide their executable from other processes of
    /// their user.
    Unreadable,
}

/// A process in a chain of ancestors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    pub id: ProcessId,
    /// The name as any bytes. The process chooses them, and the kernel cuts them.
    pub name: Vec<u8>,
    /// True if its real user is the daemon's or root. It must be known only for a process that has
    /// the name of a shim.
    pub is_of_daemons_user: bool,
    pub executable: Executable,
}

impl Ancestor {
    /// Returns whether the process is named like a shim.
    pub fn is_named_like_shim(&self) -> bool {
        self.name == SHIM_COMM.as_bytes()
    }
}

/// The result of one look at a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    Seen {
        start_ticks: u64,
        name: Vec<u8>,
        /// The pid of its parent; 0 if it has none.
        parent: i32,
    },
    /// It cannot be read, and it may not be signalled: it belongs to another user.
    OtherUser,
    /// It cannot be read although it may be signalled, or nothing is known of it.
    Unreadable,
    /// There is no such process.
    Gone,
}

/// The end of a chain of ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Top {
    /// The chain ends at a process without a parent.
    Root,
    /// The chain ends below a process of another user, which cannot be read.
    OtherUser,
    /// The next process could not be read, or the chain changed again and again.
    Unknown,
}

/// A process and its ancestors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestry {
    /// The process first, then its parent, and so on.
    pub chain: Vec<Ancestor>,
    pub top: Top,
    /// The leaders of the sessions of these processes. They are needed if orphans do not stay below
    /// their shim.
    pub session_leaders: Vec<Ancestor>,
    /// True if one of these processes has the mark of an agent. It is needed if orphans do not stay
    /// below their shim.
    pub is_marked: bool,
}

impl Ancestry {
    /// The ancestry of a process of which nothing is known.
    pub const UNKNOWN: Self = Self {
        chain: Vec::new(),
        top: Top::Unknown,
        session_leaders: Vec::new(),
        is_marked: false,
    };
}

/// The user of the process that connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerUser {
    /// The daemon's user, or root.
    Daemon,
    /// A user that agents run as by the configuration.
    OfAgents,
    Other,
}

/// The rights of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRights {
    Operator,
    Agent,
    Unauthenticated,
}

/// The daemons of this program, as far as the deciding daemon knows them.
#[derive(Debug, Clone, Copy)]
pub struct Daemons<'a> {
    /// The deciding daemon.
    pub own: ProcessId,
    /// The name of its process.
    pub own_name: &'a [u8],
    /// Coordinators that connected to it.
    pub coordinators: &'a BTreeSet<ProcessId>,
}

impl Daemons<'_> {
    /// Returns whether the process is a daemon, or cannot be distinguished from one. The children
    /// of a killed shim become children of its daemon.
    fn include(&self, process: &Ancestor) -> bool {
        let is_known = process.id == self.own || self.coordinators.contains(&process.id);
        is_known
            || match process.executable {
                Executable::Ours => true,
                Executable::Other => false,
                Executable::Unreadable => process.name == self.own_name,
            }
    }
}

/// Decides about a process of `user` with this ancestry.
pub fn rights(user: PeerUser, ancestry: &Ancestry, daemons: Daemons<'_>) -> PeerRights {
    match user {
        PeerUser::Daemon if is_outside_agents(ancestry, daemons) => PeerRights::Operator,
        PeerUser::Daemon => PeerRights::Agent,
        // A process of such a user that is not below a shim of the daemon belongs to that user.
        PeerUser::OfAgents if outermost_shim(ancestry).is_some() => PeerRights::Agent,
        PeerUser::OfAgents | PeerUser::Other => PeerRights::Unauthenticated,
    }
}

fn is_outside_agents(ancestry: &Ancestry, daemons: Daemons<'_>) -> bool {
    let Ancestry { chain, top, session_leaders, is_marked } = ancestry;
    let [_, ancestors @ ..] = chain.as_slice() else {
        return false;
    };
    let is_below_shim = chain.iter().chain(session_leaders).any(Ancestor::is_named_like_shim);
    let is_below_daemon = ancestors.iter().any(|ancestor| daemons.include(ancestor));
    let is_whole = matches!(top, Top::Root | Top::OtherUser);
    is_whole && !is_below_shim && !is_below_daemon && !is_marked
}

/// Returns the last process of the chain that looks like a shim of the daemon. An agent can put
/// processes that look like one below its shim, but not above it.
pub fn outermost_shim(ancestry: &Ancestry) -> Option<ProcessId> {
    let is_shim = |process: &&Ancestor| process.is_named_like_shim() && process.is_of_daemons_user;
    ancestry.session_leaders.iter().chain(&ancestry.chain).rfind(is_shim).map(|process| process.id)
}

#[cfg(test)]
mod tests;
