//! A session of PostgreSQL whose calls block their thread.
//!
//! PostgreSQL can keep a connection open and not answer: its processes are stopped, or a Unix
//! socket leads to a machine that stands still. A call without an answer therefore looks from time
//! to time, by another connection, whether its session still exists. If no host answers, or the
//! session is gone, the connection ends here and the call fails. A session that exists may need
//! long, for example for a commit that waits for a standby.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures::TryStreamExt as _;
use tokio::runtime::{self, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement, ToStatement};

use postgres_url::PostgresUrl;

use super::super::db::BoxError;
use super::connect::{Messages, connect};

/// Parameters of a statement.
type Args<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Hears that statements were made.
type Made = Box<dyn FnOnce() + Send>;

/// Makes sessions.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub(super) url: PostgresUrl,
    /// The name of the sessions, which PostgreSQL shows.
    pub(super) name: String,
    /// The time after which a host without an answer is given up, and after which a call looks
    /// whether its session exists.
    pub(super) longest_silence: Duration,
}

/// A session of PostgreSQL. Its start tells it from a later one with the same pid.
#[derive(Debug, Default)]
pub(super) struct Session {
    pid: i32,
    began_at: String,
}

/// A connection.
pub(super) struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
    /// `None` once the connection has ended.
    messages: Option<Messages>,
    session: Session,
    connector: Connector,
    /// The statements that go with the next call, and who hears that they were made.
    before_next: Option<(&'static str, Made)>,
}

impl Client {
    /// Connects with `options` of the session.
    ///
    /// # Errors
    /// The errors of [`connect`].
    pub(super) fn connect(connector: Connector, options: &str) -> Result<Self, BoxError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (client, messages) = match runtime.block_on(connect(&connector, options)) {
            Ok(connected) => connected,
            Err(error) => {
                // A look-up of a name may take long, and nothing needs its answer.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let mut client = Self {
            runtime,
            client,
            messages: Some(messages),
            session: Session::default(),
            connector,
            before_next: None,
        };
        let sql = "SELECT pid, backend_start::TEXT FROM pg_stat_activity \
            WHERE pid = pg_backend_pid()";
        let row = client.query_one(sql, &[])?;
        client.session = Session { pid: row.get(0), began_at: row.get(1) };
        Ok(client)
    }

    pub(super) const fn session(&self) -> &Session {
        &self.session
    }

    /// Returns whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.messages.is_none() || self.client.is_closed()
    }

    /// Sends `sql` together with the next call, which then fails if `sql` does. `made` is called
    /// when PostgreSQL has made it.
    pub(super) fn before_next(&mut self, sql: &'static str, made: Made) {
        self.before_next = Some((sql, made));
    }

    /// Returns whether statements wait for the next call.
    pub(super) const fn has_before(&self) -> bool {
        self.before_next.is_some()
    }

    /// Takes back what [`Client::before_next`] has not sent yet. Returns whether there was any.
    pub(super) fn take_back(&mut self) -> bool {
        self.before_next.take().is_some()
    }

    pub(super) fn batch_execute(&mut self, sql: &str) -> Result<(), Error> {
        self.call(async |client| client.batch_execute(sql).await)
    }

    pub(super) fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        self.call(async |client| client.prepare(sql).await)
    }

    pub(super) fn execute(
        &mut self,
        statement: &(impl ToStatement + ?Sized),
        args: Args<'_>,
    ) -> Result<u64, Error> {
        self.call(async |client| client.execute(statement, args).await)
    }

    pub(super) fn query(
        &mut self,
        statement: &(impl ToStatement + ?Sized),
        args: Args<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.call(async |client| client.query(statement, args).await)
    }

    pub(super) fn query_one(&mut self, sql: &str, args: Args<'_>) -> Result<Row, Error> {
        self.call(async |client| client.query_one(sql, args).await)
    }

    pub(super) fn query_opt(&mut self, sql: &str, args: Args<'_>) -> Result<Option<Row>, Error> {
        self.call(async |client| client.query_opt(sql, args).await)
    }

    /// Calls `each` with the rows of a query until that breaks. The rows do not need to have room in
    /// memory.
    pub(super) fn scan(
        &mut self,
        statement: &Statement,
        each: &mut dyn FnMut(&Row) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let none: [i64; 0] = [];
        let rows = self.call(async |client| client.query_raw(statement, none).await)?;
        let mut rows = pin!(rows);
        while let Some(row) = self.call(async |_| rows.try_next().await)? {
            if each(&row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn call<T>(
        &mut self,
        work: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self { runtime, client, messages, session, connector, before_next } = self;
        let before = before_next.take();
        let work = async {
            let Some((sql, made)) = before else { return work(client).await };
            let before = async { client.batch_execute(sql).await.map(|()| made()) };
            let (before, done) = tokio::join!(biased; before, work(client));
            before.and(done)
        };
        runtime.block_on(async {
            let mut work = pin!(work);
            loop {
                let answer = drive(messages, work.as_mut());
                if let Ok(answer) = tokio::time::timeout(connector.longest_silence, answer).await {
                    return answer;
                }
                if !session.exists(connector).await {
                    tracing::warn!(
                        pid = session.pid,
                        "PostgreSQL does not answer, and its session can't be found; will connect again"
                    );
                    *messages = None;
                }
            }
        })
    }
}

/// Makes progress of a connection until `work` is done. Without a connection, `work` fails.
async fn drive<T>(
    messages: &mut Option<Messages>,
    mut work: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    let drive = poll_fn(|cx| {
        while let Some(connection) = messages {
            match connection(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    *messages = None;
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(None) => *messages = None,
                Poll::Pending => break,
            }
        }
        work.as_mut().poll(cx)
    });
    drive.await
}

impl Session {
    /// Returns whether a host answers that has this session, or that may have it.
    async fn exists(&self, connector: &Connector) -> bool {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND backend_start::TEXT = $2";
        let look = async {
            let (client, messages) = connect(connector, "").await?;
            let args: Args<'_> = &[&self.pid, &self.began_at];
            let found = pin!(client.query_opt(sql, args));
            Ok::<_, BoxError>(drive(&mut Some(messages), found).await?.is_some())
        };
        // A server that refuses another session lives.
        let has_refused = |error: BoxError| {
            error.downcast_ref::<Error>().is_some_and(|error| error.code().is_some())
        };
        look.await.unwrap_or_else(has_refused)
    }

    /// Ends the session by another one. Returns whether there was such a session.
    pub(super) fn end(&self, by: &mut Client) -> Result<bool, Error> {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE pid = $1 AND backend_start::TEXT = $2";
        Ok(by.query_opt(sql, &[&self.pid, &self.began_at])?.is_some())
    }
}
