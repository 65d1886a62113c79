//! Opening a database: everything that can be wrong with the file is found before the first write, and named with a remedy.
//!
//! It hands over one checked connection with the newest schema; what is done with it is not known here.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqlSafeStr, SqliteConnection};

use super::BoxError;

/// Above this size the contents are not checked at each start: that would read all of it.
const MAX_CHECKED_BYTES: u64 = 64 << 20;

/// Marks a database as ours: "acor".
const APPLICATION_ID: i32 = 0x6163_6f72;

/// Why a database can't be opened. The text names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no folder for the database `{}`: create `{}`", .path.display(), .folder.display())]
    FolderMissing { path: PathBuf, folder: PathBuf },
    #[error("`{}` is not a file, so it can't be the database: name another path", .path.display())]
    NotAFile { path: PathBuf },
    #[error("the database `{}` can't be used by this user: give it read and write access to the file and to its folder", .path.display())]
    NotWritable {
        path: PathBuf,
        #[source]
        source: BoxError,
    },
    #[error("`{}` is not an SQLite database, and was left as it is: move it away, or name another path", .path.display())]
    NotADatabase {
        path: PathBuf,
        #[source]
        source: BoxError,
    },
    #[error("`{}` is the database of another program, and was left as it is: name another path", .path.display())]
    Foreign { path: PathBuf },
    #[error(
        "the database `{}` is damaged, and was left as it is: restore a copy, or move it away to begin with an empty one",
        .path.display()
    )]
    Corrupt {
        path: PathBuf,
        #[source]
        source: BoxError,
    },
    #[error("the database `{}` is locked by another process: end that one, then try again", .path.display())]
    Locked {
        path: PathBuf,
        #[source]
        source: BoxError,
    },
    #[error(
        "the database `{}` was written by a newer version of this program (schema {found}, this one knows {known}), and was \
         left as it is: use the newer version, or restore a copy from before the upgrade",
        .path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("there is no space left for the database `{}`: free some, then try again", .path.display())]
    DiskFull {
        path: PathBuf,
        #[source]
        source: BoxError,
    },
    #[error("could not open the database `{}`", .path.display())]
    Other {
        path: PathBuf,
        #[source]
        source: BoxError,
    },
}

/// What a database may do.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a call waits for a lock of another process before it fails.
    pub busy_timeout: Duration,
    /// The size, in pages of 4 KiB, above which the file doesn't grow, as on a full disk; `None`: no limit.
    pub max_pages: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5), max_pages: None }
    }
}

/// A checked database.
pub(super) struct Opened {
    pub(super) connection: SqliteConnection,
    /// Open further connections to the same database.
    pub(super) options: SqliteConnectOptions,
}

/// Opens the database file at `path`, or makes it.
pub(super) async fn file(path: &Path, settings: Settings) -> Result<Opened, OpenError> {
    // Relative to nothing: a working directory may change, and SQLite would take `file:x` for an address.
    let path = std::path::absolute(path).map_err(|source| failed(path, source.into()))?;
    let is_new = prepare(&path)?;
    let result = check_and_migrate(&path, settings).await;
    if is_new && result.is_err() {
        // Nothing is left of a database that never was; the first error is the one to tell.
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
    }
    result
}

/// Opens an empty database in memory, which all connections with the returned options share.
pub(super) async fn memory() -> Result<Opened, OpenError> {
    static N_OPENED: AtomicU64 = AtomicU64::new(0);
    // `memdb` shares a database by a name that begins with a slash, and locks like a file.
    let name =
        PathBuf::from(format!("/agent-coordinator-{}", N_OPENED.fetch_add(1, Ordering::Relaxed)));
    let options = options(&name, Settings::default()).vfs("memdb");
    let connect = async {
        let mut connection = options.clone().create_if_missing(true).connect().await?;
        run_migrations(&mut connection).await?;
        Ok::<_, MigrateError>(connection)
    };
    let connection = connect.await.map_err(|source| failed(&name, source.into()))?;
    Ok(Opened { connection, options })
}

/// Looks at the file without opening it; makes it if there is none, and says whether it did.
fn prepare(path: &Path) -> Result<bool, OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        return Err(OpenError::FolderMissing { path: path.to_owned(), folder: folder.to_owned() });
    }
    // The folder as well, because the log lives beside the file. Asked for, not tried: closing a file that SQLite has open
    // elsewhere in this process would release its locks.
    check_access(path, folder, Access::WRITE_OK | Access::EXEC_OK)?;
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            check_access(path, path, Access::READ_OK | Access::WRITE_OK).map(|()| false)
        }
        Ok(_) => Err(OpenError::NotAFile { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Only for its owner: it has the hashes of passkeys. The files beside it take their mode from it.
            let created =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            created.map(|_| true).map_err(|source| failed(path, source.into()))
        }
        Err(source) => Err(failed(path, source.into())),
    }
}

fn check_access(database: &Path, path: &Path, access: Access) -> Result<(), OpenError> {
    accessat(CWD, path, access, AtFlags::EACCESS).map_err(|source| OpenError::NotWritable {
        path: database.to_owned(),
        source: source.into(),
    })
}

async fn check_and_migrate(path: &Path, settings: Settings) -> Result<Opened, OpenError> {
    let options = options(path, settings);
    // Looked at through a connection that can't write: the last one to close would move a log of the last run into the file.
    let looked = match connect(path, &options.clone().read_only(true)).await {
        Ok(mut reader) => {
            let contents = check(&mut reader, path).await;
            let _ = reader.close().await;
            contents
        }
        Err(error) => Err(error),
    };
    let (mut connection, contents) = match looked {
        // A crash in the middle of a write: only who may write can undo it, and then look.
        Err(error) if needs_a_writer(&error) => {
            let mut connection = connect(path, &options).await?;
            let contents = check(&mut connection, path).await?;
            (connection, contents)
        }
        looked => {
            let contents = looked?;
            (connect(path, &options).await?, contents)
        }
    };
    match migrate(&mut connection, contents).await {
        // Only a checked file is turned to WAL, and stays so.
        Ok(()) => Ok(Opened { connection, options: options.journal_mode(SqliteJournalMode::Wal) }),
        Err(source) => {
            // Closed before somebody removes the file.
            let _ = connection.close().await;
            Err(failed(path, source.into()))
        }
    }
}

async fn connect(
    path: &Path,
    options: &SqliteConnectOptions,
) -> Result<SqliteConnection, OpenError> {
    options.connect().await.map_err(|source| failed(path, source.into()))
}

async fn migrate(
    connection: &mut SqliteConnection,
    contents: Contents,
) -> Result<(), MigrateError> {
    // Asks for the lock before anything is written. Who holds it for so long is not a backup that takes a moment.
    for sql in ["BEGIN IMMEDIATE", "ROLLBACK", "PRAGMA journal_mode = WAL"] {
        sqlx::query(sql).execute(&mut *connection).await?;
    }
    if contents == Contents::Nothing {
        // Before the first table, so that tables without the mark are somebody else's.
        let mark = AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"));
        sqlx::query(mark).execute(&mut *connection).await?;
    }
    run_migrations(connection).await
}

async fn run_migrations(connection: &mut SqliteConnection) -> Result<(), MigrateError> {
    // `Migrator::run` is the same, but its future isn't `Send` here ("implementation of `Acquire` is not general enough").
    migrations().run_direct(None, connection, false).await
}

fn options(path: &Path, settings: Settings) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(settings.busy_timeout)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        // 512 KiB of pages, at most: the daemon is to be small, and as small after thousands of launches as after hundreds.
        .pragma("cache_size", "-512")
        .pragma("journal_size_limit", "4194304")
        // Compiled statements are memory, too.
        .statement_cache_capacity(48)
        // Statements are not for the log: their times are those of the calls that the callers log.
        .disable_statement_logging();
    match settings.max_pages {
        Some(max_pages) => options.pragma("max_page_count", max_pages.to_string()),
        None => options,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Nothing,
    Ours,
}

/// Reads enough of the database to know that it's ours, whole, and not newer than this program.
async fn check(connection: &mut SqliteConnection, path: &Path) -> Result<Contents, OpenError> {
    let sql = "SELECT COUNT(*) AS n_objects, (SELECT application_id FROM pragma_application_id) AS mark FROM sqlite_master";
    let row = sqlx::query(sql).fetch_one(&mut *connection).await;
    let found = row
        .and_then(|row| Ok((row.try_get::<i64, _>("n_objects")?, row.try_get::<i32, _>("mark")?)));
    let contents = match found.map_err(|source| failed(path, source.into()))? {
        (0, _) => Contents::Nothing,
        (_, APPLICATION_ID) => Contents::Ours,
        _ => {
            return Err(OpenError::Foreign { path: path.to_owned() });
        }
    };
    if contents == Contents::Ours {
        check_version(connection, path).await?;
    }
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_CHECKED_BYTES) {
        let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut *connection).await;
        let finding: String =
            row.and_then(|row| row.try_get(0)).map_err(|source| failed(path, source.into()))?;
        if finding != "ok" {
            return Err(OpenError::Corrupt { path: path.to_owned(), source: finding.into() });
        }
    }
    Ok(contents)
}

async fn check_version(connection: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) AS version FROM _sqlx_migrations")
        .fetch_one(connection)
        .await
        .map_err(|source| failed(path, source.into()))?;
    let found: i64 = row.try_get("version").map_err(|source| failed(path, source.into()))?;
    let known = migrations().iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known {
        Err(OpenError::Newer { path: path.to_owned(), found, known })
    } else {
        Ok(())
    }
}

/// All migrations, oldest first. One that was released is never edited: a database remembers the checksum.
fn migrations() -> Migrator {
    let migration = |version, description: &'static str, sql: &'static str| {
        Migration::new(
            version,
            description.into(),
            MigrationType::Simple,
            sql.into_sql_str(),
            false,
        )
    };
    Migrator::with_migrations(vec![
        migration(1, "coordination", include_str!("migrations/0001_coordination.sql")),
        migration(2, "output tails", include_str!("migrations/0002_output_tails.sql")),
        migration(3, "contract", include_str!("migrations/0003_contract.sql")),
        migration(4, "activities", include_str!("migrations/0004_activities.sql")),
        migration(5, "start limit", include_str!("migrations/0005_start_limit.sql")),
        migration(6, "accounts", include_str!("migrations/0006_accounts.sql")),
        migration(7, "credentials", include_str!("migrations/0007_credentials.sql")),
        migration(8, "history", include_str!("migrations/0008_history.sql")),
        migration(9, "forge_items", include_str!("migrations/0009_forge_items.sql")),
        migration(10, "ended chats", include_str!("migrations/0010_ended_chats.sql")),
    ])
}

/// Finds the kind of a failure from what SQLite or the system says.
fn failed(path: &Path, source: BoxError) -> OpenError {
    let path = path.to_owned();
    match primary_code(source.as_ref()) {
        Some(code::BUSY | code::LOCKED) => OpenError::Locked { path, source },
        Some(code::READONLY | code::CANTOPEN | code::PERM) => {
            OpenError::NotWritable { path, source }
        }
        Some(code::CORRUPT) => OpenError::Corrupt { path, source },
        Some(code::NOTADB) => OpenError::NotADatabase { path, source },
        Some(code::FULL) => OpenError::DiskFull { path, source },
        Some(_) => OpenError::Other { path, source },
        None => match source.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                OpenError::NotWritable { path, source }
            }
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                OpenError::DiskFull { path, source }
            }
            _ => OpenError::Other { path, source },
        },
    }
}

/// Whether a reader failed only because a write has to be undone or completed first.
fn needs_a_writer(error: &OpenError) -> bool {
    let OpenError::NotWritable { source, .. } = error else {
        return false;
    };
    matches!(
        extended_code(source.as_ref()),
        Some(code::READONLY_ROLLBACK | code::READONLY_RECOVERY)
    )
}

/// SQLite's result code behind an error, without its extension.
fn primary_code(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<i32> {
    extended_code(error).map(|code| code & 0xff)
}

fn extended_code(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<i32> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(sqlx::Error::Database(cause)) = error.downcast_ref::<sqlx::Error>() {
            return cause.code()?.parse().ok();
        }
        next = error.source();
    }
    None
}

/// SQLite's result codes (<https://www.sqlite.org/rescode.html>).
mod code {
    pub(super) const PERM: i32 = 3;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READONLY: i32 = 8;
    pub(super) const READONLY_RECOVERY: i32 = READONLY | 1 << 8;
    pub(super) const READONLY_ROLLBACK: i32 = READONLY | 3 << 8;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const NOTADB: i32 = 26;
}
