//! Values in the form in which pages show them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::changes::CardResult;
use crate::domain::{
    Agent, AgentId, Launch, LaunchId, Outcome, Priority, ProjectId, Purpose, ShortId, Task, TaskId,
    TaskStatus, Timestamp, Usage,
};

/// A moment, which the page shows in the words and the time zone of its reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct When(pub(super) Timestamp);

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<time datetime=\"{0}\">{0}</time>", self.0)
    }
}

/// Safe, because it contains only a timestamp.
impl askama::filters::HtmlSafe for When {}

/// A duration, in its two largest units.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took(pub(super) Duration);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => write!(f, "{} ms", self.0.as_millis()),
            1..60 => write!(f, "{seconds} s"),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} min", seconds / 3600, seconds % 3600 / 60),
        }
    }
}

/// Returns the cost in US dollars; `None` if there is none.
pub(super) fn cost_of(usage: Usage) -> Option<String> {
    let cents = usage.cost_usd_micros.div_ceil(10_000);
    (cents > 0).then(|| format!("$ {}.{:02}", cents / 100, cents % 100))
}

/// An agent by its initials, with a colour.
#[derive(Debug, Clone)]
pub(super) struct Face {
    pub(super) id: AgentId,
    pub(super) name: String,
    pub(super) initials: String,
    /// One of twelve colours.
    pub(super) hue: u8,
    /// True if a process of the agent runs.
    pub(super) is_live: bool,
}

impl Face {
    pub(super) fn of(agent: &Agent, is_live: bool) -> Self {
        let words =
            agent.name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let initials: String = words.filter_map(|word| word.chars().next()).take(2).collect();
        let hue = agent
            .id
            .as_str()
            .bytes()
            .fold(7_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte))
            % 12;
        Self {
            id: agent.id.clone(),
            name: agent.name.clone(),
            initials: initials.to_uppercase(),
            hue,
            is_live,
        }
    }
}

/// The faces of agents. An unknown agent is shown by its id.
pub(super) struct Faces {
    agents: BTreeMap<AgentId, Agent>,
    live: BTreeSet<AgentId>,
}

impl Faces {
    pub(super) fn new(agents: Vec<Agent>, open: &[Launch]) -> Self {
        let live = open
            .iter()
            .filter(|launch| launch.pid.is_some())
            .map(|launch| launch.key.agent.clone())
            .collect();
        Self { agents: agents.into_iter().map(|agent| (agent.id.clone(), agent)).collect(), live }
    }

    pub(super) fn of(&self, id: &AgentId) -> Option<Face> {
        self.agents.get(id).map(|agent| Face::of(agent, self.live.contains(id)))
    }

    pub(super) fn of_all<'a>(&self, ids: impl IntoIterator<Item = &'a AgentId>) -> Vec<Face> {
        ids.into_iter().filter_map(|id| self.of(id)).collect()
    }
}

/// A task on the board.
pub(super) struct Card {
    pub(super) id: TaskId,
    pub(super) short_id: ShortId,
    pub(super) title: String,
    pub(super) status: TaskStatus,
    pub(super) priority: Priority,
    pub(super) assignee: Option<Face>,
    pub(super) parent: Option<String>,
    pub(super) n_parts: usize,
    pub(super) n_parts_done: usize,
    /// The number of dependencies that are not finished.
    pub(super) n_waits_for: usize,
    /// It starts when its dependencies are done.
    pub(super) is_start_wanted: bool,
    /// It would start after a task that was cancelled.
    pub(super) waits_for_cancelled: bool,
    pub(super) blocked_reason: Option<String>,
    /// What its agent changed.
    pub(super) result: Option<CardResult>,
    /// The sort key in its column: cards are in the order of these texts.
    pub(super) order: String,
    /// The statuses that a person may move it to, separated by spaces.
    pub(super) leads_to: String,
}

/// Returns the sort key of a task in its column. The most urgent comes first, then the one that
/// waits longest. Among closed tasks, the newest comes first.
pub(super) fn order_of(task: &Task) -> String {
    let since = task.status_since.as_millis().clamp(0, MAX_MILLIS);
    let (rank, since) = match task.status {
        TaskStatus::Done | TaskStatus::Cancelled => (0, MAX_MILLIS - since),
        TaskStatus::Backlog | TaskStatus::Todo | TaskStatus::InProgress | TaskStatus::Blocked => {
            (Priority::ALL.len() - task.priority as usize, since)
        }
    };
    format!("{rank}{since:015}{}", task.id)
}

const MAX_MILLIS: i64 = 999_999_999_999_999;

/// Returns the statuses to which a person may move a task.
pub(super) fn leads_to(status: TaskStatus) -> Vec<TaskStatus> {
    TaskStatus::ALL.iter().copied().filter(|to| status.leads_people_to(*to)).collect()
}

/// A launch in a list.
pub(super) struct LaunchRow {
    pub(super) id: LaunchId,
    pub(super) agent: AgentId,
    pub(super) project: ProjectId,
    pub(super) purpose: Purpose,
    pub(super) state: String,
    pub(super) claimed_at: When,
    pub(super) outcome: Option<Outcome>,
    pub(super) cost: Option<String>,
}

impl From<&Launch> for LaunchRow {
    fn from(launch: &Launch) -> Self {
        let outcome = launch.as_ended().map(|(outcome, _)| outcome.clone());
        Self {
            id: launch.id.clone(),
            agent: launch.key.agent.clone(),
            project: launch.key.project.clone(),
            purpose: launch.key.purpose,
            state: launch.state.as_str().to_owned(),
            claimed_at: When(launch.claimed_at),
            outcome,
            cost: cost_of(launch.activity.usage),
        }
    }
}

/// Returns a number of bytes in the form for people.
pub(super) fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes {
        0..MIB => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes / MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_its_two_largest_units() {
        let shown = |millis| Took(Duration::from_millis(millis)).to_string();
        assert_eq!(shown(12), "12 ms");
        assert_eq!(shown(59_900), "59 s");
        assert_eq!(shown(61_000), "1 min 1 s");
        assert_eq!(shown(7_260_000), "2 h 1 min");
    }

    #[test]
    fn a_cost_is_rounded_up_to_whole_cents() {
        let shown = |cost_usd_micros| cost_of(Usage { cost_usd_micros, ..Usage::default() });
        assert_eq!(shown(0), None);
        assert_eq!(shown(1).as_deref(), Some("$ 0.01"));
        assert_eq!(shown(12_340_000).as_deref(), Some("$ 12.34"));
    }
}
