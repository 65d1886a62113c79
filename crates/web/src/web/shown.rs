//! Values in the form in which pages show them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::agent_state::ring_of_wait;
use super::changes::CardResult;
use super::waits::{About, WhyLine};
use super::words::Words;
use crate::{Problem, RestState};
use domain::printable::one_line;
use domain::workspace::MergeStep;
use domain::{
    Agent, AgentId, Launch, LaunchId, Priority, ProjectId, Purpose, Removable, ShortId, Task,
    TaskId, TaskStatus, Timestamp, Usage,
};
use service::Standings;

/// Declares the ways in which the page shows a moment. The script of the page writes the text, in
/// the words and the time zone of the reader.
macro_rules! moments {
    ($($(#[$meta:meta])* $name:ident, $attribute:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $name(pub(super) Timestamp);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("<time", $attribute, " datetime=\"{0}\">{0}</time>"), self.0)
            }
        }

        /// Safe, because it contains only a timestamp.
        impl askama::filters::HtmlSafe for $name {}
    )*};
}

moments! {
    /// A moment, as far from now as it is.
    When, "";

    /// A moment of a day that is named elsewhere, as the time of day.
    Clock, " class=\"clock\"";

    /// The beginning or the end of something that goes on, behind a word such as "since" or
    /// "until": by the clock, and with its date if it is more than a day away.
    Since, " class=\"since\"";

    /// A moment, as the time that has passed since.
    Elapsed, " class=\"elapsed\"";

    /// A moment, as the time that is left until then.
    Left, " class=\"left\"";
}

/// A duration, in its two largest units.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownDuration(pub(super) Duration);

impl fmt::Display for ShownDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..60 => write!(f, "{seconds}s"),
            60..3600 => write!(f, "{}m {:02}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
        }
    }
}

/// Returns the cost in US dollars, with a mark if it is an estimate; `None` if there is none.
pub(super) fn cost_of(usage: &Usage) -> Option<String> {
    let cents = usage.cost_usd_micros.div_ceil(10_000);
    let about = if usage.is_estimated { "≈ " } else { "" };
    (cents > 0).then(|| format!("{about}${}.{:02}", cents / 100, cents % 100))
}

/// A number in its shortest form: `950`, `61k`, `1.2M`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short(pub(super) u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 + 50_000) / 100_000;
        match self.0 {
            0..1_000 => write!(f, "{}", self.0),
            1_000..999_500 => write!(f, "{}k", (self.0 + 500) / 1_000),
            _ if tenths < 100 => write!(f, "{}.{}M", tenths / 10, tenths % 10),
            _ => write!(f, "{}M", tenths / 10),
        }
    }
}

/// A count, which is exact below 10,000 and short from there on: `9999`, `12k`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count(u64);

impl From<u64> for Count {
    fn from(count: u64) -> Self {
        Self(count)
    }
}

impl From<u32> for Count {
    fn from(count: u32) -> Self {
        Self(count.into())
    }
}

impl From<usize> for Count {
    fn from(count: usize) -> Self {
        Self(count.try_into().unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..10_000 => write!(f, "{}", self.0),
            count => Short(count).fmt(f),
        }
    }
}

/// Returns the cost in US dollars, also if there is none.
pub(super) fn cost_text(usage: Usage) -> String {
    cost_of(&usage).unwrap_or_else(|| "$0.00".to_owned())
}

/// The ring of an avatar, the one that counts most last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum AvatarRing {
    #[default]
    None,
    /// The agent waits by itself.
    Waits,
    /// A process of the agent runs.
    Live,
    NeedsPerson,
}

impl AvatarRing {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Waits => " is-waiting",
            Self::Live => " is-live",
            Self::NeedsPerson => " is-bad",
        }
    }

    /// Returns the same in words; `None` without a ring.
    pub(super) const fn word(self, w: &'static Words) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Waits => Some(w.waits),
            Self::Live => Some(w.running),
            Self::NeedsPerson => Some(w.needs_attention),
        }
    }
}

/// An agent by its initials, with a colour.
#[derive(Debug, Clone)]
pub(super) struct Face {
    pub(super) id: AgentId,
    pub(super) name: String,
    pub(super) initials: String,
    /// One of eight colours.
    pub(super) hue: u8,
    pub(super) ring: AvatarRing,
    /// True for the last name of an agent that was deleted.
    pub(super) is_deleted: bool,
}

impl Face {
    pub(super) fn of(agent: &Agent, is_live: bool) -> Self {
        Self {
            id: agent.id.clone(),
            name: agent.name.clone(),
            initials: initials_of(&agent.name),
            hue: hue_of(agent.id.as_str()),
            ring: if is_live { AvatarRing::Live } else { AvatarRing::None },
            is_deleted: false,
        }
    }

    fn of_deleted(id: &AgentId, name: &str) -> Self {
        Self {
            id: id.clone(),
            name: name.to_owned(),
            initials: initials_of(name),
            hue: hue_of(id.as_str()),
            ring: AvatarRing::None,
            is_deleted: true,
        }
    }
}

/// Returns the first letters of the first two words of a name, or the first two letters of its only
/// word.
pub(super) fn initials_of(name: &str) -> String {
    let mut words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    let letters: String = match words.next() {
        Some(second) => first.chars().take(1).chain(second.chars().take(1)).collect(),
        None => first.chars().take(2).collect(),
    };
    letters.to_uppercase()
}

/// Returns the first letter of the name of a project.
pub(super) fn initial_of(name: &str) -> String {
    name.trim().chars().take(1).flat_map(char::to_uppercase).collect()
}

/// Returns the number of one of eight colours, always the same for a text.
pub(super) fn hue_of(text: &str) -> u8 {
    text.bytes().fold(7_u8, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte)) % 8
}

/// The faces of agents. An unknown agent is shown by its id.
pub(super) struct Faces {
    agents: BTreeMap<AgentId, Agent>,
    /// The last names of deleted agents.
    deleted: BTreeMap<AgentId, String>,
    rings: BTreeMap<AgentId, AvatarRing>,
}

impl Faces {
    /// Returns the faces of agents in a project. An agent is live there only if it runs there;
    /// without a project, it is live if it runs anywhere.
    pub(super) fn new(agents: Vec<Agent>, open: &[Launch], project: Option<&ProjectId>) -> Self {
        let is_here =
            |launch: &&Launch| project.is_none_or(|project| launch.key.project == *project);
        let rings = open
            .iter()
            .filter(|launch| launch.pid.is_some())
            .filter(is_here)
            .map(|launch| (launch.key.agent.clone(), AvatarRing::Live))
            .collect();
        let agents = agents.into_iter().map(|agent| (agent.id.clone(), agent)).collect();
        Self { agents, deleted: BTreeMap::new(), rings }
    }

    /// Reads the faces of all agents in a project.
    pub(super) async fn read(state: &RestState, project: &ProjectId) -> Result<Self, Problem> {
        let open = state.service.launches.open().await?;
        Ok(Self::new(state.service.catalog.agents().await?, &open, Some(project)))
    }

    /// Returns these faces with the rings of those that wait for the start of a task.
    pub(super) fn with_waits(mut self, standings: &Standings) -> Self {
        for (key, waiting) in &standings.waits {
            let ring = self.rings.entry(key.agent.clone()).or_default();
            *ring = (*ring).max(ring_of_wait(waiting));
        }
        self
    }

    /// Returns these faces and those of deleted agents, which have only their last names.
    pub(super) fn with_deleted(self, names: Vec<(Removable, String)>) -> Self {
        let deleted = names.into_iter().filter_map(|(of, name)| match of {
            Removable::Agent(id) => Some((id, name)),
            _ => None,
        });
        Self { deleted: deleted.collect(), ..self }
    }

    pub(super) fn of(&self, id: &AgentId) -> Option<Face> {
        let ring = self.rings.get(id).copied().unwrap_or_default();
        let known = self.agents.get(id).map(|agent| Face { ring, ..Face::of(agent, false) });
        known.or_else(|| self.deleted.get(id).map(|name| Face::of_deleted(id, name)))
    }

    pub(super) fn of_all<'a>(&self, ids: impl IntoIterator<Item = &'a AgentId>) -> Vec<Face> {
        ids.into_iter().filter_map(|id| self.of(id)).collect()
    }
}

/// The one line of a card or a task about its work.
pub(super) enum Now {
    /// An agent works on it. The line is what it does.
    Live {
        line: Option<String>,
        since: Elapsed,
    },
    /// Nothing works on it, for a reason.
    Why {
        why: WhyLine,
    },
    Nothing,
}

/// The longest line of an agent on a card, in characters.
const MAX_LINE: usize = 120;

impl Now {
    pub(super) fn of(w: &'static Words, standings: &Standings, task: &Task) -> Self {
        if let Some(waiting) = standings.waiting(task) {
            let about = About {
                agent: task.assignee.as_ref(),
                project: Some(&task.project),
                task: Some(&task.id),
            };
            return Self::Why { why: WhyLine::of(w, &waiting, about) };
        }
        standings.live(task).map_or(Self::Nothing, |launch| Self::Live {
            line: launch.activity.progress.as_ref().map(|line| one_line(line, MAX_LINE)),
            since: Elapsed(launch.started_at.unwrap_or(launch.claimed_at)),
        })
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
    pub(super) n_parts: usize,
    pub(super) n_parts_done: usize,
    /// The number of dependencies that are not finished.
    pub(super) n_waits_for: usize,
    /// It would start after a task that was cancelled.
    pub(super) waits_for_cancelled: bool,
    /// A person set it in progress, and it starts after others.
    pub(super) starts_later: bool,
    /// The one line about its work.
    pub(super) now: Now,
    /// The changes of its agent.
    pub(super) result: Option<CardResult>,
    /// The next step with them, if they wait for a person.
    pub(super) merge_step: Option<MergeStep>,
    /// The cost of its launches, if it is known.
    pub(super) cost: Option<String>,
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

/// Returns the statuses to which a person may move a task, with spaces between them, for the script
/// of the page.
pub(super) fn leads_to_words(status: TaskStatus) -> String {
    leads_to(status).into_iter().map(TaskStatus::as_str).collect::<Vec<_>>().join(" ")
}

/// The end of a launch, in a line of its own.
pub(super) struct LastEnd {
    pub(super) launch: LaunchId,
    pub(super) agent: AgentId,
    pub(super) purpose: Purpose,
    /// The short id and the title of its task; `None` for a chat.
    pub(super) task: Option<(ShortId, String)>,
    pub(super) outcome: String,
    pub(super) is_bad: bool,
    pub(super) at: When,
    pub(super) took: Option<ShownDuration>,
}

impl LastEnd {
    /// Returns the end of a launch, without its task; `None` if it goes on.
    pub(super) fn of(w: &'static Words, launch: &Launch) -> Option<Self> {
        let (outcome, at) = launch.as_ended()?;
        Some(Self {
            launch: launch.id.clone(),
            agent: launch.key.agent.clone(),
            purpose: launch.key.purpose,
            task: None,
            outcome: w.of_end(launch, outcome, None),
            is_bad: outcome.is_bad(),
            at: When(at),
            took: launch.started_at.map(|from| ShownDuration(at.since(from))),
        })
    }

    /// Returns the ends of launches, with their tasks from `titles`.
    pub(super) fn of_all(
        w: &'static Words,
        launches: &[Launch],
        titles: &BTreeMap<TaskId, (ShortId, String)>,
    ) -> Vec<Self> {
        let of = |launch: &Launch| {
            let task = task_of(launch).and_then(|task| titles.get(task).cloned());
            Some(Self { task, ..Self::of(w, launch)? })
        };
        launches.iter().filter_map(of).collect()
    }
}

/// Returns the task of a launch, or the one that it was claimed for.
pub(super) fn task_of(launch: &Launch) -> Option<&TaskId> {
    launch.task.as_ref().or(launch.claimed_task.as_ref())
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
        let shown = |millis| ShownDuration(Duration::from_millis(millis)).to_string();
        assert_eq!(shown(12), "0s");
        assert_eq!(shown(59_900), "59s");
        assert_eq!(shown(61_000), "1m 01s");
        assert_eq!(shown(7_500_000), "2h 05m");
    }

    #[test]
    fn initials_are_two_letters_of_a_name_in_any_script() {
        assert_eq!(initials_of("Claude Front"), "CF");
        assert_eq!(initials_of("ada"), "AD");
        assert_eq!(initials_of("local:0"), "L0");
        assert_eq!(initials_of("山田 太郎"), "山太");
        assert_eq!(initials_of("— !"), "");
    }

    #[test]
    fn a_number_is_shortened_to_its_largest_unit() {
        let shown = |number| Short(number).to_string();
        assert_eq!(shown(999), "999");
        assert_eq!(shown(1_000), "1k");
        assert_eq!(shown(61_499), "61k");
        assert_eq!(shown(999_499), "999k");
        assert_eq!(shown(999_500), "1.0M");
        assert_eq!(shown(12_345_678), "12M");
    }

    #[test]
    fn a_count_is_exact_until_it_is_large() {
        let shown = |count: u32| Count::from(count).to_string();
        assert_eq!([0, 9_999, 10_000, 12_345].map(shown), ["0", "9999", "10k", "12k"]);
    }

    #[test]
    fn a_cost_is_rounded_up_to_whole_cents() {
        let shown = |cost_usd_micros| cost_of(&Usage { cost_usd_micros, ..Usage::default() });
        assert_eq!(shown(0), None);
        assert_eq!(shown(1).as_deref(), Some("$0.01"));
        assert_eq!(shown(12_340_000).as_deref(), Some("$12.34"));
        let estimated = Usage { cost_usd_micros: 1, is_estimated: true, ..Usage::default() };
        assert_eq!(cost_of(&estimated).as_deref(), Some("≈ $0.01"));
    }
}
