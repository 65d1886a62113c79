//! The log of events in their order, which every live view reads.

use super::id::{AgentId, LaunchId, ProjectId, TaskId};
use super::key::InstanceKey;
use super::short_id::ShortId;
use super::time::Timestamp;

/// An event that is about to be committed with the change that it describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub at: Timestamp,
    /// `<thing>.<what happened>`, such as `launch.ended`.
    pub kind: &'static str,
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    pub task: Option<TaskId>,
    /// The detail of the event, such as a status or an outcome.
    pub detail: Option<String>,
}

impl NewEvent {
    /// Returns an event without any object.
    pub const fn new(kind: &'static str, at: Timestamp) -> Self {
        Self { at, kind, agent: None, project: None, launch: None, task: None, detail: None }
    }

    /// Returns an event of a pair.
    pub fn of_pair(kind: &'static str, at: Timestamp, key: &InstanceKey) -> Self {
        let agent = Some(key.agent.clone());
        let project = Some(key.project.clone());
        Self { agent, project, detail: Some(key.purpose.to_string()), ..Self::new(kind, at) }
    }
}

/// An event with its place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The number of the event. Numbers strictly grow, and a reader continues after the last one
    /// that it has seen.
    pub seq: i64,
    pub at: Timestamp,
    pub kind: String,
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    pub task: Option<TaskId>,
    /// The short id of the task as it is now.
    pub task_short_id: Option<ShortId>,
    /// The name of the person whose change it describes.
    pub author: Option<String>,
    pub detail: Option<String>,
}

/// The numbers of the events that are kept. Both are 0 if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSpan {
    pub oldest: i64,
    pub newest: i64,
}

impl EventSpan {
    /// Returns whether a reader that has seen all events up to `seq` cannot continue from there.
    /// Either the next events are not kept any more, or the reader has seen another log than this
    /// one.
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
