//! The store: all state that outlives a process, behind one trait.
//!
//! Reads are plain questions. Writes are whole commits: rows as they are to be, each naming the revision it was made from, so
//! that a decision taken on outdated facts conflicts instead of overwriting. Nobody but `service` calls this module, and the
//! rules are not here: a backend compares revisions and keeps one open launch per key. It doesn't even ask whether the id in a
//! row exists.

mod db;
mod engine;
pub mod open;
mod schema;
mod sqlite;
mod transaction;

pub use db::{BoxError, Cells, DbError, Value, cell, word};
pub use engine::Engine;
pub use open::{OpenError, Settings};
pub use transaction::{Entity, Read, Write};

use futures::future::BoxFuture;

use crate::domain::agent::Assignment;
use crate::domain::chat::Sender;
use crate::domain::event::NewEvent;
use crate::domain::id::{AgentId, ItemId, LaunchId, ProjectId, TaskId};
use crate::domain::{
    Account, Agent, Credential, CredentialId, Execution, ForgeItem, InstanceKey, ItemKey, Launch,
    Message, Notice, PairRecord, Project, Purpose, Session, Task, TaskStatus, Timestamp,
};

/// The answer to a read.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// One transaction: all of it, or nothing.
///
/// Expectations are looked at first, then changes are made, each in the given order; the first that fails is the answer. Of
/// one change the revision counts before the key of its launch. Later changes see the earlier ones of the same commit.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// What must be true besides the revisions of the changed rows.
    pub expect: Vec<Expect>,
    pub changes: Vec<Change>,
}

/// A condition of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// No launch of this key is open.
    NoOpenLaunch(InstanceKey),
    /// The task still has this revision (0: it doesn't exist), although the commit doesn't change it.
    TaskAt(TaskId, i64),
    /// The launch still has this revision (0: it doesn't exist), although the commit doesn't change it.
    LaunchAt(LaunchId, i64),
    /// The record of the key still has this revision (0: nothing is remembered), although the commit doesn't change it.
    PairAt(InstanceKey, i64),
    /// Nothing was said in this chat after the message with this number.
    NoMessageAfter(Assignment, i64),
    /// New agents are being started.
    NotPaused,
    /// Nobody here works on this item of a forge.
    NoOpenItem(ItemKey),
}

/// A row as it is to be. Its `revision` is the one it was made from (0: it must not exist yet); the store counts it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Agent(Agent),
    Project(Project),
    /// Repeating it changes nothing.
    Assign(Assignment),
    /// Repeating it changes nothing.
    Unassign(Assignment),
    Task(Task),
    Launch(Launch),
    Session(Session),
    Execution(Execution),
    Notice(Notice),
    /// A new message; the store gives it its number, whatever `seq` says. There is no other with its id.
    Message(Message),
    /// The end of what the agent of a launch printed, kept where its output itself is not. The newest counts; of launches, the
    /// newest thousand by their ids, which grow with time.
    OutputTail(LaunchId, String),
    Pair(PairRecord),
    Account(Account),
    Credential(Credential),
    /// Whether it exists or not.
    ForgetCredential(CredentialId),
    /// At most one open one of each item.
    ForgeItem(ForgeItem),
    /// One that has ended; one that is open, or unknown, stays as it is.
    ForgetItem(ItemId),
    /// No new starts since then, or starts again.
    Pause(Option<Timestamp>),
    Event(NewEvent),
    /// An ended launch with its sessions, notices, executions and kept output is forgotten; one that is open, or unknown, stays as
    /// it is.
    ForgetLaunch(LaunchId),
    /// Events up to this number are forgotten.
    ForgetEvents(i64),
    /// The messages of a chat up to this number are forgotten.
    ForgetMessages(Assignment, i64),
}

/// Why a commit wasn't made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Something the decision was based on has changed: read again, decide again.
    #[error("{what} `{id}` has changed meanwhile")]
    Outdated { what: &'static str, id: String },
    /// The key has an open launch: the last guard against a double start.
    #[error("{key} has an open launch")]
    OpenLaunch { key: InstanceKey },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The store can't answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not {action} the store")]
    Unavailable {
        /// What was tried: `read`, `write to`.
        action: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row that this program can't have written.
    #[error("the store has an unreadable {what} `{id}`")]
    Unreadable {
        what: &'static str,
        id: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row that a transaction wanted to write is another one than it read: a defect of the program.
    #[error("{what} `{id}` was written meanwhile")]
    Outdated { what: &'static str, id: String },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Names the row that can't be read.
    pub fn named(self, name: impl FnOnce() -> String) -> Self {
        match self {
            Self::Unreadable { what, source, .. } => Self::Unreadable { what, id: name(), source },
            other => other,
        }
    }
}

/// Which tasks; each field that is set narrows the answer.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    pub project: Option<ProjectId>,
    pub assignee: Option<AgentId>,
    pub status: Option<TaskStatus>,
    pub parent: Option<TaskId>,
    /// Only those that are neither done nor cancelled.
    pub only_open: bool,
}

/// Which launches, the newest first.
#[derive(Debug, Clone)]
pub struct LaunchFilter {
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub purpose: Option<Purpose>,
    /// Only those that have ended, by the time of their end.
    pub only_ended: bool,
    /// Only what comes after this one in the answer; nothing, if there is no such launch.
    pub after: Option<LaunchId>,
    /// At most so many.
    pub limit: usize,
}

/// Which rows of what agents leave behind them, the newest first; each field that is set narrows the answer.
#[derive(Debug, Clone)]
pub struct HistoryFilter<Id> {
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    /// Sessions have none.
    pub task: Option<TaskId>,
    /// Only what goes on.
    pub only_open: bool,
    /// Only what comes after this row in the answer; nothing, if there is no such row.
    pub after: Option<Id>,
    /// At most so many.
    pub limit: usize,
}

impl<Id> HistoryFilter<Id> {
    /// At most so many of all.
    pub const fn newest(limit: usize) -> Self {
        Self {
            agent: None,
            project: None,
            launch: None,
            task: None,
            only_open: false,
            after: None,
            limit,
        }
    }
}

/// Which messages of a chat, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageFilter {
    pub agent: AgentId,
    pub project: ProjectId,
    /// Only those with greater numbers.
    pub after: Option<i64>,
    /// Only those with smaller numbers.
    pub before: Option<i64>,
    /// Only those of this sender.
    pub sender: Option<Sender>,
    /// Without those that nobody is shown.
    pub only_visible: bool,
    /// Which, if there are more than `limit`.
    pub end: ChatEnd,
    /// At most so many.
    pub limit: usize,
}

impl MessageFilter {
    /// The first `limit` messages of a chat, with those that nobody is shown.
    pub const fn oldest(agent: AgentId, project: ProjectId, limit: usize) -> Self {
        let (after, before, sender) = (None, None, None);
        Self {
            agent,
            project,
            after,
            before,
            sender,
            only_visible: false,
            end: ChatEnd::Oldest,
            limit,
        }
    }
}

/// An end of a list of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatEnd {
    Oldest,
    Newest,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub n_agents: u64,
    pub n_projects: u64,
}
