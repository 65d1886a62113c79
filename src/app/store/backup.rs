//! Backs up the SQLite store of a daemon that may run, and restores one that no daemon uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

use super::super::identity;
use super::super::lock::{InUse, RoleLock};
use super::super::signals::Signals;
use super::super::state_dir::create_state_dir;
use config::{Config, StoreUrl};
use service::world::{SystemWorld, World as _};
use store::backup::{
    self, BackupContents, BackupError, IfExists, Origin, Restored, prepare_restore,
};

/// A store that was restored.
#[derive(Debug)]
pub struct RestoreReport {
    pub restored: Restored,
    /// The installation that made the backup; `None` for another copy of a database.
    pub origin: Option<Origin>,
    /// The coordinator that the launches and clones of the backup belong to now, if it is another
    /// one.
    pub new_coordinator: Option<String>,
}

/// Copies the store into `file` while a daemon may use it.
///
/// # Errors
/// PostgreSQL; [`BackupError`] names the problem and the remedy. `file` is then as it was.
pub async fn back_up(
    config: &Config,
    file: PathBuf,
    if_exists: IfExists,
) -> anyhow::Result<BackupContents> {
    let store = sqlite_path(config, "backed up", "pg_dump")?;
    let state_dir = &config.paths.state_dir;
    let origin = Origin {
        coordinator: identity::find_coordinator_id(state_dir),
        place: identity::place_of(state_dir).unwrap_or_default(),
        made_at: SystemWorld.now().as_millis(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    interruptible(move |must_stop| backup::back_up(&store, &file, if_exists, &origin, must_stop))
        .await
}

/// Puts a backup in the place of the store. The store that it replaces stays under another name.
///
/// # Errors
/// A daemon that runs; PostgreSQL; [`BackupError`] names the problem and the remedy. The store is
/// then as it was.
pub async fn restore(config: &Config, file: PathBuf) -> anyhow::Result<RestoreReport> {
    let store = sqlite_path(config, "restored", "pg_restore")?;
    let state_dir = &config.paths.state_dir;
    create_state_dir(state_dir)?;
    let stop_first = |error: anyhow::Error| {
        if error.is::<InUse>() {
            error.context("a store in use can't be replaced: stop the daemon first")
        } else {
            error
        }
    };
    let _lock = RoleLock::take(&state_dir.join("server.lock")).await.map_err(stop_first)?;
    let lock = store.with_added_extension("lock");
    let _lock_of_store = RoleLock::take(&lock).await.map_err(stop_first)?;
    let prepared = {
        let store = store.clone();
        interruptible(move |must_stop| prepare_restore(&file, &store, must_stop)).await?
    };
    let origin = prepared.origin().cloned();
    let former = origin.as_ref().and_then(|origin| origin.coordinator.as_deref());
    let coordinator = match (&origin, former) {
        (Some(origin), Some(former)) => {
            Some(identity::coordinator_id_after_restore(state_dir, former, &origin.place)?)
        }
        _ => None,
    };
    let new_coordinator = coordinator.filter(|id| Some(id.as_str()) != former);
    let id = new_coordinator.clone();
    let now = SystemWorld.now().as_millis();
    let restored = interruptible(move |_| prepared.finish(id.as_deref(), now)).await?;
    Ok(RestoreReport { restored, origin, new_coordinator })
}

/// Returns the path of the store.
fn sqlite_path(config: &Config, done: &str, program: &str) -> anyhow::Result<PathBuf> {
    match &config.store.url {
        StoreUrl::Sqlite(path) => Ok(path.clone()),
        StoreUrl::Postgres(url) => anyhow::bail!(
            "the store `{url}` is in PostgreSQL, which is {done} with {program}: docs/postgres.md \
             has the steps"
        ),
    }
}

/// Runs `work` on a thread that may block, and lets it stop after the first signal.
async fn interruptible<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, BackupError> + Send + 'static,
) -> anyhow::Result<T> {
    let mut signals = Signals::listen()?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_stopped);
    let mut working =
        tokio::task::spawn_blocking(move || work(&move || asked.load(Ordering::Relaxed)));
    let done = tokio::select! {
        done = &mut working => done,
        _ = signals.next() => {
            is_stopped.store(true, Ordering::Relaxed);
            working.await
        }
    };
    Ok(done.context("the copy ended early")??)
}
