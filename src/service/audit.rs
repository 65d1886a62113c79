//! Who changed what: one line in the log, with the target `audit`, for every row that a person or their script changes, and for
//! what they do that is no row.
//!
//! The door that lets them in says who acts, once, around the whole request ([`acting`]); commits made meanwhile tell of
//! themselves. What agents and time change isn't told here. The lines show what was changed, before and after: never a secret,
//! and of long texts and chats only how long they are.

use crate::domain::{
    Agent, Assignment, Credential, Launch, Message, PairRecord, Project, Session, Task,
};
use crate::rows::adapter::SqliteStore;
pub use crate::rows::audit::Actor;
use crate::rows::audit::{Entry, Fields, Shown, plain};
use crate::store::{Change, StoreError};

tokio::task_local! {
    static ACTOR: Actor;
}

/// Carries out `work` in the name of `actor`. What it spawns acts in nobody's name.
pub async fn acting<F: Future>(actor: Actor, work: F) -> F::Output {
    ACTOR.scope(actor, work).await
}

pub(super) fn actor() -> Option<Actor> {
    ACTOR.try_with(Clone::clone).ok()
}

/// Tells of something that a person did and that no row shows.
pub fn note(action: &'static str, what: &'static str, id: &str) {
    if let Some(actor) = actor() {
        Entry::bare(action, what, id.to_owned()).write(&actor);
    }
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

/// What is told of a change; `None` where that follows from others, or is nobody's concern.
async fn entry_of(store: &SqliteStore, change: &Change) -> Result<Option<Entry>, StoreError> {
    Ok(match change {
        Change::Agent(row) => {
            let before = store.agent(&row.id).await?;
            Entry::between("agent", &row.id, before.as_ref().map(of_agent), of_agent(row))
        }
        Change::Project(row) => {
            let before = store.project(&row.id).await?;
            Entry::between("project", &row.id, before.as_ref().map(of_project), of_project(row))
        }
        Change::Assign(Assignment { project, agent }) => {
            Some(Entry::bare("add", "assignment", format!("{agent} in {project}")))
        }
        Change::Unassign(Assignment { project, agent }) => {
            Some(Entry::bare("remove", "assignment", format!("{agent} in {project}")))
        }
        Change::Task(row) => {
            let before = store.task(&row.id).await?;
            Entry::between("task", &row.id, before.as_ref().map(of_task), of_task(row))
        }
        Change::Launch(row) => {
            let before = store.launch(&row.id).await?;
            Entry::between("launch", &row.id, before.as_ref().map(of_launch), of_launch(row))
        }
        Change::Session(row) => {
            let all = store.sessions_of(&row.launch).await?;
            let before = all.iter().find(|session| session.id == row.id);
            Entry::between("session", &row.id, before.map(of_session), of_session(row))
        }
        Change::Pair(row) => {
            let before = store.pair(&row.key).await?;
            Entry::between("pair", &row.key, Some(of_pair(&before)), of_pair(row))
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
                &row.id,
                before.as_ref().map(of_credential),
                of_credential(row),
            )
        }
        Change::Pause(since) => {
            let paused = |since: Option<crate::domain::Timestamp>| {
                Fields::from([("paused_since", plain(since))])
            };
            let before = store.paused_since().await?;
            Entry::between("coordinator", &"starts", Some(paused(before)), paused(*since))
        }
        Change::Message(row) => Entry::between("message", &row.id, None, of_message(row)),
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
