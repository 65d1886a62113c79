//! Puts a backup in the place of a database that no daemon uses.
//!
//! The restored database goes on with numbers that neither it nor the replaced one has given.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::{
    BackupContents, BackupError, Draft, IfExists, ORIGIN, Origin, damage_is_of, has_log,
    is_same_file, source,
};
use crate::open::{self, OpenErrorKind, beside};
use crate::{schema, sqlite};
use machine::sys::regular_file;

/// The short ids of a project that are left out if it is not known how many were given after the
/// backup.
const SHORT_IDS_LEFT_OUT: i64 = 100;
/// The numbers of events and messages that are left out for the same reason.
const NUMBERS_LEFT_OUT: i64 = 1_000_000;

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
    let connection = source::connect(file).map_err(no_backup)?;
    let draft = Draft::make(&beside(store, ".restoring"), store)?;
    source::copy(&connection, file, &draft, must_stop)?;
    drop(connection);
    check_schema(draft.path(), file).map_err(no_backup)?;
    let mut origin = None;
    draft
        .complete(|connection| {
            origin = origin_of(connection)?;
            connection.execute_batch(&format!("DROP TABLE IF EXISTS {ORIGIN}"))
        })
        .map_err(damage_is_of(file))
        .map_err(no_backup)?;
    let mut connection =
        Connection::open(draft.path()).map_err(|error| open::failed(file, error))?;
    let migrated = schema::first_missing(&connection)
        .and_then(|first| first.map_or(Ok(()), |first| schema::apply(&mut connection, first..)));
    migrated.map_err(|error| open::failed(file, error))?;
    drop(connection);
    Ok(Restore { draft, store: store.to_owned(), origin })
}

/// Refuses the copy of `file` if its schema is not ours. A trigger or a view of another person
/// would change what the daemon writes.
fn check_schema(copy: &Path, file: &Path) -> Result<(), BackupError> {
    let connection = Connection::open(copy).map_err(|error| open::failed(file, error))?;
    sqlite::distrust_schema(&connection).map_err(|error| open::failed(file, error))?;
    Ok(open::check_schema(&connection, file)?)
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
        OpenErrorKind::OtherSchema => "has another schema than this program made",
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
