//! Copies a store into another one that is empty.

use std::path::Path;

use anyhow::Context as _;

use super::super::lock::{InUse, RoleLock};
use super::with_password;
use ::config::{self, StoreUrl};
use postgres_url::PostgresUrl;
use store::copy::{self, CopiedTable, CopyError, Progress};
use store::{open, postgres};

/// Copies all state from one store into another one, which must be empty. Keeps daemons away from
/// both. `progress` is called on another thread.
///
/// # Errors
/// A store that a daemon uses, that cannot be opened or read, or a target with rows. The source is
/// never changed, and the target is then still empty.
pub async fn copy_store(
    from: &config::Store,
    to: &config::Store,
    mut progress: impl FnMut(Progress<'_>) + Send + 'static,
) -> anyhow::Result<Vec<CopiedTable>> {
    anyhow::ensure!(
        !is_same(&from.url, &to.url),
        "`{}` can't be copied into itself: name another target",
        from.url
    );
    // A lock is not made beside a database that cannot exist.
    match (&from.url, &to.url) {
        (StoreUrl::Sqlite(path), _) if !path.exists() => {
            return Err(refusal(open::OpenErrorKind::Missing, path).into());
        }
        (_, StoreUrl::Sqlite(path)) if !path.parent().is_some_and(Path::is_dir) => {
            return Err(refusal(open::OpenErrorKind::FolderMissing, path).into());
        }
        _ => {}
    }
    let (source, _lock_of_source) = end_of_copy(from).await?;
    let (target, _lock_of_target) = end_of_copy(to).await?;
    let copying = move || copy::copy(&source, &target, &mut progress);
    match tokio::task::spawn_blocking(copying).await.context("the copy ended early")? {
        Err(CopyError::Postgres(error))
            if error.kind == postgres::open::OpenErrorKind::WrongPassword =>
        {
            anyhow::bail!(
                "PostgreSQL refused the login of `{}` for `{}`: write the password into a file and \
                 name it with `--from-password-file` or `--to-password-file`, or allow this user \
                 in `pg_hba.conf`",
                error.user,
                error.url
            )
        }
        copied => Ok(copied?),
    }
}

/// Returns whether two URLs name the same store, as far as that is known before it is opened.
fn is_same(one: &StoreUrl, other: &StoreUrl) -> bool {
    match (one, other) {
        (StoreUrl::Sqlite(one), StoreUrl::Sqlite(other)) => {
            let one = one.canonicalize();
            let other = other.canonicalize();
            one.is_ok_and(|one| other.is_ok_and(|other| one == other))
        }
        (StoreUrl::Postgres(one), StoreUrl::Postgres(other)) => one == other,
        _ => false,
    }
}

fn refusal(kind: open::OpenErrorKind, path: &Path) -> open::OpenError {
    open::OpenError { kind, path: path.to_owned(), source: None }
}

/// Returns one end of a copy, and the lock if it is an SQLite file. The copy takes the lock of a
/// PostgreSQL database itself.
async fn end_of_copy(
    settings: &config::Store,
) -> anyhow::Result<(copy::Database, Option<RoleLock>)> {
    let url = &settings.url;
    match url {
        StoreUrl::Sqlite(path) => {
            let lock = RoleLock::take(&path.with_added_extension("lock")).await;
            let lock = lock.map_err(|error| {
                if error.is::<InUse>() {
                    error.context(format!("stop the daemon that uses `{url}` first"))
                } else {
                    error
                }
            })?;
            Ok((copy::Database::Sqlite(path.clone()), Some(lock)))
        }
        StoreUrl::Postgres(url) => {
            let url = with_password(PostgresUrl::clone(url), settings)?;
            Ok((copy::Database::Postgres(Box::new(url)), None))
        }
    }
}
