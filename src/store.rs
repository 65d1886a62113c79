//! The store: transactions on the database that holds all state that outlives a process.
//!
//! A transaction is one closure. [`Engine`] runs it, in a group with others, and answers after the commit. Entities are in
//! `rows`, and rules are in `domain`: this module knows tables only by the SQL that it is given.

mod db;
mod engine;
pub mod open;
mod place;
mod schema;
mod sqlite;
mod transaction;

pub use db::{BoxError, Cells, Db, DbError, Value, cell, word};
pub use engine::{Connection, Engine};
pub use open::{OpenError, OpenErrorKind, Settings};
pub use transaction::{Entity, Read, Write};

use crate::domain::chat::Sender;
use crate::domain::id::{AgentId, LaunchId, ProjectId, TaskId};
use crate::domain::{Purpose, TaskStatus};

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
