//! The store in memory: the oracle that every other backend is compared with, and a quick store for tests.
//!
//! It is written to be obviously right, not to be fast with a long history: reads look at every row. Nothing outlives it.

mod changes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;

use super::{
    Answer, ChatEnd, Commit, CommitError, Counts, HistoryFilter, LaunchFilter, MessageFilter,
    Store, StoreError, TaskFilter,
};
use crate::domain::agent::{AgentStatus, Assignment, ProjectStatus};
use crate::domain::event::{Event, EventSpan};
use crate::domain::id::{
    AgentId, ExecutionId, ItemId, LaunchId, MessageId, NoticeId, ProjectId, SessionId, TaskId,
};
use crate::domain::pair::OpenLaunch;
use crate::domain::retention::{PastLaunch, PastWork};
use crate::domain::secret::TokenHash;
use crate::domain::totals::{Total, TotalKey, of_ended};
use crate::domain::{
    Account, Agent, Credential, CredentialId, Execution, ForgeItem, InstanceKey, ItemKey, Launch,
    Message, Notice, PairFacts, PairRecord, Project, Purpose, Session, Task, TaskStatus, Timestamp,
};

/// A store that lives and dies with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    is_closed: bool,
    agents: BTreeMap<AgentId, Agent>,
    projects: BTreeMap<ProjectId, Project>,
    assignments: BTreeSet<Assignment>,
    tasks: BTreeMap<TaskId, Task>,
    launches: BTreeMap<LaunchId, Launch>,
    sessions: BTreeMap<SessionId, Session>,
    executions: BTreeMap<ExecutionId, Execution>,
    notices: BTreeMap<NoticeId, Notice>,
    messages: Vec<Message>,
    output_tails: BTreeMap<LaunchId, String>,
    pairs: BTreeMap<InstanceKey, PairRecord>,
    accounts: BTreeMap<String, Account>,
    credentials: BTreeMap<CredentialId, Credential>,
    forge_items: BTreeMap<ItemId, ForgeItem>,
    paused_since: Option<Timestamp>,
    events: Vec<Event>,
    /// Numbers are never used twice, also after what had them was forgotten.
    last_event: i64,
    last_message: i64,
}

impl Tables {
    fn open_launch(&self, key: &InstanceKey) -> Option<&Launch> {
        self.launches.values().find(|launch| launch.is_open() && launch.key == *key)
    }

    fn pair(&self, key: &InstanceKey) -> PairRecord {
        self.pairs.get(key).cloned().unwrap_or_else(|| PairRecord::new(key.clone()))
    }

    fn account(&self, ai_type: &str) -> Account {
        self.accounts.get(ai_type).cloned().unwrap_or_else(|| Account::new(ai_type.to_owned()))
    }

    fn pair_facts(&self, key: &InstanceKey) -> PairFacts {
        let assignment = Assignment { project: key.project.clone(), agent: key.agent.clone() };
        let open = self.open_launch(key);
        PairFacts {
            key: key.clone(),
            agent: self.agents.get(&key.agent).map(|agent| (agent.status, agent.ai_type.clone())),
            project: self
                .projects
                .get(&key.project)
                .map(|project| (project.status, project.working_directory.clone())),
            is_assigned: self.assignments.contains(&assignment),
            waiting_since: self.waiting_since(key),
            open: open
                .map(|launch| OpenLaunch { id: launch.id.clone(), state: launch.state.clone() }),
            record: self.pair(key),
            account: self.account(self.agents.get(&key.agent).map_or("", |agent| &agent.ai_type)),
            is_paused: self.paused_since.is_some(),
        }
    }

    fn past(&self, launch: &Launch) -> Option<PastLaunch> {
        let (_, ended_at) = launch.as_ended()?;
        let place = |execution: &Execution| (execution.started_at, execution.id.clone());
        let is_newest = |execution: &&Execution| {
            let of_task = self.executions.values().filter(|other| other.task == execution.task);
            of_task.map(place).max() == Some(place(execution))
        };
        let own = || self.executions.values().filter(|execution| execution.launch == launch.id);
        let tasks: BTreeSet<&TaskId> =
            own().filter(is_newest).map(|execution| &execution.task).collect();
        let work = |id: &TaskId| {
            let task = self.tasks.get(id);
            let is_open = task.is_some_and(|task| task.status.is_open());
            PastWork { task: id.clone(), revision: task.map_or(0, |task| task.revision), is_open }
        };
        let is_probe = |account: &Account| {
            let probe = account.parked.as_ref().and_then(|parked| parked.probe.as_ref());
            probe.is_some_and(|probe| probe.launch == launch.id)
        };
        Some(PastLaunch {
            id: launch.id.clone(),
            ended_at,
            has_open_parts: self
                .sessions
                .values()
                .any(|one| one.launch == launch.id && one.ended.is_none())
                || self.notices.values().any(|one| one.launch == launch.id && one.is_open())
                || own().any(|execution| execution.ended_at.is_none()),
            is_probe: self.accounts.values().any(is_probe),
            newest_of: tasks.into_iter().map(work).collect(),
        })
    }

    fn key_of_launch(&self, id: &LaunchId) -> Option<&InstanceKey> {
        self.launches.get(id).map(|launch| &launch.key)
    }

    fn tasks_in_progress(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().filter(|task| task.status == TaskStatus::InProgress)
    }

    /// Since when there is a task in progress, or a wish for a chat.
    fn waiting_since(&self, key: &InstanceKey) -> Option<Timestamp> {
        match key.purpose {
            Purpose::Task => {
                let is_of_key = |task: &&Task| {
                    task.project == key.project && task.assignee.as_ref() == Some(&key.agent)
                };
                self.tasks_in_progress().filter(is_of_key).map(|task| task.status_since).min()
            }
            Purpose::Chat => self.pairs.get(key)?.wanted_since,
        }
    }

    fn startable(&self) -> Vec<PairFacts> {
        let tasks = self.tasks_in_progress().filter_map(|task| {
            Some(InstanceKey::new(task.assignee.clone()?, task.project.clone(), Purpose::Task))
        });
        let chats = self
            .pairs
            .values()
            .filter(|pair| pair.key.purpose == Purpose::Chat && pair.wanted_since.is_some());
        let keys: BTreeSet<InstanceKey> = tasks.chain(chats.map(|pair| pair.key.clone())).collect();
        let open: BTreeSet<&InstanceKey> = self
            .launches
            .values()
            .filter(|launch| launch.is_open())
            .map(|launch| &launch.key)
            .collect();
        let is_startable = |facts: &PairFacts| {
            facts.is_assigned
                && facts.agent.as_ref().is_some_and(|(status, _)| *status == AgentStatus::Active)
                && facts
                    .project
                    .as_ref()
                    .is_some_and(|(status, _)| *status == ProjectStatus::Active)
        };
        let keys = keys.iter().filter(|key| !open.contains(key));
        let facts = keys.map(|key| self.pair_facts(key)).filter(is_startable);
        sorted(facts, |facts| (facts.waiting_since, facts.key.clone()))
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panic in the middle of a commit would leave half of it, but there is none: nothing there can fail so.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<'a, T>(&'a self, read: impl FnOnce(&Tables) -> T + Send + 'a) -> Answer<'a, T> {
        Box::pin(async move {
            let tables = self.lock();
            if tables.is_closed { Err(StoreError::Closed) } else { Ok(read(&tables)) }
        })
    }
}

fn sorted<T, K: Ord>(rows: impl Iterator<Item = T>, key: impl FnMut(&T) -> K) -> Vec<T> {
    let mut rows: Vec<T> = rows.collect();
    rows.sort_by_key(key);
    rows
}

/// Whether `value` is what a filter asks for; a filter that isn't set asks for nothing.
fn fits<T: PartialEq>(wanted: Option<&T>, value: Option<&T>) -> bool {
    wanted.is_none() || wanted == value
}

/// The newest first of `rows`, from where `filter` says; `after` is the place of the row that it names, if there is one.
fn history<'a, R: Clone + 'a, Id: Ord>(
    rows: impl Iterator<Item = &'a R>,
    filter: &HistoryFilter<Id>,
    after: Option<&(Timestamp, Id)>,
    place: impl Fn(&R) -> (Timestamp, Id),
) -> Vec<R> {
    let mut rows = sorted(rows.cloned(), |row| Reverse(place(row)));
    if filter.after.is_some() {
        rows.retain(|row| after.is_some_and(|after| place(row) < *after));
    }
    rows.truncate(filter.limit);
    rows
}

/// Whether a row of this launch, this key and this task is asked for.
fn is_of<Id>(
    filter: &HistoryFilter<Id>,
    launch: &LaunchId,
    key: Option<&InstanceKey>,
    task: Option<&TaskId>,
) -> bool {
    fits(filter.launch.as_ref(), Some(launch))
        && fits(filter.agent.as_ref(), key.map(|key| &key.agent))
        && fits(filter.project.as_ref(), key.map(|key| &key.project))
        && fits(filter.task.as_ref(), task)
}

impl Store for MemoryStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(async move {
            let mut tables = self.lock();
            if tables.is_closed { Err(StoreError::Closed.into()) } else { tables.apply(commit) }
        })
    }

    fn agent<'a>(&'a self, id: &'a AgentId) -> Answer<'a, Option<Agent>> {
        self.read(|tables| tables.agents.get(id).cloned())
    }

    fn agents(&self) -> Answer<'_, Vec<Agent>> {
        self.read(|tables| tables.agents.values().cloned().collect())
    }

    fn project<'a>(&'a self, id: &'a ProjectId) -> Answer<'a, Option<Project>> {
        self.read(|tables| tables.projects.get(id).cloned())
    }

    fn projects(&self) -> Answer<'_, Vec<Project>> {
        self.read(|tables| tables.projects.values().cloned().collect())
    }

    fn assignments(&self) -> Answer<'_, Vec<Assignment>> {
        self.read(|tables| tables.assignments.iter().cloned().collect())
    }

    fn task<'a>(&'a self, id: &'a TaskId) -> Answer<'a, Option<Task>> {
        self.read(|tables| tables.tasks.get(id).cloned())
    }

    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> Answer<'a, Vec<Task>> {
        self.read(|tables| {
            let rows = tables.tasks.values().filter(|task| {
                fits(filter.project.as_ref(), Some(&task.project))
                    && fits(filter.assignee.as_ref(), task.assignee.as_ref())
                    && fits(filter.status.as_ref(), Some(&task.status))
                    && fits(filter.parent.as_ref(), task.parent.as_ref())
                    && (task.status.is_open() || !filter.only_open)
            });
            sorted(rows.cloned(), |task| (task.created_at, task.id.clone()))
        })
    }

    fn launch<'a>(&'a self, id: &'a LaunchId) -> Answer<'a, Option<Launch>> {
        self.read(|tables| tables.launches.get(id).cloned())
    }

    fn launch_by_ticket<'a>(&'a self, ticket: &'a TokenHash) -> Answer<'a, Option<Launch>> {
        self.read(|tables| {
            let rows =
                tables.launches.values().filter(|launch| launch.ticket.as_ref() == Some(ticket));
            rows.max_by_key(|launch| (launch.claimed_at, &launch.id)).cloned()
        })
    }

    fn totals(&self) -> Answer<'_, Vec<(TotalKey, Total)>> {
        self.read(|tables| tables.launches.values().filter_map(of_ended).collect())
    }

    fn open_launches(&self) -> Answer<'_, Vec<Launch>> {
        self.read(|tables| {
            let rows = tables.launches.values().filter(|launch| launch.is_open());
            sorted(rows.cloned(), |launch| (launch.claimed_at, launch.id.clone()))
        })
    }

    fn launches<'a>(&'a self, filter: &'a LaunchFilter) -> Answer<'a, Vec<Launch>> {
        self.read(|tables| {
            let rows = tables.launches.values().filter(|launch| {
                fits(filter.agent.as_ref(), Some(&launch.key.agent))
                    && fits(filter.project.as_ref(), Some(&launch.key.project))
                    && fits(filter.purpose.as_ref(), Some(&launch.key.purpose))
                    && !(filter.only_ended && launch.is_open())
            });
            let place = |launch: &Launch| {
                let at = if filter.only_ended {
                    launch.as_ended().map(|(_, at)| at)
                } else {
                    Some(launch.claimed_at)
                };
                (at, launch.id.clone())
            };
            let mut rows = sorted(rows.cloned(), |launch| Reverse(place(launch)));
            if let Some(after) = &filter.after {
                let after = tables.launches.get(after).map(place);
                rows.retain(|launch| after.as_ref().is_some_and(|after| place(launch) < *after));
            }
            rows.truncate(filter.limit);
            rows
        })
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> Answer<'a, Option<Session>> {
        self.read(|tables| tables.sessions.get(id).cloned())
    }

    fn sessions<'a>(&'a self, filter: &'a HistoryFilter<SessionId>) -> Answer<'a, Vec<Session>> {
        self.read(|tables| {
            let rows = tables.sessions.values().filter(|session| {
                is_of(filter, &session.launch, Some(&session.key), None)
                    && !(filter.only_open && session.ended.is_some())
            });
            let place = |session: &Session| (session.created_at, session.id.clone());
            let after = filter.after.as_ref().and_then(|id| tables.sessions.get(id)).map(place);
            history(rows, filter, after.as_ref(), place)
        })
    }

    fn executions<'a>(
        &'a self,
        filter: &'a HistoryFilter<ExecutionId>,
    ) -> Answer<'a, Vec<Execution>> {
        self.read(|tables| {
            let rows = tables.executions.values().filter(|execution| {
                is_of(filter, &execution.launch, Some(&execution.key), Some(&execution.task))
                    && !(filter.only_open && execution.ended_at.is_some())
            });
            let place = |execution: &Execution| (execution.started_at, execution.id.clone());
            let after = filter.after.as_ref().and_then(|id| tables.executions.get(id)).map(place);
            history(rows, filter, after.as_ref(), place)
        })
    }

    fn notices<'a>(&'a self, filter: &'a HistoryFilter<NoticeId>) -> Answer<'a, Vec<Notice>> {
        self.read(|tables| {
            let rows = tables.notices.values().filter(|notice| {
                is_of(
                    filter,
                    &notice.launch,
                    tables.key_of_launch(&notice.launch),
                    notice.task.as_ref(),
                ) && (notice.is_open() || !filter.only_open)
            });
            let place = |notice: &Notice| (notice.created_at, notice.id.clone());
            let after = filter.after.as_ref().and_then(|id| tables.notices.get(id)).map(place);
            history(rows, filter, after.as_ref(), place)
        })
    }

    fn session_by_token<'a>(&'a self, token: &'a TokenHash) -> Answer<'a, Option<Session>> {
        self.read(|tables| {
            let rows = tables.sessions.values().filter(|session| session.token == *token);
            rows.max_by_key(|session| (session.created_at, &session.id)).cloned()
        })
    }

    fn open_sessions(&self) -> Answer<'_, Vec<Session>> {
        self.read(|tables| {
            let rows = tables.sessions.values().filter(|session| session.ended.is_none());
            sorted(rows.cloned(), |session| (session.created_at, session.id.clone()))
        })
    }

    fn sessions_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Session>> {
        self.read(|tables| {
            let rows = tables.sessions.values().filter(|session| session.launch == *launch);
            sorted(rows.cloned(), |session| (session.created_at, session.id.clone()))
        })
    }

    fn executions_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Vec<Execution>> {
        self.read(|tables| {
            let rows = tables.executions.values().filter(|execution| execution.task == *task);
            sorted(rows.cloned(), |execution| Reverse((execution.started_at, execution.id.clone())))
        })
    }

    fn executions_of_launch<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Execution>> {
        self.read(|tables| {
            let rows = tables.executions.values().filter(|execution| execution.launch == *launch);
            sorted(rows.cloned(), |execution| Reverse((execution.started_at, execution.id.clone())))
        })
    }

    fn notice<'a>(&'a self, id: &'a NoticeId) -> Answer<'a, Option<Notice>> {
        self.read(|tables| tables.notices.get(id).cloned())
    }

    fn notices_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Notice>> {
        self.read(|tables| {
            let rows = tables.notices.values().filter(|notice| notice.launch == *launch);
            sorted(rows.cloned(), |notice| (notice.created_at, notice.id.clone()))
        })
    }

    fn open_notices(&self) -> Answer<'_, Vec<Notice>> {
        self.read(|tables| {
            let rows = tables.notices.values().filter(|notice| notice.is_open());
            sorted(rows.cloned(), |notice| (notice.created_at, notice.id.clone()))
        })
    }

    fn message<'a>(&'a self, id: &'a MessageId) -> Answer<'a, Option<Message>> {
        self.read(|tables| tables.messages.iter().find(|message| message.id == *id).cloned())
    }

    fn messages<'a>(&'a self, filter: &'a MessageFilter) -> Answer<'a, Vec<Message>> {
        self.read(|tables| {
            let is_wanted = |message: &&Message| {
                message.agent == filter.agent
                    && message.project == filter.project
                    && filter.after.is_none_or(|after| message.seq > after)
                    && filter.before.is_none_or(|before| message.seq < before)
                    && filter.sender.is_none_or(|sender| message.sender == sender)
                    && (message.is_visible || !filter.only_visible)
            };
            let mut found: Vec<Message> =
                tables.messages.iter().filter(is_wanted).cloned().collect();
            let surplus = found.len().saturating_sub(filter.limit);
            match filter.end {
                ChatEnd::Oldest => found.truncate(filter.limit),
                ChatEnd::Newest => drop(found.drain(..surplus)),
            }
            found
        })
    }

    fn chats(&self) -> Answer<'_, Vec<Assignment>> {
        self.read(|tables| {
            let pair = |message: &Message| Assignment {
                project: message.project.clone(),
                agent: message.agent.clone(),
            };
            tables.messages.iter().map(pair).collect::<BTreeSet<_>>().into_iter().collect()
        })
    }

    fn output_tail<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Option<String>> {
        self.read(|tables| tables.output_tails.get(launch).cloned())
    }

    fn pair<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairRecord> {
        self.read(|tables| tables.pair(key))
    }

    fn held_pairs(&self) -> Answer<'_, Vec<PairRecord>> {
        self.read(|tables| {
            tables.pairs.values().filter(|pair| pair.held_since.is_some()).cloned().collect()
        })
    }

    fn account<'a>(&'a self, ai_type: &'a str) -> Answer<'a, Account> {
        self.read(|tables| tables.account(ai_type))
    }

    fn parked_accounts(&self) -> Answer<'_, Vec<Account>> {
        self.read(|tables| {
            tables.accounts.values().filter(|account| account.parked.is_some()).cloned().collect()
        })
    }

    fn credential<'a>(&'a self, id: &'a CredentialId) -> Answer<'a, Option<Credential>> {
        self.read(|tables| tables.credentials.get(id).cloned())
    }

    fn forge_item<'a>(&'a self, id: &'a ItemId) -> Answer<'a, Option<ForgeItem>> {
        self.read(|tables| tables.forge_items.get(id).cloned())
    }

    fn open_forge_item<'a>(&'a self, key: &'a ItemKey) -> Answer<'a, Option<ForgeItem>> {
        self.read(|tables| {
            tables.forge_items.values().find(|item| item.is_open() && item.key == *key).cloned()
        })
    }

    fn forge_item_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Option<ForgeItem>> {
        self.read(|tables| {
            let of_task = tables.forge_items.values().filter(|item| item.task == *task);
            of_task.max_by_key(|item| (item.created_at, item.id.clone())).cloned()
        })
    }

    fn open_forge_items(&self) -> Answer<'_, Vec<ForgeItem>> {
        self.read(|tables| {
            let rows = tables.forge_items.values().filter(|item| item.is_open());
            sorted(rows.cloned(), |item| (item.created_at, item.id.clone()))
        })
    }

    fn ended_forge_items(&self, limit: usize) -> Answer<'_, Vec<ForgeItem>> {
        self.read(move |tables| {
            let rows = tables.forge_items.values().filter(|item| !item.is_open());
            let mut rows = sorted(rows.cloned(), |item| Reverse((item.ended_at, item.id.clone())));
            rows.truncate(limit);
            rows
        })
    }

    fn past_forge_items(&self, before: Timestamp, limit: usize) -> Answer<'_, Vec<ItemId>> {
        self.read(move |tables| {
            let rows = tables
                .forge_items
                .values()
                .filter(|item| item.ended_at.is_some_and(|at| at < before));
            let rows = sorted(rows.cloned(), |item| (item.ended_at, item.id.clone()));
            rows.into_iter().take(limit).map(|item| item.id).collect()
        })
    }

    fn credential_by_secret<'a>(&'a self, secret: &'a TokenHash) -> Answer<'a, Option<Credential>> {
        self.read(|tables| {
            let rows = tables.credentials.values().filter(|row| row.secret == *secret);
            rows.max_by_key(|row| (row.created_at, &row.id)).cloned()
        })
    }

    fn credentials(&self) -> Answer<'_, Vec<Credential>> {
        self.read(|tables| {
            sorted(tables.credentials.values().cloned(), |row| (row.created_at, row.id.clone()))
        })
    }

    fn pair_facts<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairFacts> {
        self.read(|tables| tables.pair_facts(key))
    }

    fn startable(&self) -> Answer<'_, Vec<PairFacts>> {
        self.read(Tables::startable)
    }

    fn paused_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(|tables| tables.paused_since)
    }

    fn events(&self, after: i64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.read(move |tables| {
            tables.events.iter().filter(|event| event.seq > after).take(limit).cloned().collect()
        })
    }

    fn events_of_task<'a>(
        &'a self,
        task: &'a TaskId,
        after: i64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        self.read(move |tables| {
            let wanted = |event: &&Event| event.seq > after && event.task.as_ref() == Some(task);
            tables.events.iter().filter(wanted).take(limit).cloned().collect()
        })
    }

    fn event_span(&self) -> Answer<'_, EventSpan> {
        self.read(|tables| {
            let seq = |event: Option<&Event>| event.map_or(0, |event| event.seq);
            EventSpan { oldest: seq(tables.events.first()), newest: seq(tables.events.last()) }
        })
    }

    fn last_event_before(&self, at: Timestamp) -> Answer<'_, i64> {
        self.read(move |tables| {
            tables
                .events
                .iter()
                .filter(|event| event.at < at)
                .map(|event| event.seq)
                .max()
                .unwrap_or(0)
        })
    }

    fn last_message_before<'a>(&'a self, chat: &'a Assignment, at: Timestamp) -> Answer<'a, i64> {
        self.read(move |tables| {
            let is_of_chat =
                |message: &&Message| message.agent == chat.agent && message.project == chat.project;
            let old =
                tables.messages.iter().filter(is_of_chat).filter(|message| message.created_at < at);
            old.map(|message| message.seq).max().unwrap_or(0)
        })
    }

    fn past_launches<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a PastLaunch>,
        limit: usize,
    ) -> Answer<'a, Vec<PastLaunch>> {
        self.read(move |tables| {
            let after = after.map(|after| (after.ended_at, after.id.clone()));
            let is_old =
                |launch: &&Launch| launch.as_ended().is_some_and(|(_, ended_at)| ended_at < before);
            let past =
                tables.launches.values().filter(is_old).filter_map(|launch| tables.past(launch));
            let wanted = past.filter(|past| {
                after.as_ref().is_none_or(|after| (past.ended_at, past.id.clone()) > *after)
            });
            let mut past = sorted(wanted, |past| (past.ended_at, past.id.clone()));
            past.truncate(limit);
            past
        })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.read(|tables| Counts {
            n_agents: tables.agents.len() as u64,
            n_projects: tables.projects.len() as u64,
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.lock().is_closed = true })
    }
}
