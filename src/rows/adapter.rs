//! The database with its entities: transactions of use cases, and plain questions.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::domain::agent::Assignment;
use crate::domain::event::{Event, EventSpan};
use crate::domain::id::{
    AgentId, ExecutionId, ItemId, LaunchId, MessageId, NoticeId, ProjectId, SessionId, TaskId,
};
use crate::domain::retention::PastLaunch;
use crate::domain::secret::TokenHash;
use crate::domain::totals::{Total, TotalKey};
use crate::domain::{
    Account, Agent, Credential, CredentialId, Execution, ForgeItem, InstanceKey, ItemKey, Launch,
    Message, Notice, PairFacts, PairRecord, Project, Session, Task, Timestamp,
};
use crate::store::{
    Answer, Counts, Engine, HistoryFilter, LaunchFilter, MessageFilter, OpenError, Read, Settings,
    StoreError, TaskFilter, open,
};

use super::{
    Context, Publish, Transaction, accounts, agents, assignments, credentials, events, executions,
    forge_items, launches, messages, notices, output_tails, pairs, past, pauses, projects,
    sessions, startable, tasks,
};

/// The store in an SQLite database.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    engine: Engine,
}

impl SqliteStore {
    /// The store of an engine that is open.
    pub const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Opens the database at `path` and brings its schema up to date; makes a new one (mode 0600) if there is none.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file and what to do. The file is then as it was.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, Settings::default()).await
    }

    /// Opens the database with other settings.
    ///
    /// # Errors
    /// The errors of [`SqliteStore::open`].
    pub async fn open_with(path: &Path, settings: Settings) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let file = path.clone();
        let opened = tokio::task::spawn_blocking(move || open::file(&file, settings)).await;
        let engine = opened.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(error) => Err(OpenError::Other { path, source: error.into() }),
        })?;
        Ok(Self { engine })
    }

    /// Opens an empty store in the memory of this process, whose calls are answered when they are first polled.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn in_memory() -> Result<Self, OpenError> {
        Ok(Self { engine: open::memory()? })
    }

    pub fn n_transactions(&self) -> u64 {
        self.engine.n_transactions()
    }

    /// Returns when nothing can be written any more: the store was closed, or its writer died.
    pub async fn closed(&self) {
        self.engine.closed().await;
    }

    /// Runs `body` in a transaction and commits it, then calls `publish`. Leaves nothing if `body` returns an error.
    ///
    /// # Errors
    /// The error of `body`; [`StoreError`] if the database fails or is closed.
    #[track_caller]
    pub fn change<T, E, F>(
        &self,
        context: Context,
        publish: Publish,
        mut body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    {
        self.engine.write_with(context, move |tx| {
            let answer = body(tx)?;
            let (published, publish) = (tx.finish()?, Arc::clone(&publish));
            tx.after_commit(move || publish(published));
            Ok(answer)
        })
    }

    /// Reads with `body` from one snapshot.
    ///
    /// # Errors
    /// The error of `body`; [`StoreError`] if the database fails or is closed.
    pub fn query<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Read<'_>) -> Result<T, E> + Send + 'static,
    {
        self.engine.read(body)
    }

    fn read<T: Send + 'static>(
        &self,
        body: impl FnOnce(&mut Read<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<'_, T> {
        Box::pin(self.engine.read(body))
    }
}

/// Questions. Nothing happens before a future is polled, and dropping it is harmless.
impl SqliteStore {
    /// Returns an agent.
    pub fn agent<'a>(&'a self, id: &'a AgentId) -> Answer<'a, Option<Agent>> {
        let id = id.to_owned();
        self.read(move |tx| agents::get(tx, &id))
    }

    /// Returns all agents, by id.
    pub fn agents(&self) -> Answer<'_, Vec<Agent>> {
        self.read(agents::list)
    }

    /// Returns a project.
    pub fn project<'a>(&'a self, id: &'a ProjectId) -> Answer<'a, Option<Project>> {
        let id = id.to_owned();
        self.read(move |tx| projects::get(tx, &id))
    }

    /// Returns all projects, by id.
    pub fn projects(&self) -> Answer<'_, Vec<Project>> {
        self.read(projects::list)
    }

    /// Returns all assignments, by project, then agent.
    pub fn assignments(&self) -> Answer<'_, Vec<Assignment>> {
        self.read(assignments::list)
    }

    /// Returns a task.
    pub fn task<'a>(&'a self, id: &'a TaskId) -> Answer<'a, Option<Task>> {
        let id = id.to_owned();
        self.read(move |tx| tasks::get(tx, &id))
    }

    /// Returns the tasks of a filter, by creation, then id.
    pub fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> Answer<'a, Vec<Task>> {
        let filter = filter.to_owned();
        self.read(move |tx| tasks::list(tx, &filter))
    }

    /// Returns a launch.
    pub fn launch<'a>(&'a self, id: &'a LaunchId) -> Answer<'a, Option<Launch>> {
        let id = id.to_owned();
        self.read(move |tx| launches::get(tx, &id))
    }

    /// Returns the launch with this ticket; the newest, if there are several.
    pub fn launch_by_ticket<'a>(&'a self, ticket: &'a TokenHash) -> Answer<'a, Option<Launch>> {
        let ticket = ticket.to_owned();
        self.read(move |tx| launches::find_by_ticket(tx, &ticket))
    }

    /// Returns the open launches, by claim time, then id.
    pub fn open_launches(&self) -> Answer<'_, Vec<Launch>> {
        self.read(launches::list_open)
    }

    /// Returns the launches of a filter, the newest first.
    pub fn launches<'a>(&'a self, filter: &'a LaunchFilter) -> Answer<'a, Vec<Launch>> {
        let filter = filter.to_owned();
        self.read(move |tx| launches::list(tx, &filter))
    }

    /// Returns the sums over all ended launches.
    pub fn totals(&self) -> Answer<'_, Vec<(TotalKey, Total)>> {
        self.read(launches::totals)
    }

    /// Returns the session with this token, also an ended one; the newest, if there are several.
    pub fn session_by_token<'a>(&'a self, token: &'a TokenHash) -> Answer<'a, Option<Session>> {
        let token = token.to_owned();
        self.read(move |tx| sessions::find_by_token(tx, &token))
    }

    /// Returns the sessions that have not ended, by creation, then id.
    pub fn open_sessions(&self) -> Answer<'_, Vec<Session>> {
        self.read(sessions::list_open)
    }

    /// Returns a session.
    pub fn session<'a>(&'a self, id: &'a SessionId) -> Answer<'a, Option<Session>> {
        let id = id.to_owned();
        self.read(move |tx| sessions::get(tx, &id))
    }

    /// Returns the sessions of a filter, by creation.
    pub fn sessions<'a>(
        &'a self,
        filter: &'a HistoryFilter<SessionId>,
    ) -> Answer<'a, Vec<Session>> {
        let filter = filter.to_owned();
        self.read(move |tx| sessions::list(tx, &filter))
    }

    /// Returns the sessions of a launch, by creation, then id.
    pub fn sessions_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Session>> {
        let launch = launch.to_owned();
        self.read(move |tx| sessions::list_of_launch(tx, &launch))
    }

    /// Returns the executions of a filter, by their beginning.
    pub fn executions<'a>(
        &'a self,
        filter: &'a HistoryFilter<ExecutionId>,
    ) -> Answer<'a, Vec<Execution>> {
        let filter = filter.to_owned();
        self.read(move |tx| executions::list(tx, &filter))
    }

    /// Returns the executions of a task, the newest first.
    pub fn executions_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Vec<Execution>> {
        let task = task.to_owned();
        self.read(move |tx| executions::list_of_task(tx, &task))
    }

    /// Returns the executions of a launch, the newest first.
    pub fn executions_of_launch<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Execution>> {
        let launch = launch.to_owned();
        self.read(move |tx| executions::list_of_launch(tx, &launch))
    }

    /// Returns a notice.
    pub fn notice<'a>(&'a self, id: &'a NoticeId) -> Answer<'a, Option<Notice>> {
        let id = id.to_owned();
        self.read(move |tx| notices::get(tx, &id))
    }

    /// Returns the notices of a filter, by creation. An open notice is one that is not settled.
    pub fn notices<'a>(&'a self, filter: &'a HistoryFilter<NoticeId>) -> Answer<'a, Vec<Notice>> {
        let filter = filter.to_owned();
        self.read(move |tx| notices::list(tx, &filter))
    }

    /// Returns all notices of a launch, by creation, then id.
    pub fn notices_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Notice>> {
        let launch = launch.to_owned();
        self.read(move |tx| notices::list_of_launch(tx, &launch))
    }

    /// Returns the notices that are not settled, by creation, then id.
    pub fn open_notices(&self) -> Answer<'_, Vec<Notice>> {
        self.read(notices::list_open)
    }

    /// Returns a message.
    pub fn message<'a>(&'a self, id: &'a MessageId) -> Answer<'a, Option<Message>> {
        let id = id.to_owned();
        self.read(move |tx| messages::get(tx, &id))
    }

    /// Returns the messages of a filter, in their order.
    pub fn messages<'a>(&'a self, filter: &'a MessageFilter) -> Answer<'a, Vec<Message>> {
        let filter = filter.to_owned();
        self.read(move |tx| messages::list(tx, &filter))
    }

    /// Returns each agent and project with a message, by project, then agent.
    pub fn chats(&self) -> Answer<'_, Vec<Assignment>> {
        self.read(messages::list_chats)
    }

    /// Returns the kept end of the output of a launch.
    pub fn output_tail<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Option<String>> {
        let launch = launch.to_owned();
        self.read(move |tx| output_tails::get(tx, &launch))
    }

    /// Returns the record of a key; a fresh one if there is none.
    pub fn pair<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairRecord> {
        let key = key.to_owned();
        self.read(move |tx| pairs::get(tx, &key))
    }

    /// Returns the records of held keys, by key.
    pub fn held_pairs(&self) -> Answer<'_, Vec<PairRecord>> {
        self.read(pairs::list_held)
    }

    /// Returns the record of the account of an `ai_type`; a fresh one if there is none.
    pub fn account<'a>(&'a self, ai_type: &'a str) -> Answer<'a, Account> {
        let ai_type = ai_type.to_owned();
        self.read(move |tx| accounts::get(tx, &ai_type))
    }

    /// Returns the accounts that are parked, by `ai_type`.
    pub fn parked_accounts(&self) -> Answer<'_, Vec<Account>> {
        self.read(accounts::list_parked)
    }

    /// Returns a credential.
    pub fn credential<'a>(&'a self, id: &'a CredentialId) -> Answer<'a, Option<Credential>> {
        let id = id.to_owned();
        self.read(move |tx| credentials::get(tx, &id))
    }

    /// Returns the credential with this secret, also a bad one; the newest, if there are several.
    pub fn credential_by_secret<'a>(
        &'a self,
        secret: &'a TokenHash,
    ) -> Answer<'a, Option<Credential>> {
        let secret = secret.to_owned();
        self.read(move |tx| credentials::find_by_secret(tx, &secret))
    }

    /// Returns all credentials, by creation, then id.
    pub fn credentials(&self) -> Answer<'_, Vec<Credential>> {
        self.read(credentials::list)
    }

    /// Returns the facts that decide about the start of `key`, in one read. Work is a task in progress in the project that
    /// is assigned to the agent; for a chat it is the wish for one in the record of the key.
    pub fn pair_facts<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairFacts> {
        let key = key.to_owned();
        self.read(move |tx| startable::of_key(tx, &key))
    }

    /// Returns the facts of each key with work and without an open launch whose agent and project are active and
    /// assigned, by `waiting_since`, then key. The cost grows with the work, not with the pairs.
    pub fn startable(&self) -> Answer<'_, Vec<PairFacts>> {
        self.read(startable::list)
    }

    /// Returns the time since which no new agents are started; `None` normally.
    pub fn paused_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(pauses::since)
    }

    /// Returns an item of a forge.
    pub fn forge_item<'a>(&'a self, id: &'a ItemId) -> Answer<'a, Option<ForgeItem>> {
        let id = id.to_owned();
        self.read(move |tx| forge_items::get(tx, &id))
    }

    /// Returns the open item with this key.
    pub fn open_forge_item<'a>(&'a self, key: &'a ItemKey) -> Answer<'a, Option<ForgeItem>> {
        let key = key.to_owned();
        self.read(move |tx| forge_items::find_open(tx, &key))
    }

    /// Returns the newest item that was made into this task.
    pub fn forge_item_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Option<ForgeItem>> {
        let task = task.to_owned();
        self.read(move |tx| forge_items::find_of_task(tx, &task))
    }

    /// Returns the open items, by creation, then id.
    pub fn open_forge_items(&self) -> Answer<'_, Vec<ForgeItem>> {
        self.read(forge_items::list_open)
    }

    /// Returns the ended items, the newest end first, at most `limit`.
    pub fn ended_forge_items(&self, limit: usize) -> Answer<'_, Vec<ForgeItem>> {
        self.read(move |tx| forge_items::list_ended(tx, limit))
    }

    /// Returns the items that ended before then, the oldest first, at most `limit`.
    pub fn past_forge_items(&self, before: Timestamp, limit: usize) -> Answer<'_, Vec<ItemId>> {
        self.read(move |tx| forge_items::list_ended_before(tx, before, limit))
    }

    /// Returns the events after `seq`, in order, at most `limit`.
    pub fn events(&self, after: i64, limit: usize) -> Answer<'_, Vec<Event>> {
        self.read(move |tx| events::list(tx, after, limit))
    }

    /// Returns the events after `seq` that name a task, in order, at most `limit`.
    pub fn events_of_task<'a>(
        &'a self,
        task: &'a TaskId,
        after: i64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        let task = task.to_owned();
        self.read(move |tx| events::list_of_task(tx, &task, after, limit))
    }

    /// Returns the numbers of the oldest and the newest event.
    pub fn event_span(&self) -> Answer<'_, EventSpan> {
        self.read(events::span)
    }

    /// Returns the greatest number of an event from before then; 0 if there is none.
    pub fn last_event_before(&self, at: Timestamp) -> Answer<'_, i64> {
        self.read(move |tx| events::last_before(tx, at))
    }

    /// Returns the greatest number of a message of a chat from before then; 0 if there is none.
    pub fn last_message_before<'a>(
        &'a self,
        chat: &'a Assignment,
        at: Timestamp,
    ) -> Answer<'a, i64> {
        let chat = chat.to_owned();
        self.read(move |tx| messages::last_before(tx, &chat, at))
    }

    /// Returns the launches that ended before then, by their end, then id; those after this one, at most `limit`.
    pub fn past_launches<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a PastLaunch>,
        limit: usize,
    ) -> Answer<'a, Vec<PastLaunch>> {
        let after = after.cloned();
        self.read(move |tx| past::launches(tx, before, after.as_ref(), limit))
    }

    /// Returns how many agents and projects there are.
    pub fn counts(&self) -> Answer<'_, Counts> {
        self.read(|tx| {
            Ok(Counts { n_agents: agents::count(tx)?, n_projects: projects::count(tx)? })
        })
    }

    /// Commits what was handed over, then closes the store. Later calls answer [`StoreError::Closed`].
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.engine.close())
    }
}
