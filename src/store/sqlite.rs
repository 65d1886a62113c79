//! The store in an SQLite file: one task writes, a few connections read.
//!
//! Reads go to a small pool and see the newest commit, because a WAL snapshot begins with each of them. Writes go to the one
//! task of `writer`. This file owns the SQL of the reads, with the long ones in `questions`; `changes` owns that of the writes and
//! `batch` how it is run, `rows` the way from columns to values, `open` what can be wrong with a file. What the answers mean is the
//! trait's business.

mod at_hand;
mod batch;
mod changes;
mod open;
mod questions;
mod rows;
mod writer;

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqlitePoolOptions, SqliteRow};
use sqlx::{Encode, QueryBuilder, Row, Sqlite, SqlitePool, Type};

pub use self::open::{OpenError, Settings};
use self::questions::{NEWEST_WORK, OPEN_LAUNCHES, PAIR_FACTS, PAST_LAUNCHES, STARTABLE, TOTALS};
use self::writer::Writer;
use super::{
    Answer, ChatEnd, Commit, CommitError, Counts, HistoryFilter, LaunchFilter, MessageFilter,
    Store, StoreError, TaskFilter,
};
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
    Message, Notice, PairFacts, PairRecord, Project, Session, Task, TaskStatus, Timestamp,
};

type SqlQuery<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Any error of the driver or of a column's text.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Readers that are open at once, where there are as many processors; more wait. Each has a thread, with its part of the memory.
const MOST_READERS: u32 = 4;
const FEWEST_READERS: u32 = 2;
/// Memory for pages of one reader: 256 KiB.
const READER_CACHE: &str = "-256";
/// How long a reader that nobody uses keeps its memory.
const READER_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a read waits for a free reader.
const READER_WAIT: Duration = Duration::from_secs(10);

/// The store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    readers: SqlitePool,
    writer: Writer,
}

fn max_readers() -> u32 {
    let processors = std::thread::available_parallelism()
        .map_or(FEWEST_READERS, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    processors.clamp(FEWEST_READERS, MOST_READERS)
}

impl SqliteStore {
    /// Opens the database at `path` and brings its schema up to date; makes a new one (mode 0600) if there is none.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file and what to do. The file is then as it was.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, Settings::default()).await
    }

    /// As [`SqliteStore::open`], with other settings.
    pub async fn open_with(path: &Path, settings: Settings) -> Result<Self, OpenError> {
        let opened = open::file(path, settings).await?;
        Ok(Self::new(opened))
    }

    /// A store in the memory of this process, which dies with it; for tests and trials.
    pub async fn in_memory() -> Result<Self, OpenError> {
        let opened = open::memory().await?;
        Ok(Self::new(opened))
    }

    fn new(opened: open::Opened) -> Self {
        let readers = SqlitePoolOptions::new()
            .min_connections(0)
            .max_connections(max_readers())
            .acquire_timeout(READER_WAIT)
            .idle_timeout(READER_IDLE_TIMEOUT)
            .max_lifetime(None)
            // A ping before each read would double its cost, and a file doesn't go away like a server.
            .test_before_acquire(false)
            // Each write makes them read their pages anew, from the memory of the kernel: many of them are only kept twice.
            .connect_lazy_with(
                opened
                    .options
                    .clone()
                    .pragma("query_only", "on")
                    .pragma("cache_size", READER_CACHE),
            );
        Self { readers, writer: Writer::start(opened.connection, opened.options) }
    }

    /// Transactions made since the store was opened; fewer than commits when many came at once.
    pub fn n_transactions(&self) -> u64 {
        self.writer.n_transactions()
    }

    /// Returns when nothing can be written any more: the store was closed, or its writer died.
    pub async fn closed(&self) {
        self.writer.ended().await;
    }

    fn find<'a, T: 'a>(
        &'a self,
        query: SqlQuery<'a>,
        read: fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Answer<'a, Option<T>> {
        Box::pin(async move {
            let row = query.fetch_optional(&self.readers).await.map_err(read_failed)?;
            row.as_ref().map(read).transpose()
        })
    }

    /// The one number of one row, `seq`.
    fn number<'a>(&'a self, query: SqlQuery<'a>) -> Answer<'a, i64> {
        Box::pin(async move {
            let row = query.fetch_one(&self.readers).await.map_err(read_failed)?;
            row.try_get("seq").map_err(read_failed)
        })
    }

    fn list<'a, T: 'a>(
        &'a self,
        query: SqlQuery<'a>,
        read: fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Answer<'a, Vec<T>> {
        Box::pin(async move {
            let rows = query.fetch_all(&self.readers).await.map_err(read_failed)?;
            rows.iter().map(read).collect()
        })
    }

    /// Events, without those that are in the file already but not given yet to those who follow.
    fn list_given<'a>(&'a self, query: SqlQuery<'a>) -> Answer<'a, Vec<Event>> {
        Box::pin(async move {
            let mut events = self.list(query, rows::event).await?;
            if let Some(newest) = self.writer.at_hand().newest_events.newest() {
                events.retain(|event| event.seq <= newest);
            }
            Ok(events)
        })
    }
}

fn read_failed(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::PoolClosed => StoreError::Closed,
        error => StoreError::Unavailable { action: "read", source: error.into() },
    }
}

impl Store for SqliteStore {
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<(), CommitError>> {
        Box::pin(self.writer.commit(commit))
    }

    fn agent<'a>(&'a self, id: &'a AgentId) -> Answer<'a, Option<Agent>> {
        self.find(sqlx::query("SELECT * FROM agents WHERE id = $1").bind(id.as_str()), rows::agent)
    }

    fn agents(&self) -> Answer<'_, Vec<Agent>> {
        self.list(sqlx::query("SELECT * FROM agents ORDER BY id"), rows::agent)
    }

    fn project<'a>(&'a self, id: &'a ProjectId) -> Answer<'a, Option<Project>> {
        self.find(
            sqlx::query("SELECT * FROM projects WHERE id = $1").bind(id.as_str()),
            rows::project,
        )
    }

    fn projects(&self) -> Answer<'_, Vec<Project>> {
        self.list(sqlx::query("SELECT * FROM projects ORDER BY id"), rows::project)
    }

    fn assignments(&self) -> Answer<'_, Vec<Assignment>> {
        self.list(
            sqlx::query("SELECT * FROM assignments ORDER BY project_id, agent_id"),
            rows::assignment,
        )
    }

    fn task<'a>(&'a self, id: &'a TaskId) -> Answer<'a, Option<Task>> {
        self.find(sqlx::query("SELECT * FROM tasks WHERE id = $1").bind(id.as_str()), rows::task)
    }

    fn tasks<'a>(&'a self, filter: &'a TaskFilter) -> Answer<'a, Vec<Task>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new("SELECT * FROM tasks WHERE 1 = 1");
            if let Some(project) = &filter.project {
                query.push(" AND project_id = ").push_bind(project.as_str());
            }
            if let Some(assignee) = &filter.assignee {
                query.push(" AND assignee_id = ").push_bind(assignee.as_str());
            }
            if let Some(parent) = &filter.parent {
                query.push(" AND parent_id = ").push_bind(parent.as_str());
            }
            match filter.status {
                // In the text, because a partial index is not considered for a parameter.
                Some(TaskStatus::InProgress) => drop(query.push(" AND status = 'in_progress'")),
                Some(status) => drop(query.push(" AND status = ").push_bind(status.as_str())),
                None => {}
            }
            if filter.only_open {
                query.push(" AND status IN ('backlog', 'todo', 'in_progress', 'blocked')");
            }
            query.push(" ORDER BY created_at, id");
            self.list(query.build(), rows::task).await
        })
    }

    fn launch<'a>(&'a self, id: &'a LaunchId) -> Answer<'a, Option<Launch>> {
        match self.writer.at_hand().open_launches.find(id) {
            Some(launch) => Box::pin(std::future::ready(Ok(Some(launch)))),
            None => self.find(
                sqlx::query("SELECT * FROM launches WHERE id = $1").bind(id.as_str()),
                rows::launch,
            ),
        }
    }

    fn launch_by_ticket<'a>(&'a self, ticket: &'a TokenHash) -> Answer<'a, Option<Launch>> {
        let sql = "SELECT * FROM launches WHERE ticket_hash = $1 ORDER BY claimed_at DESC, id DESC LIMIT 1";
        self.find(sqlx::query(sql).bind(ticket.as_str()), rows::launch)
    }

    fn open_launches(&self) -> Answer<'_, Vec<Launch>> {
        Box::pin(async move {
            match self.writer.at_hand().open_launches.list() {
                Some(launches) => Ok(launches),
                None => self.list(sqlx::query(OPEN_LAUNCHES), rows::launch).await,
            }
        })
    }

    fn launches<'a>(&'a self, filter: &'a LaunchFilter) -> Answer<'a, Vec<Launch>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new("SELECT * FROM launches WHERE 1 = 1");
            if let Some(agent) = &filter.agent {
                query.push(" AND agent_id = ").push_bind(agent.as_str());
            }
            if let Some(project) = &filter.project {
                query.push(" AND project_id = ").push_bind(project.as_str());
            }
            if let Some(purpose) = filter.purpose {
                query.push(" AND purpose = ").push_bind(purpose.as_str());
            }
            if filter.only_ended {
                query.push(" AND state = 'ended'");
            }
            let at = if filter.only_ended { "ended_at" } else { "claimed_at" };
            end_history(
                &mut query,
                "launches",
                at,
                filter.after.as_ref().map(LaunchId::as_str),
                filter.limit,
            );
            self.list(query.build(), rows::launch).await
        })
    }

    fn totals(&self) -> Answer<'_, Vec<(TotalKey, Total)>> {
        self.list(sqlx::query(TOTALS), rows::total)
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> Answer<'a, Option<Session>> {
        self.find(
            sqlx::query("SELECT * FROM sessions WHERE id = $1").bind(id.as_str()),
            rows::session,
        )
    }

    fn sessions<'a>(&'a self, filter: &'a HistoryFilter<SessionId>) -> Answer<'a, Vec<Session>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new("SELECT * FROM sessions WHERE 1 = 1");
            if filter.task.is_some() {
                query.push(" AND 1 = 0");
            }
            push_owner(&mut query, filter);
            if filter.only_open {
                query.push(" AND ended_at IS NULL");
            }
            let after = filter.after.as_ref().map(SessionId::as_str);
            end_history(&mut query, "sessions", "created_at", after, filter.limit);
            self.list(query.build(), rows::session).await
        })
    }

    fn executions<'a>(
        &'a self,
        filter: &'a HistoryFilter<ExecutionId>,
    ) -> Answer<'a, Vec<Execution>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new("SELECT * FROM executions WHERE 1 = 1");
            if let Some(task) = &filter.task {
                query.push(" AND task_id = ").push_bind(task.as_str());
            }
            push_owner(&mut query, filter);
            if filter.only_open {
                query.push(" AND ended_at IS NULL");
            }
            let after = filter.after.as_ref().map(ExecutionId::as_str);
            end_history(&mut query, "executions", "started_at", after, filter.limit);
            self.list(query.build(), rows::execution).await
        })
    }

    fn notices<'a>(&'a self, filter: &'a HistoryFilter<NoticeId>) -> Answer<'a, Vec<Notice>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new("SELECT * FROM notices WHERE 1 = 1");
            if let Some(task) = &filter.task {
                query.push(" AND task_id = ").push_bind(task.as_str());
            }
            if let Some(launch) = &filter.launch {
                query.push(" AND launch_id = ").push_bind(launch.as_str());
            }
            if filter.agent.is_some() || filter.project.is_some() {
                // Whose it is, only its launch says.
                query.push(" AND launch_id IN (SELECT id FROM launches WHERE 1 = 1");
                let owner = HistoryFilter { launch: None, ..filter.clone() };
                push_owner(&mut query, &owner);
                query.push(")");
            }
            if filter.only_open {
                query.push(" AND settled_at IS NULL");
            }
            let after = filter.after.as_ref().map(NoticeId::as_str);
            end_history(&mut query, "notices", "created_at", after, filter.limit);
            self.list(query.build(), rows::notice).await
        })
    }

    fn session_by_token<'a>(&'a self, token: &'a TokenHash) -> Answer<'a, Option<Session>> {
        let sql = "SELECT * FROM sessions WHERE token_hash = $1 ORDER BY created_at DESC, id DESC LIMIT 1";
        self.find(sqlx::query(sql).bind(token.as_str()), rows::session)
    }

    fn open_sessions(&self) -> Answer<'_, Vec<Session>> {
        self.list(
            sqlx::query("SELECT * FROM sessions WHERE ended_at IS NULL ORDER BY created_at, id"),
            rows::session,
        )
    }

    fn sessions_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Session>> {
        let sql = "SELECT * FROM sessions WHERE launch_id = $1 ORDER BY created_at, id";
        self.list(sqlx::query(sql).bind(launch.as_str()), rows::session)
    }

    fn executions_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Vec<Execution>> {
        let sql = "SELECT * FROM executions WHERE task_id = $1 ORDER BY started_at DESC, id DESC";
        self.list(sqlx::query(sql).bind(task.as_str()), rows::execution)
    }

    fn executions_of_launch<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Execution>> {
        let sql = "SELECT * FROM executions WHERE launch_id = $1 ORDER BY started_at DESC, id DESC";
        self.list(sqlx::query(sql).bind(launch.as_str()), rows::execution)
    }

    fn notice<'a>(&'a self, id: &'a NoticeId) -> Answer<'a, Option<Notice>> {
        self.find(
            sqlx::query("SELECT * FROM notices WHERE id = $1").bind(id.as_str()),
            rows::notice,
        )
    }

    fn notices_of<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Vec<Notice>> {
        let sql = "SELECT * FROM notices WHERE launch_id = $1 ORDER BY created_at, id";
        self.list(sqlx::query(sql).bind(launch.as_str()), rows::notice)
    }

    fn open_notices(&self) -> Answer<'_, Vec<Notice>> {
        self.list(
            sqlx::query("SELECT * FROM notices WHERE settled_at IS NULL ORDER BY created_at, id"),
            rows::notice,
        )
    }

    fn message<'a>(&'a self, id: &'a MessageId) -> Answer<'a, Option<Message>> {
        self.find(
            sqlx::query("SELECT * FROM messages WHERE id = $1").bind(id.as_str()),
            rows::message,
        )
    }

    fn messages<'a>(&'a self, filter: &'a MessageFilter) -> Answer<'a, Vec<Message>> {
        Box::pin(async move {
            let mut query = QueryBuilder::new("SELECT * FROM messages WHERE agent_id = ");
            query
                .push_bind(filter.agent.as_str())
                .push(" AND project_id = ")
                .push_bind(filter.project.as_str());
            if let Some(after) = filter.after {
                query.push(" AND seq > ").push_bind(after);
            }
            if let Some(before) = filter.before {
                query.push(" AND seq < ").push_bind(before);
            }
            if let Some(sender) = filter.sender {
                query.push(" AND sender = ").push_bind(sender.as_str());
            }
            if filter.only_visible {
                query.push(" AND is_visible");
            }
            query.push(match filter.end {
                ChatEnd::Oldest => " ORDER BY seq LIMIT ",
                ChatEnd::Newest => " ORDER BY seq DESC LIMIT ",
            });
            query.push_bind(limit(filter.limit));
            let mut found = self.list(query.build(), rows::message).await?;
            if filter.end == ChatEnd::Newest {
                found.reverse();
            }
            Ok(found)
        })
    }

    fn chats(&self) -> Answer<'_, Vec<Assignment>> {
        let sql =
            "SELECT DISTINCT project_id, agent_id FROM messages ORDER BY project_id, agent_id";
        self.list(sqlx::query(sql), rows::assignment)
    }

    fn output_tail<'a>(&'a self, launch: &'a LaunchId) -> Answer<'a, Option<String>> {
        let sql = "SELECT tail FROM output_tails WHERE launch_id = $1";
        self.find(sqlx::query(sql).bind(launch.as_str()), rows::output_tail)
    }

    fn pair<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairRecord> {
        Box::pin(async move {
            let at_hand = &self.writer.at_hand().pairs;
            let as_of = match at_hand.find(key) {
                Ok(record) => return Ok(record),
                Err(as_of) => as_of,
            };
            let sql =
                "SELECT * FROM pairs WHERE agent_id = $1 AND project_id = $2 AND purpose = $3";
            let found = self.find(bind_key(sqlx::query(sql), key), rows::pair).await?;
            let record = found.unwrap_or_else(|| PairRecord::new(key.clone()));
            at_hand.keep(as_of, &record);
            Ok(record)
        })
    }

    fn held_pairs(&self) -> Answer<'_, Vec<PairRecord>> {
        // Purposes in their order, which isn't that of their words.
        let sql = "SELECT * FROM pairs WHERE held_since IS NOT NULL ORDER BY agent_id, project_id, purpose = 'chat'";
        self.list(sqlx::query(sql), rows::pair)
    }

    fn account<'a>(&'a self, ai_type: &'a str) -> Answer<'a, Account> {
        if let Some(account) = self.writer.at_hand().accounts.find(ai_type) {
            return Box::pin(std::future::ready(Ok(account)));
        }
        let sql = "SELECT *, revision AS account_revision FROM accounts WHERE ai_type = $1";
        let found = self.find(sqlx::query(sql).bind(ai_type), rows::account);
        Box::pin(
            async move { Ok(found.await?.unwrap_or_else(|| Account::new(ai_type.to_owned()))) },
        )
    }

    fn parked_accounts(&self) -> Answer<'_, Vec<Account>> {
        let sql = "SELECT *, revision AS account_revision FROM accounts WHERE parked_class IS NOT NULL ORDER BY ai_type";
        self.list(sqlx::query(sql), rows::account)
    }

    fn credential<'a>(&'a self, id: &'a CredentialId) -> Answer<'a, Option<Credential>> {
        self.find(
            sqlx::query("SELECT * FROM credentials WHERE id = $1").bind(id.as_str()),
            rows::credential,
        )
    }

    fn forge_item<'a>(&'a self, id: &'a ItemId) -> Answer<'a, Option<ForgeItem>> {
        self.find(
            sqlx::query("SELECT * FROM forge_items WHERE id = $1").bind(id.as_str()),
            rows::forge_item,
        )
    }

    fn open_forge_item<'a>(&'a self, key: &'a ItemKey) -> Answer<'a, Option<ForgeItem>> {
        let sql = "SELECT * FROM forge_items WHERE forge = $1 AND host = $2 AND repository = $3 AND kind = $4 AND number = $5 \
            AND ended_at IS NULL";
        self.find(bind_item(sqlx::query(sql), key), rows::forge_item)
    }

    fn forge_item_of_task<'a>(&'a self, task: &'a TaskId) -> Answer<'a, Option<ForgeItem>> {
        let sql = "SELECT * FROM forge_items WHERE task_id = $1 ORDER BY created_at DESC, id DESC LIMIT 1";
        self.find(sqlx::query(sql).bind(task.as_str()), rows::forge_item)
    }

    fn open_forge_items(&self) -> Answer<'_, Vec<ForgeItem>> {
        let sql = "SELECT * FROM forge_items WHERE ended_at IS NULL ORDER BY created_at, id";
        self.list(sqlx::query(sql), rows::forge_item)
    }

    fn ended_forge_items(&self, most: usize) -> Answer<'_, Vec<ForgeItem>> {
        let sql = "SELECT * FROM forge_items WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT $1";
        self.list(sqlx::query(sql).bind(limit(most)), rows::forge_item)
    }

    fn past_forge_items(&self, before: Timestamp, most: usize) -> Answer<'_, Vec<ItemId>> {
        let sql = "SELECT id FROM forge_items WHERE ended_at < $1 ORDER BY ended_at, id LIMIT $2";
        self.list(sqlx::query(sql).bind(before.as_millis()).bind(limit(most)), rows::item_id)
    }

    fn credential_by_secret<'a>(&'a self, secret: &'a TokenHash) -> Answer<'a, Option<Credential>> {
        let sql = "SELECT * FROM credentials WHERE secret_hash = $1 ORDER BY created_at DESC, id DESC LIMIT 1";
        self.find(sqlx::query(sql).bind(secret.as_str()), rows::credential)
    }

    fn credentials(&self) -> Answer<'_, Vec<Credential>> {
        self.list(
            sqlx::query("SELECT * FROM credentials ORDER BY created_at, id"),
            rows::credential,
        )
    }

    fn pair_facts<'a>(&'a self, key: &'a InstanceKey) -> Answer<'a, PairFacts> {
        Box::pin(async move {
            let at_hand = &self.writer.at_hand().pairs;
            let as_of = at_hand.as_of();
            let query = bind_key(sqlx::query(PAIR_FACTS), key);
            let row = query.fetch_one(&self.readers).await.map_err(read_failed)?;
            let facts = rows::pair_facts(&row, key.clone())?;
            at_hand.keep(as_of, &facts.record);
            Ok(facts)
        })
    }

    fn startable(&self) -> Answer<'_, Vec<PairFacts>> {
        Box::pin(async move {
            let at_hand = &self.writer.at_hand().startable;
            let as_of = match at_hand.find() {
                Ok(startable) => return Ok(startable),
                Err(as_of) => as_of,
            };
            let startable = self.list(sqlx::query(STARTABLE), rows::startable).await?;
            at_hand.keep(as_of, &startable);
            Ok(startable)
        })
    }

    fn paused_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.find(sqlx::query("SELECT since FROM pauses"), rows::pause)
    }

    fn events(&self, after: i64, n_most: usize) -> Answer<'_, Vec<Event>> {
        if let Some(events) = self.writer.at_hand().newest_events.list(after, n_most) {
            return Box::pin(std::future::ready(Ok(events)));
        }
        let sql = "SELECT * FROM events WHERE seq > $1 ORDER BY seq LIMIT $2";
        self.list_given(sqlx::query(sql).bind(after).bind(limit(n_most)))
    }

    fn events_of_task<'a>(
        &'a self,
        task: &'a TaskId,
        after: i64,
        n_most: usize,
    ) -> Answer<'a, Vec<Event>> {
        let sql = "SELECT * FROM events WHERE task_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";
        self.list_given(sqlx::query(sql).bind(task.as_str()).bind(after).bind(limit(n_most)))
    }

    fn event_span(&self) -> Answer<'_, EventSpan> {
        // One by one: each is looked up at an end of the table.
        let sql = "SELECT (SELECT COALESCE(MIN(seq), 0) FROM events) AS oldest, \
            (SELECT COALESCE(MAX(seq), 0) FROM events) AS newest";
        Box::pin(async move {
            let row = sqlx::query(sql).fetch_one(&self.readers).await.map_err(read_failed)?;
            let seq = |column| row.try_get(column).map_err(read_failed);
            let (oldest, newest): (i64, i64) = (seq("oldest")?, seq("newest")?);
            // Nobody is told of an event that isn't given yet to those who ask for it.
            let given = self.writer.at_hand().newest_events.newest().unwrap_or(newest);
            Ok(EventSpan { oldest, newest: newest.min(given) })
        })
    }

    fn last_event_before(&self, at: Timestamp) -> Answer<'_, i64> {
        let sql = "SELECT COALESCE(MAX(seq), 0) AS seq FROM events WHERE at < $1";
        self.number(sqlx::query(sql).bind(at.as_millis()))
    }

    fn last_message_before<'a>(&'a self, chat: &'a Assignment, at: Timestamp) -> Answer<'a, i64> {
        let sql = "SELECT COALESCE(MAX(seq), 0) AS seq FROM messages \
            WHERE agent_id = $1 AND project_id = $2 AND created_at < $3";
        self.number(
            sqlx::query(sql)
                .bind(chat.agent.as_str())
                .bind(chat.project.as_str())
                .bind(at.as_millis()),
        )
    }

    fn past_launches<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a PastLaunch>,
        n_most: usize,
    ) -> Answer<'a, Vec<PastLaunch>> {
        let (ended_at, id) =
            after.map_or((i64::MIN, ""), |after| (after.ended_at.as_millis(), after.id.as_str()));
        let query = sqlx::query(PAST_LAUNCHES)
            .bind(before.as_millis())
            .bind(ended_at)
            .bind(id)
            .bind(limit(n_most));
        let past = self.list(query, rows::past_launch);
        Box::pin(async move {
            let mut past = past.await?;
            for launch in &mut past {
                let query = sqlx::query(NEWEST_WORK).bind(launch.id.as_str());
                launch.newest_of = self.list(query, rows::past_work).await?;
            }
            Ok(past)
        })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        let sql = "SELECT (SELECT COUNT(*) FROM agents) AS n_agents, (SELECT COUNT(*) FROM projects) AS n_projects";
        Box::pin(async move {
            let row = sqlx::query(sql).fetch_one(&self.readers).await.map_err(read_failed)?;
            let count =
                |column| row.try_get::<i64, _>(column).map_err(read_failed).map(i64::unsigned_abs);
            Ok(Counts { n_agents: count("n_agents")?, n_projects: count("n_projects")? })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.writer.close().await;
            self.readers.close().await;
            self.writer.at_hand().forget();
        })
    }
}

/// The conditions of `filter` that launches, sessions and executions share.
fn push_owner<Id>(query: &mut QueryBuilder<Sqlite>, filter: &HistoryFilter<Id>) {
    if let Some(agent) = &filter.agent {
        query.push(" AND agent_id = ").push_bind(agent.to_string());
    }
    if let Some(project) = &filter.project {
        query.push(" AND project_id = ").push_bind(project.to_string());
    }
    if let Some(launch) = &filter.launch {
        query.push(" AND launch_id = ").push_bind(launch.to_string());
    }
}

/// The newest first by the column `at`, beginning after the row with the id `after`.
fn end_history(
    query: &mut QueryBuilder<Sqlite>,
    table: &str,
    at: &str,
    after: Option<&str>,
    n_most: usize,
) {
    if let Some(after) = after {
        query.push(format!(" AND ({at}, id) < (SELECT {at}, id FROM {table} WHERE id = "));
        query.push_bind(after.to_owned()).push(")");
    }
    query.push(format!(" ORDER BY {at} DESC, id DESC LIMIT ")).push_bind(limit(n_most));
}

/// What has a form in the database.
trait Value<'t>: Encode<'t, Sqlite> + Type<Sqlite> {}

impl<'t, T: Encode<'t, Sqlite> + Type<Sqlite>> Value<'t> for T {}

/// What parameters are bound to, one after the other.
trait Binds {
    fn bind<'t, T: Value<'t>>(self, value: T) -> Self;
}

impl Binds for SqlQuery<'_> {
    fn bind<'t, T: Value<'t>>(self, value: T) -> Self {
        Self::bind(self, value)
    }
}

fn bind_item<B: Binds>(query: B, key: &ItemKey) -> B {
    let number = i64::try_from(key.number).unwrap_or(i64::MAX);
    query
        .bind(key.forge.as_str())
        .bind(&key.host)
        .bind(&key.repository)
        .bind(key.kind.as_str())
        .bind(number)
}

fn bind_key<B: Binds>(query: B, key: &InstanceKey) -> B {
    query.bind(key.agent.as_str()).bind(key.project.as_str()).bind(key.purpose.as_str())
}

fn limit(n_most: usize) -> i64 {
    i64::try_from(n_most).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use sqlx::AssertSqlSafe;

    use super::*;

    /// The tables and indexes that `sql` reads from one end to the other.
    async fn scans(sql: &str) -> Vec<String> {
        let store = SqliteStore::in_memory().await.unwrap();
        let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
            .fetch_all(&store.readers)
            .await
            .unwrap();
        let steps = plan.iter().map(|row| row.get::<String, _>("detail"));
        steps.filter(|step| step.starts_with("SCAN")).collect()
    }

    #[tokio::test]
    async fn questions_of_each_cycle_cost_by_work_and_not_by_pairs_or_history() {
        // The index of wishes holds nothing but wishes.
        let wishes = "SCAN pairs USING COVERING INDEX pairs_wanted";
        assert_eq!(scans(STARTABLE).await, [wishes, "SCAN w", "SCAN pauses"]);
        assert_eq!(scans(PAIR_FACTS).await, ["SCAN CONSTANT ROW", "SCAN k", "SCAN pauses"]);
        assert_eq!(
            scans(OPEN_LAUNCHES).await,
            ["SCAN launches USING INDEX launches_open_by_claim"]
        );
    }
}
