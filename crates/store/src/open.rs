//! Opens a database. All checks of the file run before the first write, and each problem is
//! reported with a remedy.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, ffi};
use rustix::fs::{Access as Mode, AtFlags, CWD, accessat};

use super::database_files::DatabaseFiles;
use super::db::BoxError;
use super::engine::{self, Engine};
use super::schema;
use super::sqlite::{Access, Options, Sqlite};

/// The memory for pages, in KiB, of the writer and of each reader. After each write, readers read
/// their pages again from the memory of the kernel, so a larger cache would only keep them twice.
const WRITER_CACHE: u32 = 512;
const READER_CACHE: u32 = 256;

/// The size above which the contents are not checked at each start, because the check reads all of
/// them.
const MAX_CHECKED_BYTES: u64 = 64 << 20;

/// Marks a database as ours: "acor".
const APPLICATION_ID: i32 = 0x6163_6f72;

/// The reason why a database cannot be opened. The text names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub struct OpenError {
    pub kind: OpenErrorKind,
    /// The database file.
    pub path: PathBuf,
    /// The error of SQLite or of the system, if there is one.
    pub source: Option<BoxError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenErrorKind {
    FolderMissing,
    /// There is no file to copy from.
    Missing,
    /// The file to copy from has no tables.
    Empty,
    NotAFile,
    NotWritable,
    NotADatabase,
    /// The file is the database of another program.
    Foreign,
    Corrupt,
    /// The schema is not the one that this program made.
    OtherSchema,
    Locked,
    /// A newer version of this program has written it.
    Newer {
        found: i64,
        known: i64,
    },
    /// An older version of this program has written the file to copy from.
    Older {
        found: i64,
        known: i64,
    },
    /// The file system does not lock files.
    NoLocks,
    DiskFull,
    Other,
}

impl OpenError {
    pub(super) fn new(kind: OpenErrorKind, path: &Path) -> Self {
        Self { kind, path: path.to_owned(), source: None }
    }

    pub(super) fn caused_by(kind: OpenErrorKind, path: &Path, source: impl Into<BoxError>) -> Self {
        Self { kind, path: path.to_owned(), source: Some(source.into()) }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.kind {
            OpenErrorKind::FolderMissing => {
                let folder = folder_of(&self.path).display();
                write!(f, "there is no folder for the database `{path}`: create `{folder}`")
            }
            OpenErrorKind::Missing => {
                write!(f, "there is no database `{path}`: correct the path")
            }
            OpenErrorKind::Empty => {
                write!(f, "the database `{path}` is empty, so there is nothing to copy")
            }
            OpenErrorKind::NotAFile => {
                write!(f, "`{path}` is not a file, so it can't be the database: name another path")
            }
            OpenErrorKind::NotWritable => write!(
                f,
                "the database `{path}` can't be used by this user: \
                 give it read and write access to the file and to its folder"
            ),
            OpenErrorKind::NotADatabase => write!(
                f,
                "`{path}` is not an SQLite database, and was left as it is: \
                 move it away, or name another path"
            ),
            OpenErrorKind::Foreign => write!(
                f,
                "`{path}` is the database of another program, and was left as it is: \
                 name another path"
            ),
            OpenErrorKind::Corrupt => write!(
                f,
                "the database `{path}` is damaged, and was left as it is: \
                 restore a copy, or move it away to begin with an empty one"
            ),
            OpenErrorKind::OtherSchema => write!(
                f,
                "the database `{path}` has another schema than this program made, and was left as \
                 it is: name another file, or undo the difference"
            ),
            OpenErrorKind::Locked => write!(
                f,
                "the database `{path}` is locked by another process: end that one, then try again"
            ),
            OpenErrorKind::Newer { found, known } => write!(
                f,
                "the database `{path}` was written by a newer version of this program \
                 (schema {found}, this one knows {known}), and was left as it is: \
                 use the newer version, or restore a copy from before the upgrade"
            ),
            OpenErrorKind::Older { found, known } => write!(
                f,
                "the database `{path}` was written by an older version of this program (schema \
                 {found}, this one copies schema {known}), and was left as it is: start the daemon \
                 of this version with it once, stop it, then copy"
            ),
            OpenErrorKind::NoLocks => write!(
                f,
                "the file system of the database `{path}` does not lock files as SQLite needs it, \
                 so another process could damage the database: name a path on a local file system"
            ),
            OpenErrorKind::DiskFull => write!(
                f,
                "there is no space left for the database `{path}`: free some space, then try again"
            ),
            OpenErrorKind::Other => write!(f, "could not open the database `{path}`"),
        }
    }
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The limits of a database.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The time that a call waits for a lock of another process before it fails.
    pub busy_timeout: Duration,
    /// The maximum size of the file, in pages of 4 KiB. A file of this size behaves as on a full
    /// disk. `None` means no limit.
    pub max_pages: Option<u32>,
    /// A read that takes longer than this is interrupted, because it would keep the log from
    /// shrinking.
    pub longest_read: Duration,
    /// A log of this many bytes is reported, because a reader keeps it from shrinking.
    pub largest_log: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            max_pages: None,
            longest_read: Duration::from_secs(10),
            largest_log: 256 << 20,
        }
    }
}

/// Opens the database file at `path`, or creates it.
///
/// # Errors
/// [`OpenError`] names the problem of the file and the remedy. The file is then as it was.
pub fn file(path: &Path, settings: Settings) -> Result<Engine, OpenError> {
    let path = absolute(path)?;
    let (options, connection) = open_or_create(&path, settings)?;
    let reader = Options { cache_kib: READER_CACHE, access: Access::QueryOnly, ..options.clone() };
    let writer = Sqlite::new(connection, Some(options));
    Engine::start(writer, move || Ok(Box::new(Sqlite::open(&reader)?)), None)
        .map_err(|source| failed(&path, source))
}

/// Opens an existing database to copy its rows. The connection cannot write.
///
/// # Errors
/// [`OpenError`] names the problem of the file and the remedy.
pub(super) fn to_read(path: &Path) -> Result<Sqlite, OpenError> {
    let path = absolute(path)?;
    if !exists(&path)? {
        return Err(OpenError::new(OpenErrorKind::Missing, &path));
    }
    let options = options(&path, settings_of_copy(), Access::ReadOnly);
    let connection = connect(&options)?;
    if check(&connection, &path)? == Contents::Nothing {
        return Err(OpenError::new(OpenErrorKind::Empty, &path));
    }
    let missing = schema::first_missing(&connection).map_err(|source| failed(&path, source))?;
    if missing.is_some() {
        let found = version_of(&connection).map_err(|source| failed(&path, source))?;
        let known = schema::newest_version();
        return Err(OpenError::new(OpenErrorKind::Older { found, known }, &path));
    }
    Ok(Sqlite::new(connection, Some(options)))
}

/// Opens a database to copy rows into it, or creates it. `refuse_rows` is called before the first
/// change of an existing one.
///
/// # Errors
/// The error of `refuse_rows`; [`OpenError`] names the problem of the file and the remedy.
pub(super) fn to_fill<E: From<OpenError>>(
    path: &Path,
    refuse_rows: impl FnOnce(&mut Sqlite) -> Result<(), E>,
) -> Result<Sqlite, E> {
    let path = absolute(path)?;
    if exists(&path)? {
        let options = options(&path, settings_of_copy(), Access::ReadOnly);
        let connection = connect(&options)?;
        let contents = check(&connection, &path)?;
        if contents == Contents::Ours {
            check_schema(&connection, &path)?;
        }
        refuse_rows(&mut Sqlite::new(connection, Some(options)))?;
    }
    let (options, connection) = open_or_create(&path, settings_of_copy())?;
    Ok(Sqlite::new(connection, Some(options)))
}

/// Returns settings under which a read may take as long as a copy.
pub(super) fn settings_of_copy() -> Settings {
    Settings { longest_read: Duration::from_hours(24 * 365), ..Settings::default() }
}

/// Opens an empty database in memory, whose transactions run in the caller.
///
/// # Errors
/// Not enough memory.
pub fn memory() -> Result<Engine, OpenError> {
    memory_through(|connection| connection)
}

/// Opens an empty database in memory. The result of `wrap` is between it and the engine, so that a
/// test sees each call, or lets it fail.
///
/// # Errors
/// The errors of [`memory`].
pub fn memory_through(
    wrap: impl FnOnce(Box<dyn engine::Connection>) -> Box<dyn engine::Connection>,
) -> Result<Engine, OpenError> {
    let name = Path::new(":memory:");
    let open = || {
        let mut connection = Connection::open_in_memory()?;
        schema::apply(&mut connection, ..)?;
        Ok::<_, schema::SchemaError>(connection)
    };
    let connection = open().map_err(|source| failed(name, source))?;
    Ok(Engine::inline(wrap(Box::new(Sqlite::new(connection, None)))))
}

/// Returns the path from the root, because a working directory may change.
fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    std::path::absolute(path).map_err(|source| failed(path, source))
}

/// Returns whether there is a file, also one that another user hides. Refuses anything else,
/// because SQLite would wait for the other end of a pipe.
fn exists(path: &Path) -> Result<bool, OpenError> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(OpenError::new(OpenErrorKind::NotAFile, path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => Ok(true),
    }
}

/// Opens the database file at `path` and brings its schema up to date, or creates it.
fn open_or_create(path: &Path, settings: Settings) -> Result<(Options, Connection), OpenError> {
    let is_new = prepare(path)?;
    let result = check_and_migrate(path, settings);
    if is_new && result.is_err() {
        // The files of a database that could not be created are removed. The first error is the one
        // to report.
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(beside(path, suffix));
        }
    }
    result
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}

/// Checks the file without opening it, and creates it if there is none. Returns whether it did.
fn prepare(path: &Path) -> Result<bool, OpenError> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(OpenError::new(OpenErrorKind::FolderMissing, path));
    }
    // The folder is checked as well, because the log is beside the file. The check opens nothing:
    // closing a file that SQLite has open elsewhere in this process would release its locks.
    check_access(path, folder, Mode::WRITE_OK | Mode::EXEC_OK)?;
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            check_access(path, path, Mode::READ_OK | Mode::WRITE_OK).map(|()| false)
        }
        Ok(_) => Err(OpenError::new(OpenErrorKind::NotAFile, path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The file is readable only for its owner, because it has the hashes of passkeys. The
            // files beside it take their mode from it.
            let created =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            created.map(|_| true).map_err(|source| failed(path, source))
        }
        Err(source) => Err(failed(path, source)),
    }
}

fn check_access(database: &Path, path: &Path, access: Mode) -> Result<(), OpenError> {
    accessat(CWD, path, access, AtFlags::EACCESS)
        .map_err(|source| OpenError::caused_by(OpenErrorKind::NotWritable, database, source))
}

/// Returns the options of a connection.
pub(super) fn options(path: &Path, settings: Settings, access: Access) -> Options {
    Options { path: path.to_owned(), place: None, settings, cache_kib: WRITER_CACHE, access }
}

fn check_and_migrate(path: &Path, settings: Settings) -> Result<(Options, Connection), OpenError> {
    let options = options(path, settings, Access::ReadWrite);
    // The check uses a connection that cannot write. The last writing connection to close would
    // move a log of the last run into the file.
    let looked = connect(&Options { access: Access::ReadOnly, ..options.clone() })
        .and_then(|reader| check(&reader, path));
    let (mut connection, contents) = match looked {
        // After a crash in the middle of a write, only a connection that can write can undo it
        // before the check.
        Err(error) if needs_a_writer(&error) => {
            let connection = connect(&options)?;
            let contents = check(&connection, path)?;
            (connection, contents)
        }
        looked => {
            let contents = looked?;
            (connect(&options)?, contents)
        }
    };
    match migrate(&mut connection, path, contents) {
        Ok(()) => {
            let place = Some(Arc::new(DatabaseFiles::of(path)));
            Ok((Options { place, ..options }, connection))
        }
        Err(source @ schema::SchemaError::NoLog { .. }) => {
            Err(OpenError::caused_by(OpenErrorKind::NoLocks, path, source))
        }
        Err(source) => Err(failed(path, source)),
    }
}

pub(super) fn connect(options: &Options) -> Result<Connection, OpenError> {
    options.connect().map_err(|source| failed(&options.path, source))
}

/// Applies the missing migrations. Before the first one, a database that has contents is copied to
/// `<name>.before-<version>`.
fn migrate(
    connection: &mut Connection,
    path: &Path,
    contents: Contents,
) -> Result<(), schema::SchemaError> {
    // The lock is taken before the first write. A process that holds it for so long is not a short
    // backup.
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?;
    // Only a checked file is turned to WAL. It stays in that mode.
    turn_to_wal(connection)?;
    if contents == Contents::Nothing {
        // The mark is set before the first table, so that tables without the mark belong to another
        // program.
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    let Some(first) = schema::first_missing(connection)? else {
        return Ok(());
    };
    if contents == Contents::Ours {
        let copy = beside(path, &format!(".before-{first}"));
        copy_to(connection, &copy)?;
        tracing::info!(
            copy = %copy.display(), version = first,
            "copied the database before its schema is brought up to date"
        );
    }
    schema::apply(connection, first..)
}

/// Turns on the write-ahead log, so that reads can go on during writes.
fn turn_to_wal(connection: &Connection) -> Result<(), schema::SchemaError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") { Ok(()) } else { Err(schema::SchemaError::NoLog { mode }) }
}

/// Copies the database as it is now. A copy that an interrupted start has left is replaced.
fn copy_to(connection: &Connection, copy: &Path) -> rusqlite::Result<()> {
    let _ = std::fs::remove_file(copy);
    // The file is created first with the mode of the database, because it has the hashes of
    // passkeys.
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy);
    drop(made);
    connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).map(drop)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Nothing,
    Ours,
}

/// Checks that the database is ours, whole, and not newer than this program.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<Contents, OpenError> {
    let failed = |source: rusqlite::Error| failed(path, source);
    let sql = "SELECT COUNT(*), (SELECT application_id FROM pragma_application_id), \
        COUNT(*) FILTER (WHERE type = 'table' AND name = '_sqlx_migrations') FROM sqlite_master";
    let found = connection
        .query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get::<_, i64>(2)?)));
    let contents = match found.map_err(failed)? {
        (0, _, _) => Contents::Nothing,
        (_, APPLICATION_ID, 1) => Contents::Ours,
        _ => return Err(OpenError::new(OpenErrorKind::Foreign, path)),
    };
    if contents == Contents::Ours {
        let found = version_of(connection).map_err(failed)?;
        let known = schema::newest_version();
        if found > known {
            return Err(OpenError::new(OpenErrorKind::Newer { found, known }, path));
        }
    }
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_CHECKED_BYTES) {
        let sql = "PRAGMA quick_check(1)";
        let finding: String = connection.query_row(sql, [], |row| row.get(0)).map_err(failed)?;
        if finding != "ok" {
            return Err(OpenError::caused_by(OpenErrorKind::Corrupt, path, finding));
        }
    }
    Ok(contents)
}

/// Refuses a database with an object that this program did not make, and one that lacks an object
/// or has it with other SQL. Callers use it for a file that another person may have made.
///
/// # Errors
/// [`OpenErrorKind::OtherSchema`]; its source names the first object that differs.
pub(super) fn check_schema(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    match schema::first_difference(connection).map_err(|source| failed(path, source))? {
        None => Ok(()),
        Some(difference) => Err(OpenError::caused_by(OpenErrorKind::OtherSchema, path, difference)),
    }
}

/// Returns the newest migration that a database of this program has.
pub(super) fn version_of(connection: &Connection) -> rusqlite::Result<i64> {
    let sql = "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations";
    connection.query_row(sql, [], |row| row.get(0))
}

/// SQLite's codes for a file system without locks, or without memory that processes share.
const CODES_OF_LOCKS: [i32; 8] = [
    ffi::SQLITE_PROTOCOL,
    ffi::SQLITE_NOLFS,
    ffi::SQLITE_IOERR_UNLOCK,
    ffi::SQLITE_IOERR_RDLOCK,
    ffi::SQLITE_IOERR_CHECKRESERVEDLOCK,
    ffi::SQLITE_IOERR_LOCK,
    ffi::SQLITE_IOERR_SHMLOCK,
    ffi::SQLITE_IOERR_SHMMAP,
];

/// Finds the kind of a failure from what SQLite or the system says.
pub(super) fn failed(path: &Path, source: impl Into<BoxError>) -> OpenError {
    let source = source.into();
    let kind = match sqlite_error(source.as_ref()) {
        Some(error) if CODES_OF_LOCKS.contains(&error.extended_code) => OpenErrorKind::NoLocks,
        Some(error) => match error.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => OpenErrorKind::Locked,
            ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
                OpenErrorKind::NotWritable
            }
            ErrorCode::DatabaseCorrupt => OpenErrorKind::Corrupt,
            ErrorCode::NotADatabase => OpenErrorKind::NotADatabase,
            ErrorCode::DiskFull => OpenErrorKind::DiskFull,
            _ => OpenErrorKind::Other,
        },
        None => match source.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                OpenErrorKind::NotWritable
            }
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                OpenErrorKind::DiskFull
            }
            _ => OpenErrorKind::Other,
        },
    };
    OpenError::caused_by(kind, path, source)
}

/// Returns whether a reader failed only because a write has to be undone or completed first.
fn needs_a_writer(error: &OpenError) -> bool {
    error.source.as_deref().and_then(sqlite_error).is_some_and(|error| {
        matches!(error.extended_code, ffi::SQLITE_READONLY_ROLLBACK | ffi::SQLITE_READONLY_RECOVERY)
    })
}

/// Returns SQLite's error among an error and its causes.
fn sqlite_error(error: &(dyn Error + Send + Sync + 'static)) -> Option<ffi::Error> {
    let error: &(dyn Error + 'static) = error;
    std::iter::successors(Some(error), |error| (*error).source())
        .find_map(|error| error.downcast_ref::<rusqlite::Error>()?.sqlite_error().copied())
}

#[cfg(test)]
mod tests;
