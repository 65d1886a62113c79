//! Opens the store that the configuration names.

use std::path::Path;

use anyhow::Context as _;

use super::lock::RoleLock;
use crate::config::{Password, PostgresStore, StoreUrl};
use crate::domain::Secret;
use crate::rows::Store;
use crate::store::postgres::Sharing;
use crate::store::postgres::open::Options;
use crate::sys::regular_file;

/// Opens the store. A store has only one daemon, wherever the daemon keeps the rest of its state:
/// the lock of an SQLite file is returned, and PostgreSQL keeps one itself.
///
/// # Errors
/// A store that cannot be opened, or that another daemon has.
pub(super) async fn open(url: &StoreUrl) -> anyhow::Result<(Store, Option<RoleLock>)> {
    match url {
        StoreUrl::Sqlite(path) => {
            let lock = RoleLock::take(&path.with_added_extension("lock")).await?;
            Ok((Store::open(path).await?, Some(lock)))
        }
        StoreUrl::Postgres(store) => Ok((open_postgres(store).await?, None)),
    }
}

async fn open_postgres(store: &PostgresStore) -> anyhow::Result<Store> {
    let url = match &store.password {
        None => store.url.clone(),
        Some(Password::Given(password)) => store.url.clone().with_password(password),
        Some(Password::File(path)) => store.url.clone().with_password(&read_password(path)?),
    };
    let options = Options {
        name: name_of_server(),
        id: uuid::Uuid::now_v7().simple().to_string(),
        sharing: Sharing::OneServer,
        ..Options::default()
    };
    Ok(Store::connect(url, options).await?)
}

/// Reads a password. A line end after it is left out.
///
/// # Errors
/// A file that cannot be read, or has no text.
pub(super) fn read_password(path: &Path) -> anyhow::Result<Secret> {
    let text = regular_file::read_small_text(path);
    let text = text.with_context(|| format!("`store.password_file`: `{}`", path.display()))?;
    let password = text.trim_end_matches(['\n', '\r']);
    anyhow::ensure!(!password.is_empty(), "`store.password_file`: `{}` is empty", path.display());
    Ok(Secret::new(password))
}

/// Returns the name that another server gets if it finds the database in use.
fn name_of_server() -> String {
    let host = rustix::system::uname();
    format!("{} (pid {})", host.nodename().to_string_lossy(), std::process::id())
}
