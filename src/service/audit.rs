//! Who changed what: one line in the log, with the target `audit`, for every row that a person or their script changes, and for
//! what they do that is no row.
//!
//! The door that lets them in says who acts, once, around the whole request ([`acting`]); commits made meanwhile tell of
//! themselves. What agents and time change isn't told here. The lines show what was changed, before and after: never a secret,
//! and of long texts and chats only how long they are.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domain::printable::excerpt;
use crate::domain::{
    Agent, Assignment, Credential, CredentialId, Launch, Message, PairRecord, Project, Session,
    Task,
};
use crate::rows::adapter::SqliteStore;
use crate::store::{Change, StoreError};

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// As people call them.
    pub name: String,
    /// By which they came in, where not by the control socket.
    pub credential: Option<CredentialId>,
}

impl From<&Credential> for Actor {
    fn from(credential: &Credential) -> Self {
        Self { name: credential.name.clone(), credential: Some(credential.id.clone()) }
    }
}

tokio::task_local! {
    static ACTOR: Actor;
}

/// Carries out `work` in the name of `actor`. What it spawns acts in nobody's name.
pub async fn acting<F: Future>(actor: Actor, work: F) -> F::Output {
    ACTOR.scope(actor, work).await
}

fn actor() -> Option<Actor> {
    ACTOR.try_with(Clone::clone).ok()
}

/// Tells of something that a person did and that no row shows.
pub fn note(action: &'static str, what: &'static str, id: &str) {
    if let Some(actor) = actor() {
        Entry::bare(action, what, id.to_owned()).write(&actor);
    }
}

/// The columns of a row that people look at.
type Fields = BTreeMap<&'static str, Shown>;

/// A value, and what is shown of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    Plain(Value),
    /// Only that it is there.
    Hidden(Option<String>),
    /// Only how long it is.
    Long(String),
}

/// What becomes of one row.
#[derive(Debug)]
struct Entry {
    what: &'static str,
    id: String,
    action: &'static str,
    before: Fields,
    after: Fields,
}

/// What a commit does in the name of somebody.
#[derive(Debug)]
pub(super) struct Audit {
    actor: Actor,
    entries: Vec<Entry>,
}

impl Audit {
    /// What `changes` would do; `None` where nobody acts. To be asked before they are made.
    pub(super) async fn of(
        store: &SqliteStore,
        changes: &[Change],
    ) -> Result<Option<Self>, StoreError> {
        let Some(actor) = actor() else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        for change in changes {
            entries.extend(entry_of(store, change).await?);
        }
        Ok(Some(Self { actor, entries }))
    }

    /// They are made.
    pub(super) fn write(self) {
        for entry in self.entries {
            entry.write(&self.actor);
        }
    }
}

impl Entry {
    const fn bare(action: &'static str, what: &'static str, id: String) -> Self {
        Self { what, id, action, before: Fields::new(), after: Fields::new() }
    }

    /// Between two states of a row; the fields that are the same in both are left out, and so is a change of none.
    fn between(
        what: &'static str,
        id: &str,
        before: Option<Fields>,
        after: Fields,
    ) -> Option<Self> {
        let action = if before.is_some() { "change" } else { "add" };
        let (mut before, mut after) = (before.unwrap_or_default(), after);
        let is_same = |name: &str, value: &Shown| after.get(name) == Some(value);
        let same: Vec<&str> = before
            .iter()
            .filter(|(name, value)| is_same(name, value))
            .map(|(name, _)| *name)
            .collect();
        for name in same {
            before.remove(name);
            after.remove(name);
        }
        let has_changed = !before.is_empty() || !after.is_empty();
        has_changed.then(|| Self { what, id: id.to_owned(), action, before, after })
    }

    fn write(&self, actor: &Actor) {
        let shown = |fields: &Fields| {
            let fields = fields.iter().filter(|(_, value)| !value.is_nothing());
            let fields: serde_json::Map<_, _> =
                fields.map(|(name, value)| ((*name).to_owned(), value.to_json())).collect();
            (!fields.is_empty()).then(|| Value::Object(fields).to_string())
        };
        tracing::info!(
            target: "audit",
            who = %actor.name, credential_id = actor.credential.as_ref().map(tracing::field::display),
            action = self.action, what = self.what, id = %self.id, before = shown(&self.before),
            after = shown(&self.after), "done by a person"
        );
    }
}

/// Longest text that is shown, in characters.
const MAX_SHOWN: usize = 200;

impl Shown {
    /// Empty, so that a new row isn't told with all that it doesn't have.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Plain(value) => value.is_null() || *value == json!([]),
            Self::Hidden(secret) => secret.is_none(),
            Self::Long(text) => text.is_empty(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Plain(Value::String(text)) => excerpt(text, MAX_SHOWN).into(),
            Self::Plain(value) => value.clone(),
            Self::Hidden(_) => "(hidden)".into(),
            Self::Long(text) => format!("({} characters)", text.chars().count()).into(),
        }
    }
}

fn plain(value: impl serde::Serialize) -> Shown {
    Shown::Plain(serde_json::to_value(value).unwrap_or_default())
}

/// What is told of a change; `None` where that follows from others, or is nobody's concern.
async fn entry_of(store: &SqliteStore, change: &Change) -> Result<Option<Entry>, StoreError> {
    Ok(match change {
        Change::Agent(row) => {
            let before = store.agent(&row.id).await?;
            Entry::between("agent", row.id.as_str(), before.as_ref().map(of_agent), of_agent(row))
        }
        Change::Project(row) => {
            let before = store.project(&row.id).await?;
            Entry::between(
                "project",
                row.id.as_str(),
                before.as_ref().map(of_project),
                of_project(row),
            )
        }
        Change::Assign(Assignment { project, agent }) => {
            Some(Entry::bare("add", "assignment", format!("{agent} in {project}")))
        }
        Change::Unassign(Assignment { project, agent }) => {
            Some(Entry::bare("remove", "assignment", format!("{agent} in {project}")))
        }
        Change::Task(row) => {
            let before = store.task(&row.id).await?;
            Entry::between("task", row.id.as_str(), before.as_ref().map(of_task), of_task(row))
        }
        Change::Launch(row) => {
            let before = store.launch(&row.id).await?;
            Entry::between(
                "launch",
                row.id.as_str(),
                before.as_ref().map(of_launch),
                of_launch(row),
            )
        }
        Change::Session(row) => {
            let all = store.sessions_of(&row.launch).await?;
            let before = all.iter().find(|session| session.id == row.id);
            Entry::between("session", row.id.as_str(), before.map(of_session), of_session(row))
        }
        Change::Pair(row) => {
            let before = store.pair(&row.key).await?;
            Entry::between("pair", &row.key.to_string(), Some(of_pair(&before)), of_pair(row))
        }
        Change::Account(row) => {
            let before = store.account(&row.ai_type).await?;
            let parked = |account: &crate::domain::Account| {
                Fields::from([(
                    "parked_until",
                    plain(account.parked.as_ref().map(|parked| parked.until)),
                )])
            };
            Entry::between("provider", &row.ai_type, Some(parked(&before)), parked(row))
        }
        Change::Credential(row) => {
            let before = store.credential(&row.id).await?;
            Entry::between(
                "credential",
                row.id.as_str(),
                before.as_ref().map(of_credential),
                of_credential(row),
            )
        }
        Change::Pause(since) => {
            let paused = |since: Option<crate::domain::Timestamp>| {
                Fields::from([("paused_since", plain(since))])
            };
            let before = store.paused_since().await?;
            Entry::between("coordinator", "starts", Some(paused(before)), paused(*since))
        }
        Change::Message(row) => Entry::between("message", row.id.as_str(), None, of_message(row)),
        // What was forgotten had ended; the others follow from what else is done.
        Change::ForgetCredential(_)
        | Change::ForgeItem(_)
        | Change::ForgetItem(_)
        | Change::ForgetLaunch(_)
        | Change::ForgetEvents(_)
        | Change::ForgetMessages(..)
        | Change::Execution(_)
        | Change::Notice(_)
        | Change::OutputTail(..)
        | Change::Event(_) => None,
    })
}

fn of_agent(agent: &Agent) -> Fields {
    Fields::from([
        ("name", plain(&agent.name)),
        ("ai_type", plain(&agent.ai_type)),
        ("system_prompt", Shown::Long(agent.system_prompt.clone())),
        ("passkey", Shown::Hidden(agent.passkey.as_ref().map(|hash| hash.as_str().to_owned()))),
        ("status", plain(agent.status)),
    ])
}

fn of_project(project: &Project) -> Fields {
    Fields::from([
        ("name", plain(&project.name)),
        ("working_directory", plain(project.working_directory.to_string_lossy())),
        ("status", plain(project.status)),
    ])
}

fn of_task(task: &Task) -> Fields {
    Fields::from([
        ("project_id", plain(&task.project)),
        ("parent_id", plain(&task.parent)),
        ("title", plain(&task.title)),
        ("description", Shown::Long(task.description.clone())),
        ("status", plain(task.status)),
        ("priority", plain(task.priority)),
        ("assignee_id", plain(&task.assignee)),
        ("dependencies", plain(&task.dependencies)),
        ("blocked_reason", plain(&task.blocked_reason)),
    ])
}

fn of_launch(launch: &Launch) -> Fields {
    Fields::from([
        ("agent_id", plain(&launch.key.agent)),
        ("project_id", plain(&launch.key.project)),
        ("purpose", plain(launch.key.purpose)),
        ("state", plain(launch.state.as_str())),
        ("stop_reason", plain(launch.stop_reason)),
    ])
}

fn of_session(session: &Session) -> Fields {
    Fields::from([("ended", plain(session.ended.map(|(_, reason)| reason)))])
}

fn of_pair(pair: &PairRecord) -> Fields {
    Fields::from([
        ("held_since", plain(pair.held_since)),
        ("suspended_since", plain(pair.suspended_since)),
        ("n_failures", plain(pair.n_failures)),
        ("wanted_since", plain(pair.wanted_since)),
    ])
}

fn of_credential(credential: &Credential) -> Fields {
    Fields::from([
        ("kind", plain(credential.kind)),
        ("name", plain(&credential.name)),
        ("role", plain(credential.role)),
        ("expires_at", plain(credential.expires_at)),
        ("revoked_at", plain(credential.revoked_at)),
    ])
}

fn of_message(message: &Message) -> Fields {
    Fields::from([
        ("agent_id", plain(&message.agent)),
        ("project_id", plain(&message.project)),
        ("sender", plain(message.sender)),
        ("content", Shown::Long(message.content.clone())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told_and_no_secret() {
        let before = Fields::from([
            ("name", plain("Ann")),
            ("status", plain("active")),
            ("passkey", Shown::Hidden(Some("hash of one".to_owned()))),
            ("system_prompt", Shown::Long("secret plans".to_owned())),
        ]);
        let mut after = before.clone();
        after.insert("name", plain("x".repeat(1000)));
        after.insert("passkey", Shown::Hidden(Some("hash of another".to_owned())));
        after.insert("system_prompt", Shown::Long("other plans".to_owned()));
        let entry = Entry::between("agent", "agt", Some(before.clone()), after).expect("a change");
        let told: Vec<_> =
            entry.after.iter().map(|(name, value)| (*name, value.to_json())).collect();
        let names: Vec<_> = told.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["name", "passkey", "system_prompt"]);
        assert!(told[0].1.as_str().is_some_and(|name| name.chars().count() < 250), "{told:?}");
        assert_eq!((&told[1].1, &told[2].1), (&json!("(hidden)"), &json!("(11 characters)")));
        assert_eq!(entry.before["name"].to_json(), "Ann");
        assert!(Entry::between("agent", "agt", Some(before.clone()), before).is_none());
    }
}
