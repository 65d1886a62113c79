//! Runs transactions that are written as closures, on any engine.
//!
//! ```text
//!  write(|tx| …) ──► queue ──► writer thread: BEGIN, all that wait, COMMIT ──► effects ──► answers
//!  read(|tx| …)  ──► queue ──► reader threads: one snapshot each           ──► answers
//! ```
//!
//! 1. Each answer waits for the commit of its group, also a refusal: it may depend on rows of the
//!    same group.
//! 2. A closure that returns an error, panics, or ignores a failed statement leaves nothing behind.
//!    Its group is rolled back and runs once more with a savepoint before each closure.
//!    A group whose connection ends runs again on a new one, unless its commit was made.
//! 3. The effects of a closure happen after the commit and before the answers, in the order of the
//!    commit, also if no caller waits any more.
//! 4. A closure may run more than once, so it has neither a clock nor chance, and does no input or
//!    output.

mod writer;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::StoreError;
use super::db::{Db, DbError};
use super::meter::Meter;
use super::transaction::{Effect, Read, Write};

use domain::store_state::{Access, Database, StoreState};
use machine::locks::lock;
use runtime::clock;

use writer::{Writer, pause_before_retry};

/// The number of closures that wait for the writer, and the same number for the readers. The
/// closures of callers that have gone away count, too. More callers wait until there is a place,
/// and leave nothing behind if they go away before.
const MAX_WAITING: usize = 4096;
/// The number of threads that read.
const N_READERS: usize = 2;

/// Hears that a transaction has the lock of the writer.
pub type Locked = Box<dyn FnOnce() + Send>;

/// One connection to a database.
pub trait Connection: Db {
    /// Begins a transaction as the only writer. `locked` is called when it is the only one, which
    /// may be with its first statement.
    fn begin(&mut self, locked: Locked) -> Result<(), DbError>;
    /// Begins a transaction that sees one snapshot.
    fn begin_read(&mut self) -> Result<(), DbError>;
    fn savepoint(&mut self) -> Result<(), DbError>;
    /// Undoes everything since the last savepoint.
    fn undo_to_savepoint(&mut self) -> Result<(), DbError>;
    /// Commits the transaction.
    ///
    /// # Errors
    /// After [`DbError::Lost`] it is unknown whether the commit was made, until
    /// [`Connection::reconnect`] tells. After any other error it was not made.
    fn commit(&mut self) -> Result<(), DbError>;
    /// Ends the transaction, if one is open, without its changes.
    fn rollback(&mut self);
    /// Replaces the connection after a failure of the database.
    ///
    /// Returns whether the last commit, if its outcome was unknown, was made.
    fn reconnect(&mut self) -> Result<bool, DbError>;
    /// Returns the database of this connection.
    fn database(&self) -> Database {
        Database::default()
    }
    /// Gives memory back while there is nothing to do.
    fn rest(&mut self);
    /// Checks the database files and the log. It is called every few seconds, outside of
    /// transactions.
    fn look_after(&mut self);
    /// Returns the delay before the next write. Only an inline engine asks, so that a simulation
    /// can have slow writes.
    fn delay(&mut self) -> Option<Duration> {
        None
    }
    /// Does the final work of the last user of the database. Errors are ignored, because the next
    /// start repairs.
    fn close(&mut self);
}

/// A handle of the database. Clones share it.
#[derive(Clone)]
pub struct Engine(Arc<Kind>);

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

enum Kind {
    Threads(Threads),
    /// Runs in the caller, one closure after the other, for the simulation and for tests.
    Inline(Mutex<Option<Writer>>),
}

struct Threads {
    /// `None` once it is closed. The same holds for `reads`.
    writes: Mutex<Option<mpsc::Sender<Box<dyn WriteJob>>>>,
    reads: Mutex<Option<mpsc::Sender<Box<dyn ReadJob>>>>,
    write_places: Arc<Semaphore>,
    read_places: Arc<Semaphore>,
    longest_wait: Option<Duration>,
    /// Cancelled when the writer thread has ended.
    ended: CancellationToken,
    meter: Arc<Meter>,
}

/// The answer to a caller: the result of its closure, or the reason why there is none.
enum Answer<T, E> {
    Done(Result<T, E>),
    Failed(StoreError),
    Panicked(Box<dyn Any + Send>),
}

impl<T, E: From<StoreError>> Answer<T, E> {
    /// The connection ended, or there is none.
    fn is_lost(&self) -> bool {
        matches!(self, Self::Failed(StoreError::Unavailable { source, .. })
            if matches!(source.downcast_ref::<DbError>(), Some(DbError::Lost(_))))
    }

    fn into_result(self) -> Result<T, E> {
        match self {
            Self::Done(result) => result,
            Self::Failed(error) => Err(error.into()),
            Self::Panicked(payload) => resume_unwind(payload),
        }
    }
}

/// A closure that waits for its group.
trait WriteJob: Send {
    fn run(&mut self, connection: &mut dyn Connection) -> Ran;
    /// Sends the caller the last result of `run`, or a failure.
    fn answer(self: Box<Self>, failure: Option<StoreError>);
    fn place(&self) -> &'static Location<'static>;
}

trait ReadJob: Send {
    fn run(self: Box<Self>, connection: &mut dyn Connection, meter: &Meter);
    fn fail(self: Box<Self>, failure: StoreError);
}

/// The result of one run of a closure.
struct Ran {
    /// The closure returned `Ok`.
    is_kept: bool,
    has_written: bool,
    effects: Vec<Effect>,
    failure: Option<DbError>,
}

struct Writing<T, E, F, C> {
    body: F,
    context: C,
    made: Option<Answer<T, E>>,
    answer: oneshot::Sender<Answer<T, E>>,
    place: &'static Location<'static>,
    /// `None` if nothing waits.
    _waiting: Option<OwnedSemaphorePermit>,
}

impl<T, E, F, C> WriteJob for Writing<T, E, F, C>
where
    T: Send,
    E: Send,
    F: FnMut(&mut Write<'_, C>) -> Result<T, E> + Send,
    C: Clone + Send,
{
    fn run(&mut self, connection: &mut dyn Connection) -> Ran {
        let mut tx = Write::new(connection, self.context.clone());
        let made = match catch_unwind(AssertUnwindSafe(|| (self.body)(&mut tx))) {
            Ok(result) => Answer::Done(result),
            Err(payload) => Answer::Panicked(payload),
        };
        let is_kept = matches!(made, Answer::Done(Ok(_)));
        self.made = Some(made);
        let (has_written, effects, failure) = tx.into_parts();
        Ran { is_kept, has_written, effects, failure }
    }

    fn answer(self: Box<Self>, failure: Option<StoreError>) {
        let answer = match (failure, self.made) {
            // A panic is a defect of the program, also if the database failed.
            (_, Some(Answer::Panicked(payload))) => Answer::Panicked(payload),
            (Some(failure), _) => Answer::Failed(failure),
            (None, Some(made)) => made,
            (None, None) => Answer::Failed(StoreError::Closed),
        };
        // A caller that has gone away needs no answer.
        let _ = self.answer.send(answer);
    }

    fn place(&self) -> &'static Location<'static> {
        self.place
    }
}

struct Reading<T, E, F> {
    body: F,
    answer: oneshot::Sender<Answer<T, E>>,
    _waiting: OwnedSemaphorePermit,
}

impl<T, E, F> ReadJob for Reading<T, E, F>
where
    T: Send,
    E: Send,
    F: FnOnce(&mut Read<'_>) -> Result<T, E> + Send,
{
    fn run(self: Box<Self>, connection: &mut dyn Connection, meter: &Meter) {
        read_once(connection, meter, self.body, self.answer);
    }

    fn fail(self: Box<Self>, failure: StoreError) {
        let _ = self.answer.send(Answer::Failed(failure));
    }
}

/// Runs a closure and answers its caller, who does not wait for the end of the transaction.
fn read_once<T, E, F>(
    connection: &mut dyn Connection,
    meter: &Meter,
    body: F,
    answer: oneshot::Sender<Answer<T, E>>,
) where
    F: FnOnce(&mut Read<'_>) -> Result<T, E>,
{
    if let Err(error) = connection.begin_read() {
        meter.fails(Access::Read, &error);
        let _ = answer.send(Answer::Failed(unreadable(error)));
        return;
    }
    let mut tx = Read::new(connection);
    let made = catch_unwind(AssertUnwindSafe(|| body(&mut tx)));
    let failure = tx.into_failure();
    match &failure {
        Some(error) => meter.fails(Access::Read, error),
        None => meter.works(Access::Read),
    }
    let has_failed = failure.is_some();
    let _ = answer.send(match (made, failure) {
        (Err(payload), _) => Answer::Panicked(payload),
        (Ok(_), Some(error @ DbError::Lost(_))) | (Ok(Ok(_)), Some(error)) => {
            Answer::Failed(unreadable(error))
        }
        (Ok(result), _) => Answer::Done(result),
    });
    let began_at = clock::unpaused();
    connection.rollback();
    if !has_failed {
        meter.round_trip(began_at.elapsed());
    }
}

fn unreadable(error: DbError) -> StoreError {
    StoreError::Unavailable { action: "read", source: error.into() }
}

impl Engine {
    /// Starts the threads. `readers` open connections of their own; the writer's exists already.
    /// Callers wait for an answer for `longest_wait`, also while a call of the database hangs.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn start(
        writer: impl Connection + 'static,
        reader: impl Fn() -> Result<Box<dyn Connection>, DbError> + Send + Clone + 'static,
        longest_wait: Option<Duration>,
    ) -> std::io::Result<Self> {
        let (writes, waiting_writes) = mpsc::channel();
        let (reads, waiting_reads) = mpsc::channel::<Box<dyn ReadJob>>();
        let ended = CancellationToken::new();
        let meter = Arc::new(Meter::default());
        let waiting_reads = Arc::new(Mutex::new(waiting_reads));
        let mut readers = Vec::new();
        for _ in 0..N_READERS {
            let open = reader.clone();
            let waiting = Arc::clone(&waiting_reads);
            let meter = Arc::clone(&meter);
            // The connection opens here, while the files are certainly those of the writer. After a
            // failure, the next read tries again.
            let connection = open().ok();
            let thread = thread::Builder::new().name("store-reader".to_owned());
            readers.push(thread.spawn(move || serve_reads(&waiting, connection, &open, &meter))?);
        }
        let at_end = ended.clone().drop_guard();
        let mut writer = Writer::new(Box::new(writer), Arc::clone(&meter));
        thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            // This is dropped after the connection, also by a panic.
            let _at_end = at_end;
            writer.serve(&waiting_writes);
            // The last connection that closes removes the log. It should be the writer's.
            for reader in readers {
                let _ = reader.join();
            }
            writer.connection.close();
        })?;
        Ok(Self(Arc::new(Kind::Threads(Threads {
            writes: Mutex::new(Some(writes)),
            reads: Mutex::new(Some(reads)),
            write_places: Arc::new(Semaphore::new(MAX_WAITING)),
            read_places: Arc::new(Semaphore::new(MAX_WAITING)),
            longest_wait,
            ended,
            meter,
        }))))
    }

    /// Runs everything in the caller on one connection, one closure after the other.
    pub fn inline(connection: Box<dyn Connection>) -> Self {
        let writer = Writer::new(connection, Arc::default());
        Self(Arc::new(Kind::Inline(Mutex::new(Some(writer)))))
    }

    /// Runs `body` in a transaction and commits it, or leaves nothing if `body` returns an error.
    ///
    /// `body` may run more than once. It uses no clock, no chance and no lock, and does no input or
    /// output. Once the future was polled, the transaction is made even if the future is dropped,
    /// unless too many wait already.
    ///
    /// # Errors
    /// The error of `body`; [`StoreError`] if the database fails or is closed.
    #[track_caller]
    pub fn write<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Write<'_>) -> Result<T, E> + Send + 'static,
    {
        self.write_with((), body)
    }

    /// Does what [`Engine::write`] does. Each run of `body` begins with a copy of `context`.
    ///
    /// # Errors
    /// The errors of [`Engine::write`].
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "a simulation ends with its runtime")]
    pub fn write_with<T, E, F, C>(
        &self,
        context: C,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F, C>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Write<'_, C>) -> Result<T, E> + Send + 'static,
        C: Clone + Send + 'static,
    {
        let engine = self.clone();
        let place = Location::caller();
        async move {
            let (answer, answered) = oneshot::channel();
            let waiting = match &*engine.0 {
                Kind::Threads(threads) => Some(place_of(&threads.write_places).await?),
                Kind::Inline(_) => None,
            };
            let job =
                Box::new(Writing { body, context, made: None, answer, place, _waiting: waiting });
            match &*engine.0 {
                Kind::Threads(threads) => {
                    let sender = lock(&threads.writes).clone().ok_or(StoreError::Closed)?;
                    sender.send(job).map_err(|_| StoreError::Closed)?;
                }
                Kind::Inline(writer) => {
                    let delay = lock(writer).as_mut().ok_or(StoreError::Closed)?.connection.delay();
                    match delay {
                        None => engine.make_inline(job),
                        // The transaction runs even if no caller waits, as with threads.
                        Some(delay) => drop(tokio::spawn({
                            let engine = engine.clone();
                            async move {
                                tokio::time::sleep(delay).await;
                                engine.make_inline(job);
                            }
                        })),
                    }
                }
            }
            let answered = async { answered.await.map_err(|_| StoreError::Closed) };
            within(engine.longest_wait(), "write to", answered).await?.into_result()
        }
    }

    fn make_inline(&self, job: Box<dyn WriteJob>) {
        // Without an engine the job is dropped, and its caller gets an error.
        if let Kind::Inline(writer) = &*self.0
            && let Some(writer) = lock(writer).as_mut()
        {
            writer.make(vec![job]);
        }
    }

    /// Returns the time after which a caller gets an error, if there is such a limit.
    fn longest_wait(&self) -> Option<Duration> {
        match &*self.0 {
            Kind::Threads(threads) => threads.longest_wait,
            Kind::Inline(_) => None,
        }
    }

    /// Runs `body` on one snapshot, which is not older than any earlier answer.
    ///
    /// Dropping the future is harmless.
    ///
    /// # Errors
    /// The error of `body`; [`StoreError`] if the database fails or is closed.
    pub fn read<T, E, F>(&self, body: F) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Read<'_>) -> Result<T, E> + Send + 'static,
    {
        let engine = self.clone();
        async move { within(engine.longest_wait(), "read", engine.ask(body)).await?.into_result() }
    }

    /// Does what [`Engine::read`] does. While the database cannot be reached, it tries again for
    /// as long as a write does. So `body` may run more than once.
    ///
    /// # Errors
    /// The errors of [`Engine::read`].
    pub fn read_with_patience<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Read<'_>) -> Result<T, E> + Send + 'static,
    {
        let engine = self.clone();
        async move {
            let body = Arc::new(Mutex::new(body));
            let answer = async {
                loop {
                    let body = Arc::clone(&body);
                    let once = move |tx: &mut Read<'_>| {
                        let mut body = lock(&body);
                        (*body)(tx)
                    };
                    let answer = engine.ask(once).await?;
                    let pause = engine.pause_before_read().filter(|_| answer.is_lost());
                    let Some(pause) = pause else { return Ok::<_, StoreError>(answer) };
                    tokio::time::sleep(pause).await;
                }
            };
            within(engine.longest_wait(), "read", answer).await?.into_result()
        }
    }

    /// Runs `body` once on a connection that reads.
    async fn ask<T, E, F>(&self, body: F) -> Result<Answer<T, E>, StoreError>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce(&mut Read<'_>) -> Result<T, E> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        match &*self.0 {
            Kind::Threads(threads) => {
                let waiting = place_of(&threads.read_places).await?;
                let sender = lock(&threads.reads).clone().ok_or(StoreError::Closed)?;
                let job = Box::new(Reading { body, answer, _waiting: waiting });
                sender.send(job).map_err(|_| StoreError::Closed)?;
            }
            Kind::Inline(writer) => {
                let mut writer = lock(writer);
                let writer = writer.as_mut().ok_or(StoreError::Closed)?;
                read_once(&mut *writer.connection, &writer.meter, body, answer);
            }
        }
        answered.await.map_err(|_| StoreError::Closed)
    }

    /// Returns the pause before a read is tried again whose connection ended, or `None` if reads
    /// have failed for long enough.
    fn pause_before_read(&self) -> Option<Duration> {
        match &*self.0 {
            Kind::Threads(threads) => pause_before_retry(threads.meter.reads_fail_for()),
            Kind::Inline(_) => None,
        }
    }

    /// Commits what was handed over, then closes. Later calls answer [`StoreError::Closed`].
    pub async fn close(&self) {
        match &*self.0 {
            Kind::Threads(threads) => {
                lock(&threads.reads).take();
                lock(&threads.writes).take();
                threads.ended.cancelled().await;
            }
            Kind::Inline(writer) => {
                if let Some(mut writer) = lock(writer).take() {
                    writer.connection.close();
                }
            }
        }
    }

    /// Returns when nothing can be written any more: the store was closed, or its writer died.
    pub async fn closed(&self) {
        match &*self.0 {
            Kind::Threads(threads) => threads.ended.cancelled().await,
            Kind::Inline(_) => std::future::pending().await,
        }
    }

    /// Returns how many transactions were committed. Closures that come at once share one.
    pub fn n_transactions(&self) -> u64 {
        self.state().n_transactions
    }

    /// Returns how the database answers, without asking it.
    pub fn state(&self) -> StoreState {
        match &*self.0 {
            Kind::Threads(threads) => threads.meter.state(),
            Kind::Inline(writer) => match lock(writer).as_ref() {
                Some(writer) => writer.meter.state(),
                None => Meter::default().state(),
            },
        }
    }
}

/// Takes a place for a closure that waits. If there is one, it returns at once.
async fn place_of(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, StoreError> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Ok(place);
    }
    Arc::clone(places).acquire_owned().await.map_err(|_| StoreError::Closed)
}

/// Waits for the answer of a thread. The store may still carry out the request after this gave up.
async fn within<T>(
    longest_wait: Option<Duration>,
    action: &'static str,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let Some(longest_wait) = longest_wait else { return answer.await };
    tokio::time::timeout(longest_wait, answer).await.unwrap_or_else(|_| {
        let source = format!("the database has not answered for {longest_wait:?}");
        Err(StoreError::Unavailable { action, source: source.into() })
    })
}

/// Takes turns with the other readers: one waits for the next job, and the others wait for that
/// reader.
fn serve_reads(
    waiting: &Mutex<mpsc::Receiver<Box<dyn ReadJob>>>,
    mut connection: Option<Box<dyn Connection>>,
    open: &dyn Fn() -> Result<Box<dyn Connection>, DbError>,
    meter: &Meter,
) {
    loop {
        let next = lock(waiting).recv();
        let Ok(job) = next else { break };
        let connection = match connection.take() {
            Some(open) => connection.insert(open),
            None => match open() {
                Ok(opened) => connection.insert(opened),
                Err(error) => {
                    meter.fails(Access::Read, &error);
                    job.fail(unreadable(error));
                    continue;
                }
            },
        };
        job.run(&mut **connection, meter);
    }
}
