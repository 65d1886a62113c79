//! The one task that writes. It owns its connection, and makes all commits that wait for it in one transaction: one sync of
//! the disk for many callers.
//!
//! A caller that goes away leaves no transaction open, because the transaction isn't the caller's. A fault of the database
//! (disk full, locked, damaged) is answered to those who waited, and the task goes on with a fresh connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::at_hand::AtHand;
use super::batch::Failure;
use super::changes;
use super::questions::{ACCOUNTS, LAST_EVENT, OPEN_LAUNCHES};
use super::rows;
use crate::store::{Commit, CommitError, StoreError};

/// Commits that wait at once; more wait for their place in the inbox.
const INBOX: usize = 256;
/// Commits of one transaction. Few enough that the first of them doesn't wait long for the others.
const MAX_GROUP: usize = 128;

/// How long the connection keeps the memory of its pages while nobody writes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The handle of the writing task. Dropping it lets the task make what was handed over, and end.
#[derive(Debug)]
pub(super) struct Writer {
    /// Cancelled when the task has ended.
    ended: CancellationToken,
    /// `None` once it is closed.
    inbox: Mutex<Option<mpsc::Sender<Request>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    n_transactions: Arc<AtomicU64>,
    at_hand: Arc<AtHand>,
}

#[derive(Debug)]
struct Request {
    commit: Commit,
    answer: oneshot::Sender<Result<(), CommitError>>,
}

impl Writer {
    /// Starts the task on `connection`; `options` open the next one, should this fail.
    pub(super) fn start(connection: SqliteConnection, options: SqliteConnectOptions) -> Self {
        let (inbox, requests) = mpsc::channel(INBOX);
        let n_transactions = Arc::new(AtomicU64::new(0));
        let at_hand = Arc::<AtHand>::default();
        let task = Task {
            connection,
            options,
            is_suspect: false,
            n_transactions: Arc::clone(&n_transactions),
            at_hand: Arc::clone(&at_hand),
        };
        let ended = CancellationToken::new();
        let at_end = ended.clone().drop_guard();
        let running = tokio::spawn(async move {
            // Also when it panics.
            let _at_end = at_end;
            task.run(requests).await;
        });
        let task = tokio::sync::Mutex::new(Some(running));
        Self { inbox: Mutex::new(Some(inbox)), task, ended, n_transactions, at_hand }
    }

    pub(super) fn at_hand(&self) -> &AtHand {
        &self.at_hand
    }

    pub(super) fn n_transactions(&self) -> u64 {
        self.n_transactions.load(Ordering::Relaxed)
    }

    pub(super) async fn commit(&self, commit: Commit) -> Result<(), CommitError> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, made) = oneshot::channel();
        let inbox = inbox.ok_or(StoreError::Closed)?;
        inbox.send(Request { commit, answer }).await.map_err(|_| StoreError::Closed)?;
        // Without its clone of the inbox, a caller that waits for its answer doesn't keep the task from ending.
        drop(inbox);
        made.await.map_err(|_| StoreError::Closed)?
    }

    /// Returns when the task has ended: by [`Writer::close`], or because it died.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Waits until all that was handed over is made and the connection is closed. Repeating it is harmless.
    pub(super) async fn close(&self) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut task = self.task.lock().await;
        if let Some(running) = task.as_mut() {
            // A panic of the task has been printed; there is nothing left to close then.
            let _ = running.await;
            *task = None;
        }
    }
}

struct Task {
    connection: SqliteConnection,
    options: SqliteConnectOptions,
    /// The connection failed; what it holds is unknown.
    is_suspect: bool,
    n_transactions: Arc<AtomicU64>,
    at_hand: Arc<AtHand>,
}

impl Task {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut group = Vec::with_capacity(MAX_GROUP);
        while self.next_group(&mut requests, &mut group).await > 0 {
            let (commits, answers): (Vec<_>, Vec<_>) =
                group.drain(..).map(|request| (request.commit, request.answer)).unzip();
            let results = self.make(&commits).await;
            for (answer, result) in answers.into_iter().zip(results) {
                // Nobody waits for it any more; it's made nevertheless.
                let _ = answer.send(result);
            }
        }
        // Best effort: what stays in the log is found there by the next opening.
        let _ = execute(&mut self.connection, "PRAGMA wal_checkpoint(TRUNCATE)").await;
        let _ = self.connection.close().await;
    }

    /// How many came, after a wait in which the connection gives its memory back; none when the inbox is closed.
    async fn next_group(
        &mut self,
        requests: &mut mpsc::Receiver<Request>,
        group: &mut Vec<Request>,
    ) -> usize {
        if let Ok(n_requests) =
            tokio::time::timeout(IDLE_TIMEOUT, requests.recv_many(group, MAX_GROUP)).await
        {
            return n_requests;
        }
        // Best effort: the next group is made whether it has worked or not. One that isn't kept compiled takes the place of the last
        // that wasn't.
        let shrink = sqlx::query("PRAGMA shrink_memory").persistent(false);
        let _ = shrink.execute(&mut self.connection).await;
        requests.recv_many(group, MAX_GROUP).await
    }

    /// The results of `commits`, in their order.
    async fn make(&mut self, commits: &[Commit]) -> Vec<Result<(), CommitError>> {
        match self.try_make(commits).await {
            Ok(results) => {
                self.n_transactions.fetch_add(1, Ordering::Relaxed);
                let made = commits
                    .iter()
                    .zip(&results)
                    .filter_map(|(commit, result)| result.is_ok().then_some(commit));
                self.at_hand.note(made);
                results
            }
            Err(error) => {
                // The lock is given back at once; whether that worked is looked at by nobody, hence the fresh connection.
                let _ = execute(&mut self.connection, "ROLLBACK").await;
                self.is_suspect = true;
                self.at_hand.forget();
                let error = Arc::new(error);
                let failed = || StoreError::Unavailable {
                    action: "write to",
                    source: Box::new(Arc::clone(&error)),
                };
                commits.iter().map(|_| Err(failed().into())).collect()
            }
        }
    }

    async fn try_make(
        &mut self,
        commits: &[Commit],
    ) -> Result<Vec<Result<(), CommitError>>, sqlx::Error> {
        if self.is_suspect {
            let fresh = self.options.connect().await?;
            let suspect = std::mem::replace(&mut self.connection, fresh);
            self.is_suspect = false;
            let _ = suspect.close().await;
        }
        if !self.at_hand.open_launches.are_known() {
            self.read_open_launches().await;
        }
        if !self.at_hand.accounts.are_known() {
            self.read_accounts().await;
        }
        if !self.at_hand.newest_events.are_known() {
            self.read_last_event().await;
        }
        // Hardly a commit is refused: what is ready to undo each of them, and costs more calls, comes when one was.
        if self.make_unguarded(commits).await? {
            return Ok(commits.iter().map(|_| Ok(())).collect());
        }
        // Where nothing was begun, there is nothing to undo.
        let _ = execute(&mut self.connection, "ROLLBACK").await;
        self.make_guarded(commits).await
    }

    /// All of `commits` in one transaction; `false` if one of them is refused, and the transaction may still be open.
    async fn make_unguarded(&mut self, commits: &[Commit]) -> Result<bool, sqlx::Error> {
        for (n, commit) in commits.iter().enumerate() {
            let applied = match n {
                0 => changes::begin_with(&mut self.connection, commit).await,
                _ => changes::apply(&mut self.connection, commit).await,
            };
            match applied {
                Ok(()) => {}
                Err(Failure::Refused(_)) => return Ok(false),
                Err(Failure::Broken(error)) => return Err(error),
            }
        }
        execute(&mut self.connection, "COMMIT").await?;
        Ok(true)
    }

    /// Those of `commits` that are not refused, in one transaction.
    async fn make_guarded(
        &mut self,
        commits: &[Commit],
    ) -> Result<Vec<Result<(), CommitError>>, sqlx::Error> {
        execute(&mut self.connection, "BEGIN IMMEDIATE; SAVEPOINT one_commit").await?;
        let mut results = Vec::with_capacity(commits.len());
        for commit in commits {
            if results.last().is_some_and(Result::is_ok) {
                execute(&mut self.connection, "RELEASE one_commit; SAVEPOINT one_commit").await?;
            }
            results.push(self.apply(commit).await?);
        }
        execute(&mut self.connection, "COMMIT").await?;
        Ok(results)
    }

    /// Between two transactions: nobody else writes. What can't be read is read by those who ask for it.
    async fn read_open_launches(&mut self) {
        let Ok(read) = sqlx::query(OPEN_LAUNCHES).fetch_all(&mut self.connection).await else {
            return;
        };
        if let Ok(launches) = read.iter().map(rows::launch).collect() {
            self.at_hand.open_launches.set(launches);
        }
    }

    /// As [`Task::read_open_launches`].
    async fn read_accounts(&mut self) {
        let Ok(read) = sqlx::query(ACCOUNTS).fetch_all(&mut self.connection).await else {
            return;
        };
        if let Ok(accounts) = read.iter().map(rows::account).collect() {
            self.at_hand.accounts.set(accounts);
        }
    }

    /// As [`Task::read_open_launches`].
    async fn read_last_event(&mut self) {
        let Ok(row) = sqlx::query(LAST_EVENT).fetch_one(&mut self.connection).await else {
            return;
        };
        if let Ok(seq) = row.try_get("seq") {
            self.at_hand.newest_events.begin_after(seq);
        }
    }

    /// Applies one commit of the open transaction, or nothing of it: then the savepoint before it is there as it was.
    async fn apply(&mut self, commit: &Commit) -> Result<Result<(), CommitError>, sqlx::Error> {
        match changes::apply(&mut self.connection, commit).await {
            Ok(()) => Ok(Ok(())),
            Err(Failure::Refused(refusal)) => {
                execute(&mut self.connection, "ROLLBACK TO one_commit").await?;
                Ok(Err(refusal))
            }
            Err(Failure::Broken(error)) => Err(error),
        }
    }
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await?;
    Ok(())
}
