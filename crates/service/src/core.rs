//! The base of all use cases: the store, the world outside, and the settings.

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, RwLock};

use domain::store_state::StoreState;
use domain::{Guidance, Timestamp};
use machine::locks;
use store::rows::{Context, Publish, Store, Transaction};
use store::{Read, StoreError};

use super::world::World;
use super::{ServiceError, Settings, audit};

/// The base of the use cases. Besides the settings and the pause file, it holds nothing that
/// changes.
pub(super) struct Core {
    store: Arc<Store>,
    pub(super) world: Arc<dyn World>,
    /// The settings are replaced as a whole. A use case that reads several settings takes them
    /// once.
    settings: RwLock<Arc<Settings>>,
    /// The path of the pause file, if the last look found it. Starts are held before its row is
    /// written, and while the store cannot write it.
    pause_file: RwLock<Option<String>>,
    /// Wakes the listeners of a change.
    publish: Publish,
}

impl Core {
    pub(super) fn new(
        store: Arc<Store>,
        world: Arc<dyn World>,
        settings: Settings,
        publish: Publish,
    ) -> Self {
        let settings = RwLock::new(Arc::new(settings));
        Self { store, world, settings, pause_file: RwLock::default(), publish }
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&locks::read(&self.settings))
    }

    /// Replaces the settings except for the paths and the key of tickets, because existing files
    /// and tickets belong to this server.
    pub(super) fn reconfigure(&self, settings: Settings) {
        let before = self.settings();
        let settings = Settings {
            state_dir: before.state_dir.clone(),
            ticket_key: before.ticket_key.clone(),
            mcp_socket: before.mcp_socket.clone(),
            ..settings
        };
        *locks::write(&self.settings) = Arc::new(settings);
    }

    /// Returns the path of the pause file, if the last look found it.
    pub(super) fn pause_file(&self) -> Option<String> {
        locks::read(&self.pause_file).clone()
    }

    /// Returns whether the last look found the pause file, which keeps agents from starting.
    pub(super) fn are_starts_held(&self) -> bool {
        locks::read(&self.pause_file).is_some()
    }

    /// Notes the pause file, or that there is none. Returns the file that was noted before.
    pub(super) fn note_pause_file(&self, file: Option<String>) -> Option<String> {
        std::mem::replace(&mut *locks::write(&self.pause_file), file)
    }

    /// The texts for agents.
    pub(super) fn guidance(&self) -> Guidance {
        Guidance::new(self.settings().language)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Returns `text` of an agent as it is stored and sent: without the secrets of the
    /// configuration, and without tokens.
    pub(super) fn redacted<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.settings().redactor.redact_text(text)
    }

    /// Returns an optional text, which is cut to its limit already, like [`Self::redacted`].
    pub(super) fn redacted_taken(&self, text: Option<Cow<'_, str>>) -> Option<String> {
        text.map(|text| self.redacted(&text).into_owned())
    }

    /// Makes the changes of `body` in one transaction, and wakes the listeners of each change, even
    /// if the caller is gone. Changes nothing if `body` returns an error.
    ///
    /// `body` may run more than once. It uses no clock and no chance, and does no input or output.
    /// Not cancel-safe in its effect: when the future is dropped, the changes may have been made or
    /// not.
    #[track_caller]
    pub(super) fn write<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, ServiceError>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, ServiceError> + Send + 'static,
    {
        self.try_write(body)
    }

    /// Does the same as [`Self::write`] for a body that has an error of its own.
    #[track_caller]
    pub(super) fn try_write<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    {
        let context = Context::new(self.now(), self.world.unique(), audit::actor());
        self.store.write(context, Arc::clone(&self.publish), body)
    }

    /// Returns how the database of the store answers, without asking it.
    pub(super) fn store_state(&self) -> StoreState {
        self.store.state()
    }

    /// Reads with `body` from one snapshot. Waits for a database that cannot be reached, as a write
    /// does, so `body` may run more than once. Dropping the future is harmless.
    pub(super) fn read<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, ServiceError>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&mut Read<'_>) -> Result<T, ServiceError> + Send + 'static,
    {
        self.store.read_with_patience(body)
    }

    /// Reads like [`Self::read`], but runs `body` only once: it fails as soon as the database
    /// refuses the connection or the read. A database that does not answer is waited for as by
    /// [`Self::read`], so a caller with less time needs a timeout of its own. It is for checks of
    /// the store, and for loops that try again by themselves.
    pub(super) fn read_now<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, ServiceError>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut Read<'_>) -> Result<T, ServiceError> + Send + 'static,
    {
        self.store.read(body)
    }
}
