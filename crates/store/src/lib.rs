//! The store: the database that holds all state that outlives a process.
//!
//! ```text
//!  service ──► rows: a file for each entity, with its columns, its SQL and what it publishes
//!                │ closures with SQL
//!                └► engine: threads, groups, answers after the commit
//!                     └► sqlite, postgres: one connection each
//! ```
//!
//! A transaction is one closure. [`Engine`] runs it, in a group with others, and answers after the
//! commit. It knows tables only by the SQL of [`rows`], which is the part of SQL that both
//! databases have in common.
//!
//! [`open`] checks a database before its first write, and applies the migrations of `schema`.
//! [`backup`] and [`copy`] work on whole databases. The rules are in `domain`. `service` uses
//! [`rows`], and `app` opens, copies and restores the store.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

pub mod backup;
pub mod copy;
mod database_files;
mod db;
mod engine;
mod meter;
pub mod open;
pub mod postgres;
mod project_keys;
pub mod rows;
mod schema;
mod sqlite;
mod transaction;

pub use db::{BoxError, Cell, Cells, Columns, Db, DbError, FromCell, Value, cell, word};
pub use engine::{Connection, Engine, Locked};
pub use open::{OpenError, OpenErrorKind, Settings};
pub use transaction::{Entity, Read, Write};

use domain::chat::Sender;
use domain::id::{AgentId, LaunchId, ProjectId, TaskId};
use domain::{Purpose, TaskStatus, Timestamp};

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not {action} the store")]
    Unavailable {
        /// The attempted action: `read`, `write to`.
        action: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row that this program cannot have written.
    #[error("the store has an unreadable {what} `{id}`")]
    Unreadable {
        what: &'static str,
        id: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row has changed between the read and the write of a transaction, which is a defect of the
    /// program.
    #[error("{what} `{id}` was written meanwhile")]
    Outdated { what: &'static str, id: String },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Adds the name of the row that cannot be read.
    pub fn named(self, name: impl FnOnce() -> String) -> Self {
        match self {
            Self::Unreadable { what, source, .. } => Self::Unreadable { what, id: name(), source },
            other => other,
        }
    }
}

/// A selection of tasks. Each field that is set narrows the answer.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    pub project: Option<ProjectId>,
    pub assignee: Option<AgentId>,
    pub status: Option<TaskStatus>,
    pub parent: Option<TaskId>,
    /// Only tasks that are neither done nor cancelled.
    pub only_open: bool,
    pub archived: ArchivedTasks,
}

/// The tasks of a selection, by whether they are archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArchivedTasks {
    #[default]
    Included,
    LeftOut,
    Only,
}

/// A selection of launches, the newest first. Each field that is set narrows the answer.
#[derive(Debug, Clone, Default)]
pub struct LaunchFilter {
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub purpose: Option<Purpose>,
    /// Only launches that have ended, by the time of their end.
    pub only_ended: bool,
    /// Only launches with this end, or without one.
    pub end: Option<LaunchEnd>,
    /// Only launches that were claimed at this time or later.
    pub since: Option<Timestamp>,
    /// Only launches with a trait of each of these sets.
    pub words: Vec<LaunchTraits>,
    /// Only launches after this one in the answer. If there is no such launch, the answer is empty.
    pub after: Option<LaunchId>,
    /// The maximum number of launches.
    pub limit: usize,
}

/// The ends of launches that a filter tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchEnd {
    /// The launch goes on.
    None,
    Any,
    /// The launch ended so that people want to look at it
    /// ([`Outcome::is_bad`](domain::Outcome::is_bad)).
    Bad,
}

/// The traits by which one word finds launches. A launch needs one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchTraits {
    pub tasks: Vec<TaskId>,
    pub agents: Vec<AgentId>,
    pub purposes: Vec<Purpose>,
    /// Outcomes without their details, as in [`Outcome::as_str`](domain::Outcome::as_str).
    pub outcomes: Vec<&'static str>,
}

/// A selection of sessions, executions or notices, the newest first. Each field that is set narrows
/// the answer.
#[derive(Debug, Clone)]
pub struct HistoryFilter<Id> {
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    /// Sessions have no task.
    pub task: Option<TaskId>,
    /// Only rows that have not ended.
    pub only_open: bool,
    /// Only rows after this one in the answer. If there is no such row, the answer is empty.
    pub after: Option<Id>,
    /// The maximum number of rows.
    pub limit: usize,
}

impl<Id> HistoryFilter<Id> {
    /// Returns a filter for the newest `limit` of all rows.
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

/// A selection of messages of a chat, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageFilter {
    pub agent: AgentId,
    pub project: ProjectId,
    /// Only messages with greater numbers.
    pub after: Option<i64>,
    /// Only messages with smaller numbers.
    pub before: Option<i64>,
    /// Only messages of this sender.
    pub sender: Option<Sender>,
    /// Only visible messages.
    pub only_visible: bool,
    /// The end that is kept if there are more than `limit`.
    pub end: ChatEnd,
    /// The maximum number of messages.
    pub limit: usize,
}

impl MessageFilter {
    /// Returns a filter for the first `limit` messages of a chat, including hidden ones.
    pub const fn oldest(agent: AgentId, project: ProjectId, limit: usize) -> Self {
        Self {
            agent,
            project,
            after: None,
            before: None,
            sender: None,
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
