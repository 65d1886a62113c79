//! Opens the store that the configuration names.

mod backup;
mod copy;

use std::path::Path;

use anyhow::Context as _;

use super::lock::RoleLock;
use ::config::{self, StoreUrl};
use domain::Secret;
use domain::store_state::{SLOW_STATEMENT, span};
use machine::sys::regular_file;
use postgres_url::PostgresUrl;
use store::postgres::open::Options;
use store::postgres::{DatabaseFacts, Schema, Sharing, look};
use store::rows::Store;

pub use backup::{RestoreReport, back_up, restore};
pub use copy::copy_store;

/// Opens the store. A store has only one daemon, wherever the daemon keeps the rest of its state:
/// the lock of an SQLite file is returned, and PostgreSQL keeps one itself.
///
/// # Errors
/// A store that cannot be opened, or that another daemon has.
pub(super) async fn open(settings: &config::Store) -> anyhow::Result<(Store, Option<RoleLock>)> {
    match &settings.url {
        StoreUrl::Sqlite(path) => {
            let lock = RoleLock::take(&path.with_added_extension("lock")).await?;
            Ok((Store::open(path).await?, Some(lock)))
        }
        StoreUrl::Postgres(url) => {
            let url = with_password(PostgresUrl::clone(url), settings)?;
            Ok((open_postgres(url).await?, None))
        }
    }
}

/// Returns the URL of the database with the password of its user.
fn with_password(url: PostgresUrl, settings: &config::Store) -> anyhow::Result<PostgresUrl> {
    Ok(match (&settings.password, &settings.password_file) {
        (Some(password), _) => url.with_password(password),
        (None, Some(path)) => url.with_password(&read_password(path)?),
        (None, None) => url,
    })
}

async fn open_postgres(url: PostgresUrl) -> anyhow::Result<Store> {
    let options = Options {
        name: name_of_server(),
        id: uuid::Uuid::now_v7().simple().to_string(),
        sharing: Sharing::OneServer,
        ..Options::default()
    };
    Ok(Store::connect(url, options).await?)
}

/// Looks at the store without a change, and returns lines about it for `check`. Blocks, so it is not
/// called on a thread that drives asynchronous tasks. An SQLite file has no line.
///
/// # Errors
/// The reason why a server cannot use the store, with the remedy.
pub fn look_at_store(settings: &config::Store) -> anyhow::Result<Vec<String>> {
    let StoreUrl::Postgres(url) = &settings.url else { return Ok(Vec::new()) };
    let found = look(&with_password(PostgresUrl::clone(url), settings)?)?;
    let DatabaseFacts { version, round_trip, schema, used_by } = found;
    let schema = match schema {
        Schema::Missing => "no tables yet: the first start creates them".to_owned(),
        Schema::Older { version, next } => {
            format!("schema {version}: the next start brings it to {next}")
        }
        Schema::Current { version } => format!("schema {version}, up to date"),
    };
    let user = used_by.map_or_else(|| "not in use".to_owned(), |name| format!("used by `{name}`"));
    let mut lines = vec![format!(
        "store: {}: PostgreSQL {version}, a statement takes {}, {schema}, {user}",
        url,
        span(round_trip)
    )];
    if round_trip > SLOW_STATEMENT {
        lines.push(
            "warning: the store is slow: each start needs several statements, one after the other; \
             place PostgreSQL nearer to the server"
                .to_owned(),
        );
    }
    if url.is_exposed() {
        lines.push(
            "warning: `sslmode=disable` in `store.url`: what is stored crosses the network in \
             clear text"
                .to_owned(),
        );
    }
    Ok(lines)
}

/// Reads a password. A line end after it is left out.
///
/// # Errors
/// A file that cannot be read, or has no text.
pub(super) fn read_password(path: &Path) -> anyhow::Result<Secret> {
    let text = regular_file::read_small_text(path);
    let text = text.with_context(|| {
        format!("could not read the password of the store in `{}`", path.display())
    })?;
    let password = text.trim_end_matches(['\n', '\r']);
    anyhow::ensure!(
        !password.is_empty(),
        "the file `{}` is empty: write the password of the store into it",
        path.display()
    );
    Ok(Secret::new(password))
}

/// Returns the name that another server gets if it finds the database in use.
fn name_of_server() -> String {
    let host = rustix::system::uname();
    format!("{} (pid {})", host.nodename().to_string_lossy(), std::process::id())
}
