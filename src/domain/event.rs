//! What happened, in order: the log that every live view reads.

use super::id::{AgentId, LaunchId, ProjectId, TaskId};
use super::time::Timestamp;

/// Something that happened, about to be committed with the change it tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub at: Timestamp,
    /// `<thing>.<what happened>`, such as `launch.ended`.
    pub kind: &'static str,
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    pub task: Option<TaskId>,
    /// The detail: a status, an outcome.
    pub detail: Option<String>,
}

/// An event with its place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Strictly growing; a reader goes on after the last one it has seen.
    pub seq: i64,
    pub at: Timestamp,
    pub kind: String,
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    pub task: Option<TaskId>,
    pub detail: Option<String>,
}
