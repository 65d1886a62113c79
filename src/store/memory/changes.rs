//! Commits on the tables in memory: each change with what takes it back, so that a commit that fails half-way leaves nothing.

use std::collections::BTreeMap;

use super::Tables;
use crate::domain::event::{Event, NewEvent};
use crate::domain::id::{
    AgentId, ExecutionId, ItemId, LaunchId, NoticeId, ProjectId, SessionId, TaskId,
};
use crate::domain::{
    Account, Agent, Credential, CredentialId, Execution, ForgeItem, InstanceKey, ItemKey, Launch,
    Message, Notice, PairRecord, Project, Session, Task,
};
use crate::store::{Change, Commit, CommitError, Expect, MAX_OUTPUT_TAILS};

/// Takes one step of a commit back.
type Undo = Box<dyn FnOnce(&mut Tables)>;

/// A row with a revision.
trait Row: Clone + 'static {
    type Key: Ord + Clone + ToString;
    const WHAT: &'static str;
    fn key(&self) -> &Self::Key;
    fn revision(&mut self) -> &mut i64;
    fn table(tables: &mut Tables) -> &mut BTreeMap<Self::Key, Self>;
}

macro_rules! rows {
    ($($row:ty, $what:literal, $key:ident: $key_type:ty, $table:ident;)*) => {$(
        impl Row for $row {
            type Key = $key_type;
            const WHAT: &'static str = $what;

            fn key(&self) -> &$key_type {
                &self.$key
            }

            fn revision(&mut self) -> &mut i64 {
                &mut self.revision
            }

            fn table(tables: &mut Tables) -> &mut BTreeMap<$key_type, Self> {
                &mut tables.$table
            }
        }
    )*};
}

rows! {
    Agent, "agent", id: AgentId, agents;
    Project, "project", id: ProjectId, projects;
    Task, "task", id: TaskId, tasks;
    Launch, "launch", id: LaunchId, launches;
    Session, "session", id: SessionId, sessions;
    Execution, "execution", id: ExecutionId, executions;
    Notice, "notice", id: NoticeId, notices;
    ForgeItem, "forge item", id: ItemId, forge_items;
    PairRecord, "pair", key: InstanceKey, pairs;
    Account, "account", ai_type: String, accounts;
    Credential, "credential", id: CredentialId, credentials;
}

impl Tables {
    /// Makes all of `commit`, or nothing of it.
    pub(super) fn apply(&mut self, commit: Commit) -> Result<(), CommitError> {
        let mut undo = Vec::new();
        let result = self.try_apply(commit, &mut undo);
        if result.is_err() {
            undo.into_iter().rev().for_each(|undo| undo(self));
        }
        result
    }

    fn try_apply(&mut self, commit: Commit, undo: &mut Vec<Undo>) -> Result<(), CommitError> {
        for expect in commit.expect {
            match expect {
                Expect::NoOpenLaunch(key) => self.expect_no_open_launch(&key, None)?,
                Expect::TaskAt(id, revision) => self.expect_revision::<Task>(&id, revision)?,
                Expect::LaunchAt(id, revision) => self.expect_revision::<Launch>(&id, revision)?,
                Expect::PairAt(key, revision) => {
                    self.expect_revision::<PairRecord>(&key, revision)?;
                }
                Expect::NoMessageAfter(chat, seq) => {
                    let is_after = |message: &Message| {
                        message.agent == chat.agent
                            && message.project == chat.project
                            && message.seq > seq
                    };
                    if self.messages.iter().any(is_after) {
                        return Err(CommitError::Outdated { what: "chat", id: chat.to_string() });
                    }
                }
                Expect::NoOpenItem(key) => self.expect_no_open_item(&key, None)?,
                Expect::NotPaused if self.paused_since.is_none() => {}
                Expect::NotPaused => {
                    return Err(CommitError::Outdated { what: "pause", id: String::new() });
                }
            }
        }
        for change in commit.changes {
            match change {
                Change::Agent(row) => self.write(row, undo)?,
                Change::Project(row) => self.write(row, undo)?,
                Change::Task(row) => self.write(row, undo)?,
                Change::Session(row) => self.write(row, undo)?,
                Change::Execution(row) => self.write(row, undo)?,
                Change::Notice(row) => self.write(row, undo)?,
                Change::Pair(row) => self.write(row, undo)?,
                Change::Account(row) => self.write(row, undo)?,
                Change::Credential(row) => self.write(row, undo)?,
                Change::ForgeItem(row) => {
                    if row.is_open() {
                        self.expect_no_open_item(&row.key, Some(&row.id))?;
                    }
                    self.write(row, undo)?;
                }
                Change::ForgetItem(id) => {
                    if let Some(before) =
                        self.forge_items.get(&id).filter(|item| !item.is_open()).cloned()
                    {
                        self.forge_items.remove(&id);
                        undo.push(Box::new(move |tables| {
                            tables.forge_items.insert(id, before);
                        }));
                    }
                }
                Change::ForgetCredential(id) => {
                    if let Some(before) = self.credentials.remove(&id) {
                        undo.push(Box::new(move |tables| {
                            tables.credentials.insert(id, before);
                        }));
                    }
                }
                Change::Launch(row) => {
                    self.expect_revision::<Launch>(&row.id, row.revision)?;
                    if row.is_open() {
                        self.expect_no_open_launch(&row.key, Some(&row.id))?;
                    }
                    self.write(row, undo)?;
                }
                Change::Assign(row) => {
                    if self.assignments.insert(row.clone()) {
                        undo.push(Box::new(move |tables| {
                            tables.assignments.remove(&row);
                        }));
                    }
                }
                Change::Unassign(row) => {
                    if self.assignments.remove(&row) {
                        undo.push(Box::new(move |tables| {
                            tables.assignments.insert(row);
                        }));
                    }
                }
                Change::OutputTail(launch, tail) => {
                    let before = self.output_tails.clone();
                    self.output_tails.insert(launch, tail);
                    while self.output_tails.len() > MAX_OUTPUT_TAILS {
                        self.output_tails.pop_first();
                    }
                    undo.push(Box::new(move |tables| tables.output_tails = before));
                }
                Change::Pause(since) => {
                    let before = std::mem::replace(&mut self.paused_since, since);
                    undo.push(Box::new(move |tables| tables.paused_since = before));
                }
                Change::Message(message) => {
                    if self.messages.iter().any(|known| known.id == message.id) {
                        return Err(CommitError::Outdated {
                            what: "message",
                            id: message.id.to_string(),
                        });
                    }
                    self.last_message += 1;
                    let seq = self.last_message;
                    self.messages.push(Message { seq, ..message });
                    undo.push(Box::new(|tables| {
                        tables.messages.pop();
                        tables.last_message -= 1;
                    }));
                }
                Change::ForgetLaunch(id) => {
                    if self.launches.get(&id).is_some_and(|launch| !launch.is_open()) {
                        let before = (
                            self.launches.clone(),
                            self.sessions.clone(),
                            self.notices.clone(),
                            self.executions.clone(),
                            self.output_tails.clone(),
                        );
                        self.launches.remove(&id);
                        self.sessions.retain(|_, session| session.launch != id);
                        self.notices.retain(|_, notice| notice.launch != id);
                        self.executions.retain(|_, execution| execution.launch != id);
                        self.output_tails.remove(&id);
                        undo.push(Box::new(move |tables| {
                            let (launches, sessions, notices, executions, output_tails) = before;
                            (tables.launches, tables.sessions, tables.notices) =
                                (launches, sessions, notices);
                            (tables.executions, tables.output_tails) = (executions, output_tails);
                        }));
                    }
                }
                Change::ForgetEvents(up_to) => {
                    let before = self.events.clone();
                    self.events.retain(|event| event.seq > up_to);
                    undo.push(Box::new(move |tables| tables.events = before));
                }
                Change::ForgetMessages(chat, up_to) => {
                    let before = self.messages.clone();
                    self.messages.retain(|message| {
                        message.seq > up_to
                            || message.agent != chat.agent
                            || message.project != chat.project
                    });
                    undo.push(Box::new(move |tables| tables.messages = before));
                }
                Change::Event(event) => {
                    self.append(event);
                    undo.push(Box::new(|tables| {
                        tables.events.pop();
                        tables.last_event -= 1;
                    }));
                }
            }
        }
        Ok(())
    }

    /// Revision 0 stands for a row that doesn't exist.
    fn expect_revision<R: Row>(&mut self, key: &R::Key, revision: i64) -> Result<(), CommitError> {
        let found = R::table(self).get_mut(key).map_or(0, |row| *row.revision());
        if found == revision {
            Ok(())
        } else {
            Err(CommitError::Outdated { what: R::WHAT, id: key.to_string() })
        }
    }

    fn expect_no_open_launch(
        &self,
        key: &InstanceKey,
        except: Option<&LaunchId>,
    ) -> Result<(), CommitError> {
        match self.open_launch(key) {
            Some(launch) if Some(&launch.id) != except => {
                Err(CommitError::OpenLaunch { key: key.clone() })
            }
            _ => Ok(()),
        }
    }

    fn expect_no_open_item(
        &self,
        key: &ItemKey,
        except: Option<&ItemId>,
    ) -> Result<(), CommitError> {
        let mut open = self.forge_items.values().filter(|item| item.is_open() && item.key == *key);
        match open.find(|item| Some(&item.id) != except) {
            Some(_) => Err(CommitError::Outdated { what: "forge item", id: key.to_string() }),
            None => Ok(()),
        }
    }

    fn write<R: Row>(&mut self, mut row: R, undo: &mut Vec<Undo>) -> Result<(), CommitError> {
        let key = row.key().clone();
        let revision = *row.revision();
        self.expect_revision::<R>(&key, revision)?;
        *row.revision() = revision + 1;
        let before = R::table(self).insert(key.clone(), row);
        undo.push(Box::new(move |tables| {
            match before {
                Some(before) => R::table(tables).insert(key, before),
                None => R::table(tables).remove(&key),
            };
        }));
        Ok(())
    }

    fn append(&mut self, event: NewEvent) {
        let NewEvent { at, kind, agent, project, launch, task, detail } = event;
        self.last_event += 1;
        let seq = self.last_event;
        self.events.push(Event {
            seq,
            at,
            kind: kind.to_owned(),
            agent,
            project,
            launch,
            task,
            detail,
        });
    }
}
