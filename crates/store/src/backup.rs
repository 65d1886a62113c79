//! Copies an SQLite database into one file while a daemon uses it, and puts such a file in the place
//! of a database that no daemon uses.
//!
//! ```text
//!  database: one state ──pages──► <file>.partial: checked, synced ──rename──► <file>
//!  <file> ──pages──► <database>.restoring: checked, migrated, counters ──rename──► <database>
//! ```
//!
//! If a backup or a restore ends early, the file with the final name is whole or does not exist.
//! The database that a restore replaces stays under another name.

mod restore;
mod source;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

pub use self::restore::{Restore, Restored, prepare_restore};
use super::db::BoxError;
use super::open::{self, OpenError, OpenErrorKind, beside};
use machine::sys::draft;
pub use machine::sys::draft::IfExists;

/// The table with the origin of a backup. The restored database does not have it.
pub(super) const ORIGIN: &str = "backup_origin";
/// The statement that makes this table. It is never edited, because the schema of a backup is
/// compared with it.
pub(super) const ORIGIN_TABLE: &str = "CREATE TABLE backup_origin (coordinator_id TEXT, \
    place TEXT NOT NULL, made_at BIGINT NOT NULL, version TEXT NOT NULL)";

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
    /// The object of the schema because of which a restore would refuse the backup.
    pub difference: Option<String>,
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
/// one state of the database, and it was checked. `must_stop` is asked before each part of 1 MiB.
///
/// Blocks, so it is not called on a thread that drives asynchronous tasks.
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
    let draft = Draft::make(&beside(file, ".partial"), file)?;
    let connection = source::connect(store)?;
    let difference = source::difference(&connection);
    source::copy(&connection, store, &draft, must_stop)?;
    // The log of the database can shrink again.
    drop(connection);
    let contents = draft.complete(|connection| {
        connection.execute_batch(ORIGIN_TABLE)?;
        let Origin { coordinator, place, made_at, version } = origin;
        let sql = format!("INSERT INTO {ORIGIN} VALUES (?1, ?2, ?3, ?4)");
        connection.execute(&sql, (coordinator, place, made_at, version)).map(drop)
    });
    let contents = contents.map_err(damage_is_of(store))?;
    draft.put_in_place(file, if_exists)?;
    Ok(BackupContents { difference, ..contents })
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
/// It is closed after SQLite's last use, because that ends all locks of this process on the file.
struct Draft(draft::Draft);

impl Draft {
    /// Makes a private file beside the final one. The file of an interrupted process is replaced.
    fn make(path: &Path, file: &Path) -> Result<Self, BackupError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::WouldBlock => BackupError::UnderWay(file.to_owned()),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                BackupError::Io { action: "write to the folder of", path: file.to_owned(), source }
            }
            _ => BackupError::Io { action: "write", path: path.to_owned(), source },
        };
        let draft = draft::Draft::make(path).map_err(failed)?;
        remove(path, &BESIDE).map_err(failed)?;
        Ok(Self(draft))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `change`, checks the database and syncs it.
    fn complete(
        &self,
        change: impl FnOnce(&mut Connection) -> rusqlite::Result<()>,
    ) -> Result<BackupContents, BackupError> {
        let failed = |error: rusqlite::Error| open::failed(self.path(), error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(self.path(), flags).map_err(failed)?;
        // One file without a log can be moved and copied by any program.
        connection
            .execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE")
            .map_err(failed)?;
        change(&mut connection).map_err(failed)?;
        let finding: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
        if finding != "ok" {
            return Err(OpenError::caused_by(OpenErrorKind::Corrupt, self.path(), finding).into());
        }
        let contents = contents_of(&connection).map_err(failed)?;
        drop(connection);
        self.0.file().sync_all().map_err(BackupError::io("write", self.path()))?;
        let bytes = fs::metadata(self.path()).map_or(0, |found| found.len());
        Ok(BackupContents { bytes, ..contents })
    }

    fn put_in_place(mut self, file: &Path, if_exists: IfExists) -> Result<(), BackupError> {
        self.0.put_in_place(file, if_exists).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
            _ => BackupError::io("write", file)(error),
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.0.is_placed() {
            let _ = remove(self.path(), &BESIDE);
        }
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

fn contents_of(connection: &Connection) -> rusqlite::Result<BackupContents> {
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let mut n_rows = Vec::new();
    for table in ["projects", "agents", "tasks", "messages"] {
        let n = count(&format!("SELECT COUNT(*) FROM {table}"))?;
        n_rows.push((table, n.unsigned_abs()));
    }
    let n_open = count("SELECT COUNT(*) FROM launches WHERE state <> 'ended'")?;
    let schema = open::version_of(connection)?;
    let n_open_launches = n_open.unsigned_abs();
    Ok(BackupContents { bytes: 0, schema, n_rows, n_open_launches, difference: None })
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
    fn a_database_that_is_replaced_during_its_backup_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        drop(open::file(&store, open::Settings::default()).unwrap());
        let file = folder.path().join("saved.db");
        let replace = || {
            fs::rename(&store, beside(&store, ".former")).unwrap();
            fs::write(&store, "another").unwrap();
            false
        };
        let refused = back_up(&store, &file, IfExists::Refuse, &origin(), &replace).unwrap_err();
        assert!(matches!(&refused, BackupError::Io { action: "copy", .. }), "{refused:?}");
        let cause = std::error::Error::source(&refused).unwrap().to_string();
        assert!(cause.contains("was replaced by another one"), "{cause}");
        assert!(cause.ends_with("; begin again"), "{cause}");
        assert!(!file.exists() && !beside(&file, ".partial").exists());
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
        let _first = Draft::make(&beside(&file, ".partial"), &file).unwrap();
        let second = Draft::make(&beside(&file, ".partial"), &file);
        assert!(matches!(second, Err(BackupError::UnderWay(_))));
    }
}
