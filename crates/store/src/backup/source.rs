//! The database that a backup or a restore copies, page by page, with SQLite's own backup.
//!
//! A read transaction is open meanwhile, so the copy is one state of the database. Writers go on and
//! add to the log. Without the transaction, SQLite would begin again after each of their commits.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, ffi};

use super::{BackupError, Draft};
use crate::database_files::DatabaseFiles;
use crate::open::{self, Contents, OpenError, OpenErrorKind};
use crate::schema;
use crate::sqlite::Access;
use runtime::clock;

/// The pages that are copied between two looks at the request to stop: 1 MiB. What SQLite has
/// written by then is synced before it goes on, because the daemon's own writes wait behind it.
const N_PAGES: i32 = 256;
/// The disk rests after each part for the time that the part took, divided by this.
const REST_DIVISOR: u32 = 3;

/// SQLite's codes for a problem of the database that is read. Others are about the copy.
const CODES_OF_SOURCE: [i32; 4] =
    [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_CORRUPTFS];

/// Opens a database to read it. The connection cannot write.
pub(super) fn connect(path: &Path) -> Result<Connection, BackupError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(BackupError::NotAFile(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::new(OpenErrorKind::Missing, path).into());
        }
        Err(error) => return Err(open::failed(path, error).into()),
    }
    let connection =
        open::connect(&open::options(path, open::settings_of_copy(), Access::ReadOnly))?;
    if open::check(&connection, path)? == Contents::Nothing {
        return Err(OpenError::new(OpenErrorKind::Empty, path).into());
    }
    Ok(connection)
}

/// Returns the first object of the schema that is not ours, if there is one, or why that cannot be
/// said.
pub(super) fn difference(source: &Connection) -> Option<String> {
    match schema::first_difference(source) {
        Ok(found) => found.map(|difference| difference.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Copies the database at `path`, which `source` has open, into an empty draft. The state that is
/// copied is kept until `source` is closed.
///
/// # Errors
/// [`BackupError`] names the file that failed. A database that was deleted or replaced meanwhile,
/// for example by a restore, is refused, because nothing protects its log.
#[allow(clippy::disallowed_methods, reason = "the thread of a backup may block")]
pub(super) fn copy(
    source: &Connection,
    path: &Path,
    draft: &Draft,
    must_stop: &dyn Fn() -> bool,
) -> Result<(), BackupError> {
    let of_source = |error: rusqlite::Error| open::failed(path, error);
    let of_draft = |error: rusqlite::Error| open::failed(draft.path(), error);
    // The transaction begins with the first read.
    source.execute_batch("BEGIN").map_err(of_source)?;
    source.query_row("SELECT COUNT(*) FROM sqlite_master", [], |_| Ok(())).map_err(of_source)?;
    // SQLite keeps the log beside the file that a link leads to.
    let real = fs::canonicalize(path).map_err(|error| open::failed(path, error))?;
    let files = DatabaseFiles::of(&real);
    let check_place = || match files.missing() {
        None => Ok(()),
        Some(missing) => {
            let cause = format!("{missing}; begin again");
            Err(BackupError::io("copy", path)(io::Error::other(cause)))
        }
    };
    check_place()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(draft.path(), flags).map_err(of_draft)?;
    // A copy that fails is thrown away, so it needs no journal. Its parts are synced below.
    target
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        .map_err(of_draft)?;
    let failed = |error: rusqlite::Error| {
        let code = error.sqlite_error().map(|error| error.extended_code);
        match code {
            Some(code) if CODES_OF_SOURCE.contains(&code) => BackupError::Open(of_source(error)),
            Some(ffi::SQLITE_FULL) => BackupError::Open(of_draft(error)),
            _ => BackupError::io("write", draft.path())(io::Error::other(error)),
        }
    };
    let pages = Backup::new(source, &mut target).map_err(of_draft)?;
    loop {
        if must_stop() {
            return Err(BackupError::Interrupted);
        }
        let began_at = clock::unpaused();
        match pages.step(N_PAGES).map_err(failed)? {
            StepResult::Done => return check_place(),
            StepResult::More => {}
            // SQLite has already waited for the other process.
            _ => return Err(OpenError::new(OpenErrorKind::Locked, draft.path()).into()),
        }
        draft.0.file().sync_data().map_err(|error| open::failed(draft.path(), error))?;
        thread::sleep(began_at.elapsed() / REST_DIVISOR);
    }
}
