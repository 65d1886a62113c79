//! Copies an SQLite database into one file while a daemon uses it, and puts such a file in the place
//! of a database that no daemon uses.
//!
//! ```text
//!  database and its log ──bytes──► <file>.partial: checked, synced ──rename──► <file>
//!  <file> ──bytes──► <database>.restoring: checked, migrated, counters ──rename──► <database>
//! ```
//!
//! If a backup or a restore ends early, the file with the final name is whole or does not exist.
//! The database that a restore replaces stays under another name.

mod source;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use self::source::Source;
use super::db::BoxError;
use super::open::{self, OpenError, OpenErrorKind, beside};
use super::schema;
use crate::sys::regular_file;

/// The table with the origin of a backup. The restored database does not have it.
pub(super) const ORIGIN: &str = "backup_origin";
/// The short ids of a project that are left out if it is not known how many were given after the
/// backup.
const SHORT_IDS_LEFT_OUT: i64 = 100;
/// The numbers of events and messages that are left out for the same reason.
const NUMBERS_LEFT_OUT: i64 = 1_000_000;

/// The installation and the time of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The coordinator in the server's process; `None` for a server alone.
    pub coordinator: Option<String>,
    /// A text that differs in a copy of the state directory.
    pub place: String,
    /// Milliseconds since 1970 (UTC).
    pub made_at: i64,
    /// The version of this program.
    pub version: String,
}

/// The contents of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupContents {
    pub bytes: u64,
    /// The newest migration.
    pub schema: i64,
    /// The tables that people know, with their numbers of rows.
    pub n_rows: Vec<(&'static str, u64)>,
    /// The launches that had not ended.
    pub n_open_launches: u64,
}

/// Whether a backup may replace a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    Refuse,
    Replace,
}

/// A restore that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub contents: BackupContents,
    /// The database that was in its place, under its new name.
    pub replaced: Option<PathBuf>,
    /// The keys of projects and the numbers of their next tasks, where these are not those of the
    /// backup.
    pub continued: Vec<(String, i64)>,
}

/// The reason why there is no backup, or why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("`{}` exists, and was left as it is: name another file, or add --force", .0.display())]
    Exists(PathBuf),
    #[error("`{}` is not a file, so it can't be a backup: name another path", .0.display())]
    NotAFile(PathBuf),
    #[error("`{}` is the database in use or belongs to it: name another file", .0.display())]
    Same(PathBuf),
    #[error("another backup to `{}` is under way: wait for it, or name another file", .0.display())]
    UnderWay(PathBuf),
    #[error(
        "`{}` is a copy of a PostgreSQL database: restore it with pg_restore or psql \
         (docs/postgres.md)",
        .0.display()
    )]
    OfPostgres(PathBuf),
    #[error(
        "`{}` {problem}, so nothing was restored: name a whole file that `backup` made",
        .path.display()
    )]
    NoBackup {
        path: PathBuf,
        problem: &'static str,
        /// The error of SQLite, if there is one.
        source: Option<BoxError>,
    },
    #[error(
        "`{}` has a log beside it (`-wal` or `-journal`), so it is a database in use, or was one: \
         name another file",
        .0.display()
    )]
    InUse(PathBuf),
    #[error("could not {action} `{}`", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("interrupted, and nothing was written")]
    Interrupted,
}

impl BackupError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Copies the database at `store` into `file` (mode 0600) while other processes use it. The copy is
/// one state of the database, and it was checked. `must_stop` is asked before each part of 512 KiB.
///
/// Blocks, so it is not called on a thread that drives asynchronous tasks. A process that has the
/// database open does not call it, because the end of the copy ends all its locks on the file.
///
/// # Errors
/// [`BackupError`] names the file, the problem and the remedy. `file` is then as it was.
pub fn back_up(
    store: &Path,
    file: &Path,
    if_exists: IfExists,
    origin: &Origin,
    must_stop: &dyn Fn() -> bool,
) -> Result<BackupContents, BackupError> {
    check_target(store, file, if_exists)?;
    let draft = Draft::make(beside(file, ".partial"), file)?;
    Source::open(store)?.copy_to(&draft.path, &draft.lock, must_stop)?;
    let contents = draft.complete(|connection| {
        connection.execute_batch(&format!(
            "CREATE TABLE {ORIGIN} (coordinator_id TEXT, place TEXT NOT NULL, \
             made_at BIGINT NOT NULL, version TEXT NOT NULL)"
        ))?;
        let Origin { coordinator, place, made_at, version } = origin;
        let sql = format!("INSERT INTO {ORIGIN} VALUES (?1, ?2, ?3, ?4)");
        connection.execute(&sql, (coordinator, place, made_at, version)).map(drop)
    });
    let contents = contents.map_err(damage_is_of(store))?;
    draft.put_in_place(file, if_exists)?;
    Ok(contents)
}

/// Returns a function that names `source` in the error about a damaged copy of it.
fn damage_is_of(source: &Path) -> impl Fn(BackupError) -> BackupError {
    move |error| match error {
        BackupError::Open(error) if error.kind == OpenErrorKind::Corrupt => {
            OpenError { path: source.to_owned(), ..error }.into()
        }
        error => error,
    }
}

/// Refuses a target before anything is written.
fn check_target(store: &Path, file: &Path, if_exists: IfExists) -> Result<(), BackupError> {
    for suffix in ["", "-wal", "-shm", "-journal", ".lock", ".restoring"] {
        let of_store = beside(store, suffix);
        if file == of_store || is_same_file(file, &of_store) {
            return Err(BackupError::Same(file.to_owned()));
        }
    }
    match fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() => return Err(BackupError::NotAFile(file.to_owned())),
        Ok(_) if if_exists == IfExists::Refuse => {
            return Err(BackupError::Exists(file.to_owned()));
        }
        _ => {}
    }
    if has_log(file) { Err(BackupError::InUse(file.to_owned())) } else { Ok(()) }
}

/// Returns whether a log beside the file would count as a part of it.
fn has_log(file: &Path) -> bool {
    let has_bytes = |path: PathBuf| fs::metadata(path).is_ok_and(|log| log.len() > 0);
    ["-wal", "-journal"].iter().any(|suffix| has_bytes(beside(file, suffix)))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    id(one).is_ok_and(|one| id(other).is_ok_and(|other| one == other))
}

/// A database under construction. It is removed when this is dropped, unless it got its final name.
struct Draft {
    path: PathBuf,
    /// Keeps a second process from using the same draft. It is closed after SQLite's last use,
    /// because that ends all locks of this process on the file.
    lock: Flock<File>,
    /// It has its final name. Its first name may belong to another process by now.
    is_placed: bool,
}

impl Draft {
    /// Makes a private file beside the final one. The file of an interrupted process is replaced.
    fn make(path: PathBuf, file: &Path) -> Result<Self, BackupError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                BackupError::Io { action: "write to the folder of", path: file.to_owned(), source }
            }
            _ => BackupError::Io { action: "write", path: path.clone(), source },
        };
        let opened = regular_file::open_or_make(&path).map_err(failed)?;
        let lock = match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Err(BackupError::UnderWay(file.to_owned())),
            Err((_, errno)) => return Err(failed(io::Error::from(errno))),
        };
        // Another process may have put the file in its place, or removed it, before this lock.
        let held = lock.metadata().map_err(failed)?;
        let named = fs::symlink_metadata(&path);
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
            return Err(BackupError::UnderWay(file.to_owned()));
        }
        // A file that was left here keeps the rights that it has.
        lock.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
        lock.set_len(0).map_err(failed)?;
        remove(&path, &BESIDE).map_err(failed)?;
        Ok(Self { path, lock, is_placed: false })
    }

    /// Runs `change`, checks the database and syncs it.
    fn complete(
        &self,
        change: impl FnOnce(&mut Connection) -> rusqlite::Result<()>,
    ) -> Result<BackupContents, BackupError> {
        let failed = |error: rusqlite::Error| open::failed(&self.path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags).map_err(failed)?;
        // The copied log is moved into the file here. One file without a log can be moved and
        // copied by any program. The pages of the check are mapped, because reading them costs more.
        connection
            .execute_batch(&format!(
                "PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE; PRAGMA mmap_size = {}",
                i64::MAX
            ))
            .map_err(failed)?;
        change(&mut connection).map_err(failed)?;
        let finding: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
        if finding != "ok" {
            return Err(OpenError::caused_by(OpenErrorKind::Corrupt, &self.path, finding).into());
        }
        let contents = contents_of(&connection).map_err(failed)?;
        drop(connection);
        self.lock.sync_all().map_err(BackupError::io("write", &self.path))?;
        let bytes = fs::metadata(&self.path).map_or(0, |found| found.len());
        Ok(BackupContents { bytes, ..contents })
    }

    fn put_in_place(mut self, file: &Path, if_exists: IfExists) -> Result<(), BackupError> {
        let renamed = match if_exists {
            IfExists::Replace => fs::rename(&self.path, file),
            IfExists::Refuse => {
                match renameat_with(CWD, &self.path, CWD, file, RenameFlags::NOREPLACE) {
                    // Not every file system has this call. The file was absent a moment ago.
                    Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !file.exists() => {
                        fs::rename(&self.path, file)
                    }
                    renamed => renamed.map_err(io::Error::from),
                }
            }
        };
        match renamed {
            Ok(()) => {
                self.is_placed = true;
                sync_folder(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(BackupError::Exists(file.to_owned()))
            }
            Err(error) => Err(BackupError::io("write", file)(error)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_placed {
            return;
        }
        let _ = remove(&self.path, &BESIDE);
        let _ = fs::remove_file(&self.path);
    }
}

/// The ends of the names of the files that SQLite keeps beside a database.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Removes files beside a database, as far as they exist.
fn remove(database: &Path, suffixes: &[&str]) -> io::Result<()> {
    for suffix in suffixes {
        match fs::remove_file(beside(database, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn sync_folder(file: &Path) -> Result<(), BackupError> {
    let folder = open::folder_of(file);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(BackupError::io("sync the folder", folder))
}

fn contents_of(connection: &Connection) -> rusqlite::Result<BackupContents> {
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let mut n_rows = Vec::new();
    for table in ["projects", "agents", "tasks", "messages"] {
        let n = count(&format!("SELECT COUNT(*) FROM {table}"))?;
        n_rows.push((table, n.unsigned_abs()));
    }
    let n_open = count("SELECT COUNT(*) FROM launches WHERE state <> 'ended'")?;
    let schema = open::version_of(connection)?;
    Ok(BackupContents { bytes: 0, schema, n_rows, n_open_launches: n_open.unsigned_abs() })
}

/// A backup that was copied beside the database that it will replace.
pub struct Restore {
    draft: Draft,
    store: PathBuf,
    origin: Option<Origin>,
}

/// Copies `file` beside the database at `store`, checks the copy and brings its schema up to date.
/// The caller keeps daemons away from the database.
///
/// Blocks, so it is not called on a thread that drives asynchronous tasks.
///
/// # Errors
/// [`BackupError`] names the file, the problem and the remedy. The database is as it was.
pub fn prepare_restore(
    file: &Path,
    store: &Path,
    must_stop: &dyn Fn() -> bool,
) -> Result<Restore, BackupError> {
    if is_same_file(file, store) {
        return Err(BackupError::Same(file.to_owned()));
    }
    if is_of_postgres(file) {
        return Err(BackupError::OfPostgres(file.to_owned()));
    }
    if has_log(file) {
        return Err(BackupError::InUse(file.to_owned()));
    }
    let source = Source::open(file).map_err(no_backup)?;
    let draft = Draft::make(beside(store, ".restoring"), store)?;
    source.copy_to(&draft.path, &draft.lock, must_stop)?;
    let mut origin = None;
    draft
        .complete(|connection| {
            origin = origin_of(connection)?;
            connection.execute_batch(&format!("DROP TABLE IF EXISTS {ORIGIN}"))
        })
        .map_err(damage_is_of(file))
        .map_err(no_backup)?;
    let mut connection =
        Connection::open(&draft.path).map_err(|error| open::failed(file, error))?;
    let migrated = schema::first_missing(&connection)
        .and_then(|first| first.map_or(Ok(()), |first| schema::apply_from(&mut connection, first)));
    migrated.map_err(|error| open::failed(file, error))?;
    drop(connection);
    Ok(Restore { draft, store: store.to_owned(), origin })
}

/// Says of a file that is to be restored why it cannot be, in place of the words for the database
/// of a daemon.
fn no_backup(error: BackupError) -> BackupError {
    let BackupError::Open(error) = error else { return error };
    let problem = match error.kind {
        OpenErrorKind::Missing => "does not exist",
        OpenErrorKind::Empty => "is an empty database",
        OpenErrorKind::Corrupt => "is damaged",
        OpenErrorKind::NotADatabase => "is not an SQLite database",
        OpenErrorKind::Foreign => "is the database of another program",
        _ => return error.into(),
    };
    BackupError::NoBackup { path: error.path, problem, source: error.source }
}

/// Returns whether a file is what pg_dump writes.
fn is_of_postgres(file: &Path) -> bool {
    let mut start = Vec::new();
    let read = regular_file::open(file).and_then(|file| file.take(512).read_to_end(&mut start));
    let text = String::from_utf8_lossy(&start);
    read.is_ok() && (text.starts_with("PGDMP") || text.contains("PostgreSQL database dump"))
}

fn origin_of(connection: &Connection) -> rusqlite::Result<Option<Origin>> {
    if !connection.table_exists(None, ORIGIN)? {
        return Ok(None);
    }
    let sql = format!("SELECT coordinator_id, place, made_at, version FROM {ORIGIN}");
    connection
        .query_row(&sql, [], |row| {
            Ok(Origin {
                coordinator: row.get(0)?,
                place: row.get(1)?,
                made_at: row.get(2)?,
                version: row.get(3)?,
            })
        })
        .optional()
}

impl Restore {
    /// Returns the installation that made the backup; `None` for another copy of a database.
    pub const fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Puts the copy in the place of the database. Launches and clones of the coordinator of the
    /// backup become those of `coordinator`. `now` is in milliseconds since 1970 and names the
    /// database that is replaced.
    ///
    /// # Errors
    /// [`BackupError`]. The database is then as it was, or under the name that the error shows.
    pub fn finish(self, coordinator: Option<&str>, now: i64) -> Result<Restored, BackupError> {
        let Self { draft, store, origin } = self;
        let replaced = Replaced::look_at(&store);
        let former = origin.and_then(|origin| origin.coordinator);
        let mut continued = Vec::new();
        let contents = draft.complete(|connection| {
            let tx = connection.transaction()?;
            if let Some((former, coordinator)) = former.as_deref().zip(coordinator) {
                for sql in [
                    "UPDATE launches SET coordinator_id = ?2 \
                     WHERE coordinator_id = ?1 AND state <> 'ended'",
                    "UPDATE workspaces SET coordinator_id = ?2 WHERE coordinator_id = ?1",
                ] {
                    tx.execute(sql, (former, coordinator))?;
                }
            }
            continued = replaced.continue_numbers(&tx)?;
            tx.commit()
        })?;
        let aside = set_aside(&store, now)?;
        draft.put_in_place(&store, IfExists::Replace)?;
        Ok(Restored { contents, replaced: aside, continued })
    }
}

/// The numbers that a database has given, as far as they are known.
#[derive(Default)]
struct Replaced {
    /// The project and the next number of each key.
    keys: BTreeMap<String, (String, i64)>,
    /// The last number of each table that the database numbers.
    numbers: BTreeMap<String, i64>,
}

impl Replaced {
    /// Reads the database that will be replaced. A database that is damaged or missing has nothing
    /// to say.
    fn look_at(store: &Path) -> Self {
        let read = || -> Result<Self, BackupError> {
            let connection = source::connect(store)?;
            let failed = |error: rusqlite::Error| open::failed(store, error);
            let mut found = Self::default();
            let sql = "SELECT key, project_id, next_number FROM project_keys";
            let mut statement = connection.prepare(sql).map_err(failed)?;
            let keys = statement
                .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
                .map_err(failed)?;
            found.keys = keys.collect::<Result<_, _>>().map_err(failed)?;
            let mut statement =
                connection.prepare("SELECT name, seq FROM sqlite_sequence").map_err(failed)?;
            let numbers =
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
            found.numbers = numbers.collect::<Result<_, _>>().map_err(failed)?;
            Ok(found)
        };
        read().unwrap_or_default()
    }

    /// Lets the restored database go on with numbers that neither database has given.
    fn continue_numbers(&self, restored: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
        let mut continued = Vec::new();
        let mut statement = restored.prepare("SELECT key, next_number FROM project_keys")?;
        let keys: BTreeMap<String, i64> = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (key, next) in &keys {
            let known = self.keys.get(key).map(|(_, next)| *next);
            let goes_on = known.map_or(next + SHORT_IDS_LEFT_OUT, |known| known.max(*next));
            if goes_on != *next {
                let sql = "UPDATE project_keys SET next_number = ?2 WHERE key = ?1";
                restored.execute(sql, (key, goes_on))?;
                continued.push((key.clone(), goes_on));
            }
        }
        // A key that was given after the backup never gives its numbers again.
        for (key, (project, next)) in self.keys.iter().filter(|(key, _)| !keys.contains_key(*key)) {
            let sql = "INSERT INTO project_keys (key, project_id, next_number) VALUES (?1, ?2, ?3)";
            restored.execute(sql, (key, project, next))?;
        }
        let mut statement = restored.prepare("SELECT name, seq FROM sqlite_sequence")?;
        let numbers: BTreeMap<String, i64> = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (table, last) in numbers {
            let known = self.numbers.get(&table);
            let goes_on = known.map_or(last + NUMBERS_LEFT_OUT, |known| last.max(*known));
            let sql = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1";
            restored.execute(sql, (table, goes_on))?;
        }
        Ok(continued)
    }
}

/// Gives the database another name in addition, so that a restored one can take its place at once.
/// Its log goes along, because a log damages any other database.
fn set_aside(store: &Path, now: i64) -> Result<Option<PathBuf>, BackupError> {
    if !store.exists() {
        return Ok(None);
    }
    let aside = beside(store, &format!(".replaced-{now}"));
    // A database that is damaged keeps its log.
    if let Ok(connection) = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_WRITE) {
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    match fs::rename(beside(store, "-wal"), beside(&aside, "-wal")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(BackupError::io("set aside the log of", store)(error));
        }
        _ => {}
    }
    let _ = fs::remove_file(beside(store, "-shm"));
    fs::hard_link(store, &aside)
        .or_else(|_| fs::rename(store, &aside))
        .map_err(BackupError::io("set aside", store))?;
    Ok(Some(aside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { coordinator: None, place: String::new(), made_at: 0, version: String::new() }
    }

    #[test]
    fn a_backup_that_is_interrupted_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        drop(open::file(&store, open::Settings::default()).unwrap());
        let origin = origin();
        let file = folder.path().join("saved.db");
        let stopped = back_up(&store, &file, IfExists::Refuse, &origin, &|| true);
        assert!(matches!(stopped, Err(BackupError::Interrupted)), "{stopped:?}");
        let names = fs::read_dir(folder.path()).unwrap();
        let names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.iter().all(|name| !name.starts_with("saved.db")), "{names:?}");
        back_up(&store, &file, IfExists::Refuse, &origin, &|| false).unwrap();
        let restored = folder.path().join("restored.db");
        let prepared = prepare_restore(&file, &restored, &|| false).unwrap();
        assert_eq!(prepared.origin(), Some(&origin));
        prepared.finish(None, 0).unwrap();
        drop(open::file(&restored, open::Settings::default()).unwrap());
    }

    #[test]
    fn a_target_with_a_log_that_would_count_as_its_own_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        drop(open::file(&store, open::Settings::default()).unwrap());
        let origin = origin();
        let file = folder.path().join("saved.db");
        for suffix in ["-wal", "-journal"] {
            let log = beside(&file, suffix);
            fs::write(&log, "stale").unwrap();
            let refused = back_up(&store, &file, IfExists::Replace, &origin, &|| false);
            assert!(matches!(refused, Err(BackupError::InUse(_))), "{suffix}: {refused:?}");
            assert!(!file.exists());
            fs::remove_file(log).unwrap();
        }
        back_up(&store, &file, IfExists::Replace, &origin, &|| false).unwrap();
    }

    #[test]
    fn two_backups_to_one_file_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("saved.db");
        let _first = Draft::make(beside(&file, ".partial"), &file).unwrap();
        let second = Draft::make(beside(&file, ".partial"), &file);
        assert!(matches!(second, Err(BackupError::UnderWay(_))));
    }
}
