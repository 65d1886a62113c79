//! The store of the entities: an engine, and the effects that its transactions publish.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::postgres::EventUpdate;
use crate::{Engine, OpenError, Read, Settings, StoreError, open, postgres};
use domain::store_state::StoreState;
use postgres_url::PostgresUrl;

use super::{Context, Publish, Transaction, Wake};

/// The database with all entities.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Engine,
    others: Others,
}

/// The function that publishes what other servers on the database have changed. Until there is one,
/// nothing waits for that.
#[derive(Clone, Default)]
struct Others(Arc<OnceLock<Publish>>);

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Others {
    fn hear(&self, news: EventUpdate<'_>) {
        let Some(publish) = self.0.get() else { return };
        publish(BTreeSet::from([match news {
            EventUpdate::Announced(text) => Wake::from_text(text),
            EventUpdate::Anything => Wake::Everything,
        }]));
    }
}

impl Store {
    /// Returns the store of an open engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine, others: Others::default() }
    }

    /// Opens the database at `path` and brings its schema up to date. Creates a new one (mode 0600)
    /// if there is none.
    ///
    /// # Errors
    /// [`OpenError`] names the problem of the file and the remedy. The file is then as it was.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        Ok(Self::new(blocking(move || open::file(&path, Settings::default())).await?))
    }

    /// Opens a PostgreSQL database and brings its schema up to date.
    ///
    /// # Errors
    /// [`postgres::open::OpenError`] names the problem and the remedy.
    pub async fn connect(
        url: PostgresUrl,
        options: postgres::open::Options,
    ) -> Result<Self, postgres::open::OpenError> {
        let others = Others::default();
        let heard = others.clone();
        let open = move || {
            let hear = Arc::new(move |news: EventUpdate<'_>| heard.hear(news));
            postgres::open::database_with_listener(&url, options, hear)
        };
        Ok(Self { engine: blocking(open).await?, others })
    }

    /// Opens an empty store in the memory of this process. Its calls are answered when they are
    /// first polled.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn in_memory() -> Result<Self, OpenError> {
        Ok(Self::new(open::memory()?))
    }

    /// Calls `publish` with the changes of other servers on the database from now on. It must not
    /// block. A second call changes nothing.
    pub fn publish_others(&self, publish: Publish) {
        // The store belongs to one service.
        let _ = self.others.0.set(publish);
    }

    /// Returns how the database answers, without asking it.
    pub fn state(&self) -> StoreState {
        self.engine.state()
    }

    pub fn n_transactions(&self) -> u64 {
        self.engine.n_transactions()
    }

    /// Returns when nothing can be written any more: the store was closed, or its writer died.
    pub async fn closed(&self) {
        self.engine.closed().await;
    }

    /// Runs `body` in a transaction and commits it, then calls `publish`. Leaves nothing if `body`
    /// returns an error.
    ///
    /// # Errors
    /// The error of `body`; [`StoreError`] if the database fails or is closed.
    #[track_caller]
    pub fn write<T, E, F>(
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
            let wakes = tx.finish()?;
            let publish = Arc::clone(&publish);
            tx.after_commit(move || publish(wakes));
            Ok(answer)
        })
    }

    /// Reads with `body` from one snapshot.
    ///
    /// # Errors
    /// The error of `body`; [`StoreError`] if the database fails or is closed.
    pub fn read<T, E, F>(&self, body: F) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Read<'_>) -> Result<T, E> + Send + 'static,
    {
        self.engine.read(body)
    }

    /// Does what [`Store::read`] does, and waits for a database that cannot be reached, as
    /// [`Store::write`] does. `body` may run more than once.
    ///
    /// # Errors
    /// The errors of [`Store::read`].
    pub fn read_with_patience<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Read<'_>) -> Result<T, E> + Send + 'static,
    {
        self.engine.read_with_patience(body)
    }

    /// Commits what was handed over, then closes the store. Later calls answer
    /// [`StoreError::Closed`].
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(error) => panic!("the runtime ends: {error}"),
        },
    }
}
