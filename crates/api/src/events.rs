//! `/events`, and what happened to a task.

use serde::{Deserialize, Serialize};

use domain::event::Event;
use domain::{AgentId, LaunchId, ProjectId, ShortId, TaskId, Timestamp};

/// Something that happened.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventBody {
    /// It grows with each event. A follower goes on after the last one that it has seen.
    pub seq: i64,
    pub at: Timestamp,
    /// `<thing>.<what happened>`, such as `launch.ended`.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_id: Option<LaunchId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_short_id: Option<ShortId>,
    /// The name of the person whose change it describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// A status, an outcome, a purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The filter of the events to follow. An event that does not name each given object is left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventQuery {
    /// The last event that was seen. Without it, the answer begins with the next event. The header
    /// `Last-Event-ID` takes precedence over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    pub after: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
}

impl EventQuery {
    /// Returns whether the event is about all that is asked for.
    pub fn wants(&self, event: &Event) -> bool {
        fn fits<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none() || wanted == found
        }
        fits(self.project.as_ref(), event.project.as_ref())
            && fits(self.agent.as_ref(), event.agent.as_ref())
            && fits(self.launch.as_ref(), event.launch.as_ref())
    }
}

impl From<Event> for EventBody {
    fn from(event: Event) -> Self {
        Self {
            seq: event.seq,
            at: event.at,
            kind: event.kind,
            agent_id: event.agent,
            project_id: event.project,
            launch_id: event.launch,
            task_id: event.task,
            task_short_id: event.task_short_id,
            author: event.author,
            detail: event.detail,
        }
    }
}
