//! What happened, in order: the log that every live view reads.

use super::id::{AgentId, LaunchId, ProjectId, TaskId};
use super::key::InstanceKey;
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

impl NewEvent {
    /// An event without any object.
    pub const fn new(kind: &'static str, at: Timestamp) -> Self {
        Self { at, kind, agent: None, project: None, launch: None, task: None, detail: None }
    }

    /// An event of a pair.
    pub fn of_pair(kind: &'static str, at: Timestamp, key: &InstanceKey) -> Self {
        let (agent, project) = (Some(key.agent.clone()), Some(key.project.clone()));
        Self { agent, project, detail: Some(key.purpose.to_string()), ..Self::new(kind, at) }
    }
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

/// Which events are kept, by their numbers; without any, both are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSpan {
    pub oldest: i64,
    pub newest: i64,
}

impl EventSpan {
    /// Whether a reader that has seen all up to `seq` can't go on from there: what came next is not kept any more, or it has seen
    /// another log than this.
    pub const fn has_lost_after(self, seq: i64) -> bool {
        seq > self.newest || seq.saturating_add(1) < self.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_go_on_where_nothing_is_missing() {
        let span = EventSpan { oldest: 5, newest: 9 };
        for (seq, has_lost) in
            [(-1, true), (0, true), (3, true), (4, false), (5, false), (9, false), (10, true)]
        {
            assert_eq!(span.has_lost_after(seq), has_lost, "{seq}");
        }
        assert!(!EventSpan::default().has_lost_after(0));
        assert!(EventSpan::default().has_lost_after(1));
    }
}
