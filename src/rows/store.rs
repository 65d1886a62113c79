//! The store of the entities: an engine, and the effects that its transactions publish.

use std::path::Path;
use std::sync::Arc;

use crate::postgres_url::PostgresUrl;
use crate::store::{Engine, OpenError, Read, Settings, StoreError, open, postgres};

use super::{Context, Publish, Transaction};

/// The database with all entities.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Engine,
}

impl Store {
    /// Returns the store of an open engine.
    pub const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Opens the database at `path` and brings its schema up to date. Creates a new one (mode 0600)
    /// if there is none.
    ///
    /// # Errors
    /// [`OpenError`] names the problem of the file and the remedy. The file is then as it was.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let engine = blocking(move || open::file(&path, Settings::default())).await?;
        Ok(Self { engine })
    }

    /// Opens a PostgreSQL database and brings its schema up to date.
    ///
    /// # Errors
    /// [`postgres::open::OpenError`] names the problem and the remedy.
    pub async fn connect(
        url: PostgresUrl,
        options: postgres::open::Options,
    ) -> Result<Self, postgres::open::OpenError> {
        let engine = blocking(move || postgres::open::database(&url, options)).await?;
        Ok(Self { engine })
    }

    /// Opens an empty store in the memory of this process. Its calls are answered when they are
    /// first polled.
    ///
    /// # Errors
    /// Not enough memory.
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
            let (wakes, publish) = (tx.finish()?, Arc::clone(&publish));
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
