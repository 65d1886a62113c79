//! The store: all state that outlives a process, behind one trait.
//!
//! Reads are plain questions. Writes are whole commits: rows as they are to be, each naming the revision it was made from, so
//! that a decision taken on outdated facts conflicts instead of overwriting. Nobody but `service` calls this module, and the
//! rules are not here: a backend compares revisions and keeps one open launch per key. It doesn't even ask whether the id in a
//! row exists.

pub mod memory;
pub mod sqlite;

use futures::future::BoxFuture;

use crate::domain::agent::Assignment;
use crate::domain::chat::Sender;
use crate::domain::event::{Event, EventSpan, NewEvent};
use crate::domain::id::{
    AgentId, ExecutionId, ItemId, LaunchId, MessageId, NoticeId, ProjectId, SessionId, TaskId,
};
use crate::domain::retention::PastLaunch;
use crate::domain::secret::TokenHash;
use crate::domain::totals::{Total, TotalKey};
use crate::domain::{
    Account, Agent, Credential, CredentialId, Execution, ForgeItem, InstanceKey, ItemKey, Launch,
    Message, Notice, PairFacts, PairRecord, Project, Purpose, Session, Task, TaskStatus, Timestamp,
};

/// The answer to a read.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// One transaction: all of it, or nothing.
///
/// Expectations are looked at first, then changes are made, each in the given order; the first that fails is the answer. Of
/// one change the revision counts before the key of its launch. Later changes see the earlier ones of the same commit.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// What must be true besides the revisions of the changed rows.
    pub expect: Vec<Expect>,
    pub changes: Vec<Change>,
}

/// A condition of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// No launch of this key is open.
    NoOpenLaunch(InstanceKey),
    /// The task still has this revision (0: it doesn't exist), although the commit doesn't change it.
    TaskAt(TaskId, i64),
    /// The launch still has this revision (0: it doesn't exist), although the commit doesn't change it.
    LaunchAt(LaunchId, i64),
    /// The record of the key still has this revision (0: nothing is remembered), although the commit doesn't change it.
    PairAt(InstanceKey, i64),
    /// Nothing was said in this chat after the message with this number.
    NoMessageAfter(Assignment, i64),
    /// New agents are being started.
    NotPaused,
    /// Nobody here works on this item of a forge.
    NoOpenItem(ItemKey),
}

/// A row as it is to be. Its `revision` is the one it was made from (0: it must not exist yet); the store counts it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Agent(Agent),
    Project(Project),
    /// Repeating it changes nothing.
    Assign(Assignment),
    /// Repeating it changes nothing.
    Unassign(Assignment),
    Task(Task),
    Launch(Launch),
    Session(Session),
    Execution(Execution),
    Notice(Notice),
    /// A new message; the store gives it its number, whatever `seq` says. There is no other with its id.
    Message(Message),
    /// The end of what the agent of a launch printed, kept where its output itself is not. The newest counts; of launches, the
    /// newest [`MAX_OUTPUT_TAILS`] by their ids, which grow with time.
    OutputTail(LaunchId, String),
    Pair(PairRecord),
    Account(Account),
    Credential(Credential),
    /// Whether it exists or not.
    ForgetCredential(CredentialId),
    /// At most one open one of each item.
    ForgeItem(ForgeItem),
    /// One that has ended; one that is open, or unknown, stays as it is.
    ForgetItem(ItemId),
    /// No new starts since then, or starts again.
    Pause(Option<Timestamp>),
    Event(NewEvent),
    /// An ended launch with its sessions, notices, executions and kept output is forgotten; one that is open, or unknown, stays as
    /// it is.
    ForgetLaunch(LaunchId),
    /// Events up to this number are forgotten.
    ForgetEvents(i64),
    /// The messages of a chat up to this number are forgotten.
    ForgetMessages(Assignment, i64),
}

/// So many ends of outputs are kept.
pub const MAX_OUTPUT_TAILS: usize = 1000;

/// Why a commit wasn't made.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Something the decision was based on has changed: read again, decide again.
    #[error("{what} `{id}` has changed meanwhile")]
    Outdated { what: &'static str, id: String },
    /// The key has an open launch: the last guard against a double start.
    #[error("{key} has an open launch")]
    OpenLaunch { key: InstanceKey },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The store can't answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not {action} the store")]
    Unavailable {
        /// What was tried: `read`, `write to`.
        action: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row that this program can't have written.
    #[error("the store has an unreadable {what} `{id}`")]
    Unreadable {
        what: &'static str,
        id: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the store is closed")]
    Closed,
}

/// Which tasks; each field that is set narrows the answer.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    pub project: Option<ProjectId>,
    pub assignee: Option<AgentId>,
    pub status: Option<TaskStatus>,
    pub parent: Option<TaskId>,
    /// Only those that are neither done nor cancelled.
    pub only_open: bool,
}

/// Which launches, the newest first.
#[derive(Debug, Clone)]
pub struct LaunchFilter {
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub purpose: Option<Purpose>,
    /// Only those that have ended, by the time of their end.
    pub only_ended: bool,
    /// Only what comes after this one in the answer; nothing, if there is no such launch.
    pub after: Option<LaunchId>,
    /// At most so many.
    pub limit: usize,
}

/// Which rows of what agents leave behind them, the newest first; each field that is set narrows the answer.
#[derive(Debug, Clone)]
pub struct HistoryFilter<Id> {
    pub agent: Option<AgentId>,
    pub project: Option<ProjectId>,
    pub launch: Option<LaunchId>,
    /// Sessions have none.
    pub task: Option<TaskId>,
    /// Only what goes on.
    pub only_open: bool,
    /// Only what comes after this row in the answer; nothing, if there is no such row.
    pub after: Option<Id>,
    /// At most so many.
    pub limit: usize,
}

impl<Id> HistoryFilter<Id> {
    /// At most so many of all.
    pub const fn newest(limit: usize) -> Self {
        Self {
            agent: None,
            project: None,
            launch: None,
            task: None,
            only_open: false,
            after: None,
            limit,
        }
    }
}

/// Which messages of a chat, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageFilter {
    pub agent: AgentId,
    pub project: ProjectId,
    /// Only those with greater numbers.
    pub after: Option<i64>,
    /// Only those with smaller numbers.
    pub before: Option<i64>,
    /// Only those of this sender.
    pub sender: Option<Sender>,
    /// Without those that nobody is shown.
    pub only_visible: bool,
    /// Which, if there are more than `limit`.
    pub end: ChatEnd,
    /// At most so many.
    pub limit: usize,
}

impl MessageFilter {
    /// The first `limit` messages of a chat, with those that nobody is shown.
    pub const fn oldest(agent: AgentId, project: ProjectId, limit: usize) -> Self {
        let (after, before, sender) = (None, None, None);
        Self {
            agent,
            project,
            after,
            before,
            sender,
            only_visible: false,
            end: ChatEnd::Oldest,
            limit,
        }
    }
}

/// An end of a list of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatEnd {
    Oldest,
    Newest,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub n_agents: u64,
    pub n_projects: u64,
}

/// A backend. All backends give the same answers to the same commits: `tests/it/store.rs` holds them to it.
///
/// Nothing happens before a future is polled. Dropping that of a read is harmless; a commit that was handed over is made even
/// when its future is dropped.
pub trait Store: Send + Sync + 'static {
    /// Makes `commit`, durably, or says why not. After `Ok` every read sees it.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<(), CommitError>>;

    fn agent<'a>(&'a self, id: &'a AgentId) -> Answer<'a, Option<Agent>>;
    /// By id.
    fn agents(&self) -> Answer<'_, Vec<Agent>>;
    fn project<'a>(&'a self, id: &'a ProjectId) -> Answer<'a, Option<Project>>;
    /// By id.
    fn projects(&self) -> Answer<'_, Vec<Project>>;
    /// By project, then agent.
    fn assignments(&self) -> Answer<'_, Vec<Assignment>>;
    fn task<'a>(&'a self, id: &'a TaskId) -> Answer<'a, Option<Task>>;
    /// By creation, then id.
    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> Answer<'a, Vec<Task>>;

    fn launch<'a>(&'a self, id: &'a LaunchId) -> Answer<'a, Option<Launch>>;
    /// The launch with this ticket; the newest, should there be several.
    fn launch_by_ticket<'a>(&'a self, ticket: &'a TokenHash) -> Answer<'a, Option<Launch>>;
    /// By claim time, then id.
    fn open_launches(&self) -> Answer<'_, Vec<Launch>>;
    fn launches<'a>(&'a self, filter: &'a LaunchFilter) -> Answer<'a, Vec<Launch>>;
    /// The sums over all launches that have ended.
    fn totals(&self) -> Answer<'_, Vec<(TotalKey, Total)>>;

    /// The session with this token, also an ended one; the newest, should there be several.
    fn session_by_token<'a>(&'a self, token: &'a TokenHash) -> Answer<'a, Option<Session>>;
    /// Sessions that have not ended, by creation, then id.
    fn open_sessions(&self) -> Answer<'_, Vec<Session>>;
    fn session<'a>(&'a self, id: &'a SessionId) -> Answer<'a, Option<Session>>;
    /// By creation.
    fn sessions<'a>(&'a self, filter: &'a HistoryFilter<SessionId>) -> Answer<'a, Vec<Session>>;
    /// The sessions of one launch, by creation, then id.
    fn sessions_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Session>>;
    /// By their beginning.
    fn executions<'a>(
        &'a self,
        filter: &'a HistoryFilter<ExecutionId>,
    ) -> Answer<'a, Vec<Execution>>;
    /// The work on one task, the newest first.
    fn executions_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Vec<Execution>>;
    /// The work of one launch, the newest first.
    fn executions_of_launch<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Execution>>;

    fn notice<'a>(&'a self, id: &'a NoticeId) -> Answer<'a, Option<Notice>>;
    /// By creation; what is open isn't settled.
    fn notices<'a>(&'a self, filter: &'a HistoryFilter<NoticeId>) -> Answer<'a, Vec<Notice>>;
    /// The notices of one launch, settled ones too, by creation, then id.
    fn notices_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Notice>>;
    /// Notices that aren't settled, by creation, then id.
    fn open_notices(&self) -> Answer<'_, Vec<Notice>>;

    fn message<'a>(&'a self, id: &'a MessageId) -> Answer<'a, Option<Message>>;
    fn messages<'a>(&'a self, filter: &'a MessageFilter) -> Answer<'a, Vec<Message>>;
    /// Every agent and project that have said something to each other, in their order.
    fn chats(&self) -> Answer<'_, Vec<Assignment>>;

    /// What was kept of the output of a launch.
    fn output_tail<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Option<String>>;

    /// The record of a key; a fresh one if nothing is remembered.
    fn pair<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairRecord>;
    /// Keys that are held, by key.
    fn held_pairs(&self) -> Answer<'_, Vec<PairRecord>>;
    /// What is remembered of the account of an `ai_type`; a fresh one if that is nothing.
    fn account<'a>(&'a self, ai_type: &'a str) -> Answer<'a, Account>;
    /// Accounts that are parked, by `ai_type`.
    fn parked_accounts(&self) -> Answer<'_, Vec<Account>>;
    fn credential<'a>(&'a self, id: &'a CredentialId) -> Answer<'a, Option<Credential>>;
    /// The one with this secret, whether it is good or not; the newest, should there be several.
    fn credential_by_secret<'a>(&'a self, secret: &'a TokenHash) -> Answer<'a, Option<Credential>>;
    /// By creation, then id.
    fn credentials(&self) -> Answer<'_, Vec<Credential>>;
    /// What decides about the start of `key`, in one read. Work is: a task in progress in the project, assigned to the agent;
    /// for a chat, the wish for one in the record of the key.
    fn pair_facts<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairFacts>;
    /// The facts of each key with work and without an open launch whose agent and project are active and assigned, by
    /// `waiting_since`, then key. Its cost grows with the work, not with the pairs.
    fn startable(&self) -> Answer<'_, Vec<PairFacts>>;
    /// Since when no new agents are started; `None` normally.
    fn paused_since(&self) -> Answer<'_, Option<Timestamp>>;

    fn forge_item<'a>(&'a self, id: &'a ItemId) -> Answer<'a, Option<ForgeItem>>;
    /// The one for which there is something to do.
    fn open_forge_item<'a>(&'a self, key: &'a ItemKey) -> Answer<'a, Option<ForgeItem>>;
    /// The newest that was made into this task.
    fn forge_item_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Option<ForgeItem>>;
    /// Those for which there is still something to do, by creation, then id.
    fn open_forge_items(&self) -> Answer<'_, Vec<ForgeItem>>;
    /// The others, the newest end first, at most `limit`.
    fn ended_forge_items(&self, limit: usize) -> Answer<'_, Vec<ForgeItem>>;
    /// Those that ended before then, the oldest first, at most `limit`.
    fn past_forge_items(&self, before: Timestamp, limit: usize) -> Answer<'_, Vec<ItemId>>;

    /// Events after `seq`, in order, at most `limit`.
    fn events(&self, after: i64, limit: usize) -> Answer<'_, Vec<Event>>;
    /// The same of those that name a task.
    fn events_of_task<'a>(
        &'a self,
        task: &'a TaskId,
        after: i64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>>;
    fn event_span(&self) -> Answer<'_, EventSpan>;
    /// The greatest number of an event from before then; 0 if there is none.
    fn last_event_before(&self, at: Timestamp) -> Answer<'_, i64>;
    /// The same of the messages of a chat.
    fn last_message_before<'a>(&'a self, chat: &'a Assignment, at: Timestamp) -> Answer<'a, i64>;
    /// Launches that ended before then, by their end, then id; those after this one, at most `limit`.
    fn past_launches<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a PastLaunch>,
        limit: usize,
    ) -> Answer<'a, Vec<PastLaunch>>;
    fn counts(&self) -> Answer<'_, Counts>;

    /// Makes what was handed over and closes. Later calls answer [`StoreError::Closed`].
    fn close(&self) -> BoxFuture<'_, ()>;
}
