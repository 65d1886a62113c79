//! The transaction of a use case: it changes entities, and says who hears of that after the commit.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Entity, Read, StoreError, Write};
use domain::event::NewEvent;
use domain::{Assignment, CredentialId, InstanceKey, LaunchId, ProjectId, TaskId, Timestamp};

use super::audit::{Actor, Audited, Entry};
use super::events;

/// A transaction that changes entities.
pub type Transaction<'a> = Write<'a, Context>;

/// Wakes the listeners that a transaction named: after its commit and before its answer. It must
/// not block.
pub type Publish = Arc<dyn Fn(BTreeSet<Wake>) + Send + Sync>;

/// The values that a transaction has from outside, and what it collects until its commit.
#[derive(Debug, Clone)]
pub struct Context {
    now: Timestamp,
    unique: String,
    /// The number of ids that were made with each prefix.
    n_ids: Vec<(&'static str, usize)>,
    actor: Option<Actor>,
    /// The launch whose agent acts on a task, if one does.
    launch: Option<(LaunchId, TaskId)>,
    events: Vec<NewEvent>,
    row_events: Vec<NewEvent>,
    wakes: BTreeSet<Wake>,
}

/// A listener that a change wakes.
///
/// Its JSON is what servers on one database send each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// The coordinators, which decide what is started and stopped, and the loops that claim and
    /// settle items of forges.
    Coordinators,
    /// The agent of this key.
    Agent(InstanceKey),
    /// All agents with tasks in this project.
    AgentsOf(ProjectId),
    /// The panels of this chat.
    Chat(Assignment),
    /// The mirrors of chats in the working directories of projects.
    ChatExport,
    /// Streams that were opened with this credential.
    Credential(CredentialId),
    /// The loop that ends what has run out of time.
    Deadlines,
    /// The followers of events.
    Events,
    /// The loop that writes to forges.
    Forges,
    /// All listeners: it is not known what another server has changed.
    Everything,
}

impl Wake {
    /// Returns the text that names it to other servers.
    fn to_text(&self) -> String {
        serde_json::to_string(self).expect("an enum of ids has a JSON form")
    }

    /// Reads the text of another server. A newer version may name listeners that this one does not
    /// know.
    pub(super) fn from_text(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self::Everything)
    }
}

impl Context {
    /// Makes the context of a transaction at `now`, in the name of `actor`. `unique` is a text that
    /// no other transaction has. Ids begin with it.
    pub fn new(now: Timestamp, unique: String, actor: Option<Actor>) -> Self {
        let events = Vec::new();
        let row_events = Vec::new();
        let n_ids = Vec::new();
        let launch = None;
        Self { now, unique, n_ids, actor, launch, events, row_events, wakes: BTreeSet::new() }
    }
}

impl Transaction<'_> {
    /// Returns the time at which the use case began.
    pub const fn now(&self) -> Timestamp {
        self.context.now
    }

    /// Returns the name of the person who acts; `None` if no person does.
    pub fn author(&self) -> Option<String> {
        self.context.actor.as_ref().map(|actor| actor.name.clone())
    }

    /// Notes that the agent of a launch acts on a task. The events of the task name this launch,
    /// unless they name another one. What follows for other tasks is not done by the agent.
    pub fn act_in(&mut self, launch: &LaunchId, task: &TaskId) {
        self.context.launch = Some((launch.clone(), task.clone()));
    }

    /// Makes an id. The first of each kind is the text of the transaction; the next ones have a
    /// number, too.
    pub fn new_id<T: FromStr>(&mut self, prefix: &'static str) -> T {
        let Context { unique, n_ids, .. } = &mut self.context;
        let place = n_ids.iter().position(|(known, _)| *known == prefix);
        let place = place.unwrap_or_else(|| {
            n_ids.push((prefix, 0));
            n_ids.len() - 1
        });
        n_ids[place].1 += 1;
        let text = match n_ids[place].1 {
            1 => format!("{prefix}{unique}"),
            n => format!("{prefix}{unique}-{n:04}"),
        };
        text.parse().ok().expect("a prefix and a unique text are an id")
    }

    /// Adds an event.
    pub fn event(&mut self, event: NewEvent) {
        self.context.events.push(event);
    }

    /// Adds the event of a row. It is left out if the use case has a more exact one: an event that
    /// names the same task, or is about a provider.
    ///
    /// A row that is written twice adds the event only once.
    pub(super) fn row_event(&mut self, event: NewEvent) {
        if !self.context.row_events.contains(&event) {
            self.context.row_events.push(event);
        }
    }

    pub fn wake(&mut self, wake: Wake) {
        self.context.wakes.insert(wake);
    }

    /// Writes what `entry` returns to the audit log after the commit, if a person acts.
    pub(super) fn audit(
        &mut self,
        entry: impl FnOnce(&mut Self) -> Result<Option<Entry>, StoreError>,
    ) -> Result<(), StoreError> {
        if let Some(actor) = self.context.actor.clone()
            && let Some(entry) = entry(self)?
        {
            self.after_commit(move || entry.write(&actor));
        }
        Ok(())
    }

    /// Writes an entity that was read in this transaction, or a new one.
    ///
    /// # Errors
    /// [`StoreError::Outdated`] if the row was written since it was read, or if a new one exists.
    pub(super) fn replace<E: Entity>(
        &mut self,
        entity: &E,
        id: &impl ToString,
    ) -> Result<(), StoreError> {
        if self.put(entity)? {
            Ok(())
        } else {
            Err(StoreError::Outdated { what: E::NAME, id: id.to_string() })
        }
    }

    /// Writes an entity as [`Transaction::replace`] does, and notes the change for the audit log.
    /// `before` reads the entity as it was, and is called only if a person acts.
    pub(super) fn replace_audited<E: Audited>(
        &mut self,
        entity: &E,
        id: &impl ToString,
        before: impl FnOnce(&mut Read<'_>) -> Result<Option<E>, StoreError>,
    ) -> Result<(), StoreError> {
        self.audit(|tx| {
            let before = before(tx)?.as_ref().map(E::shown);
            Ok(Entry::between(E::CALLED, id, before, entity.shown()))
        })?;
        self.replace(entity, id)
    }

    /// Writes the events, and returns the listeners to wake after the commit. Other servers wake
    /// theirs.
    pub(super) fn finish(&mut self) -> Result<BTreeSet<Wake>, StoreError> {
        let mut all = std::mem::take(&mut self.context.events);
        let is_said = |event: &NewEvent| all.iter().any(|said| says_more(said, event));
        let more: Vec<NewEvent> = std::mem::take(&mut self.context.row_events)
            .into_iter()
            .filter(|event| !is_said(event))
            .collect();
        all.extend(more);
        let launch = self.context.launch.take();
        for event in &mut all {
            if let Some((launch, task)) = &launch
                && event.launch.is_none()
                && event.kind.starts_with("task.")
                && event.task.as_ref() == Some(task)
            {
                event.launch = Some(launch.clone());
            }
            events::add(self, event)?;
        }
        if !all.is_empty() {
            self.wake(Wake::Events);
        }
        let wakes = std::mem::take(&mut self.context.wakes);
        for wake in &wakes {
            self.announce(&wake.to_text());
        }
        Ok(wakes)
    }
}

/// Returns whether `event` of a use case says more than `of_row`.
fn says_more(event: &NewEvent, of_row: &NewEvent) -> bool {
    match of_row.kind {
        "task.changed" => event.task == of_row.task,
        kind if kind.starts_with("provider.") => {
            event.kind.starts_with("provider.") || event.kind == "person.resume"
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{AgentId, Purpose};

    #[test]
    fn another_server_reads_what_is_to_be_woken() {
        let (agent, project): (AgentId, ProjectId) = ("a".parse().unwrap(), "p".parse().unwrap());
        let key = InstanceKey::new(agent.clone(), project.clone(), Purpose::Chat);
        for (wake, text) in [
            (Wake::Coordinators, r#""coordinators""#),
            (Wake::Agent(key), r#"{"agent":{"agent_id":"a","project_id":"p","purpose":"chat"}}"#),
            (Wake::AgentsOf(project.clone()), r#"{"agents_of":"p"}"#),
            (
                Wake::Chat(Assignment { project, agent }),
                r#"{"chat":{"project_id":"p","agent_id":"a"}}"#,
            ),
            (Wake::Credential("key_1".parse().unwrap()), r#"{"credential":"key_1"}"#),
            (Wake::Everything, r#""everything""#),
        ] {
            assert_eq!(wake.to_text(), text);
            assert_eq!(Wake::from_text(text), wake);
        }
        assert_eq!(Wake::from_text(r#""of_a_newer_version""#), Wake::Everything);
    }
}
