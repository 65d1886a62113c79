//! The moves of a task between statuses, as its events tell them.

use super::TaskStatus;
use crate::event::Event;
use crate::id::{AgentId, LaunchId};
use crate::time::Timestamp;

/// The person or the agent that gave a task its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mover {
    /// The name of a person or a script.
    Person(String),
    Agent(AgentId),
}

/// One change of the status of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub at: Timestamp,
    /// `None` if the event before it is not kept any more.
    pub from: Option<TaskStatus>,
    pub to: TaskStatus,
    /// The name of the person who moved the task.
    pub author: Option<String>,
    /// The launch whose agent moved the task.
    pub launch: Option<LaunchId>,
}

impl Move {
    /// Returns the moves that the events of one task tell of. Both are in order, the newest first.
    pub fn all(events: &[Event]) -> Vec<Self> {
        let statuses: Vec<(&Event, TaskStatus)> =
            events.iter().filter_map(|event| Some((event, status_of(event)?))).collect();
        let before = statuses.iter().skip(1).map(|(_, status)| Some(*status));
        let moves = statuses.iter().zip(before.chain([None]));
        moves
            .filter(|((event, to), from)| event.kind == "task.status" && *from != Some(*to))
            .map(|((event, to), from)| Self {
                at: event.at,
                from,
                to: *to,
                author: event.author.clone(),
                launch: event.launch.clone(),
            })
            .collect()
    }
}

/// Returns the status that a task has since the event; `None` if the event does not tell it.
fn status_of(event: &Event) -> Option<TaskStatus> {
    let tells = matches!(event.kind.as_str(), "task.created" | "task.status");
    event.detail.as_deref().filter(|_| tells)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: i64, kind: &str, detail: &str) -> Event {
        Event {
            seq,
            at: Timestamp::from_millis(seq),
            kind: kind.to_owned(),
            agent: None,
            project: None,
            launch: (seq == 3).then(|| "launch_1".parse().unwrap()),
            task: None,
            task_short_id: None,
            author: (seq == 5).then(|| "ann".to_owned()),
            detail: Some(detail.to_owned()),
        }
    }

    #[test]
    fn a_move_leads_from_the_status_of_the_event_before_it() {
        use TaskStatus::{Blocked, InProgress, Todo};
        let events = [
            event(5, "task.status", "in_progress"),
            event(4, "forge.item", "acme/shop#1 processing"),
            event(3, "task.status", "blocked"),
            event(2, "task.status", "in_progress"),
            event(1, "task.created", "todo"),
        ];
        let moves = Move::all(&events);
        let ways: Vec<_> = moves.iter().map(|step| (step.from, step.to)).collect();
        let expected =
            [(Some(Blocked), InProgress), (Some(InProgress), Blocked), (Some(Todo), InProgress)];
        assert_eq!(ways, expected);
        assert_eq!(moves[0].author.as_deref(), Some("ann"));
        assert_eq!(moves[1].launch, Some("launch_1".parse().unwrap()));
    }

    #[test]
    fn the_oldest_kept_event_leads_from_an_unknown_status() {
        let moves = Move::all(&[event(9, "task.status", "done"), event(8, "task.status", "done")]);
        let ways: Vec<_> = moves.iter().map(|step| (step.at.as_millis(), step.from)).collect();
        assert_eq!(ways, [(8, None)]);
    }
}
