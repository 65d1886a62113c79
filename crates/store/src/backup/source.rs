//! The database that a backup or a restore copies.
//!
//! The bytes of its file and of its log are copied, because that is several times as fast as a copy
//! of each page by SQLite. A read transaction is open meanwhile, which makes the copy one state of
//! the database:
//!
//! - If the log has parts that are not in the file yet, SQLite moves only those into the file that
//!   this read can see. All these parts stay in the log until the read ends. So each page that
//!   changes in the file during the copy is also in the copy of the log.
//! - If the log has no such part, SQLite moves nothing into the file until the read ends. The file
//!   alone is then the state of the read. A writer may begin such a log anew, which changes its
//!   header. The copy of a log whose header changed is a mixture, so it is left out.
//!
//! Writers add to the log meanwhile. SQLite reads a log as far as its checksums are right, up to
//! the last complete transaction. So the copy has the state of the read, perhaps with later
//! transactions. A database without a log is not written while it is read.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;

use rusqlite::Connection;

use super::BackupError;
use crate::open::{self, Contents, OpenError, OpenErrorKind, beside};
use crate::schema;
use crate::sqlite::Access;
use machine::sys::{files, regular_file};
use runtime::clock;

/// The bytes that are copied between two looks at the request to stop, and the most that wait for
/// the disk beside those that are copied. The daemon's own writes wait behind them.
const CHUNK: u64 = 512 << 10;
/// The disk rests after each part for the time that the part took, divided by this.
const REST_DIVISOR: u32 = 3;
/// The length of the header of a log, which contains the salts of its frames.
const LOG_HEADER: usize = 32;

/// A database that is kept from losing the state that is copied.
pub(super) struct Source {
    path: PathBuf,
    /// It is in a read transaction.
    connection: Connection,
    /// It is closed after the connection, because that ends all locks of this process on the file.
    file: File,
    /// The log, if there was one when the transaction began.
    log: Option<File>,
}

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

impl Source {
    /// Begins to keep the state of the database at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let connection = connect(path)?;
        let failed = |error| open::failed(path, error);
        // SQLite keeps the log beside the file that a link leads to.
        let path = fs::canonicalize(path).map_err(|error| open::failed(path, error))?;
        let file = File::open(&path).map_err(|error| open::failed(&path, error))?;
        // The transaction begins with the first read.
        connection.execute_batch("BEGIN").map_err(failed)?;
        let sql = "SELECT COUNT(*) FROM sqlite_master";
        connection.query_row(sql, [], |_| Ok(())).map_err(failed)?;
        let log = match File::open(beside(&path, "-wal")) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(open::failed(&path, error).into()),
        };
        Ok(Self { path, connection, file, log })
    }

    /// Returns the first object of the schema that is not ours, if there is one, or why that cannot
    /// be said.
    pub(super) fn difference(&self) -> Option<String> {
        match schema::first_difference(&self.connection) {
            Ok(found) => found.map(|difference| difference.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Copies the database into the empty file `to`, which is at `path`, and the log beside it.
    pub(super) fn copy_to(
        self,
        path: &Path,
        to: &File,
        must_stop: &dyn Fn() -> bool,
    ) -> Result<(), BackupError> {
        copy(&self.file, &self.path, to, path, must_stop)?;
        if let Some(log) = &self.log {
            let path = beside(path, "-wal");
            let failed = |error| open::failed(&path, error);
            let to = regular_file::make_anew(&path).map_err(failed)?;
            let header = header_of(log);
            copy(log, &beside(&self.path, "-wal"), &to, &path, must_stop)?;
            if header_of(log) != header {
                to.set_len(0).map_err(failed)?;
            }
        }
        self.check_place()?;
        // The state was kept until here.
        drop(self.connection);
        Ok(())
    }

    /// Refuses a database that was put in the place of the one that was copied, for example by a
    /// restore. Its log may have been copied beside the other file.
    fn check_place(&self) -> Result<(), BackupError> {
        let id = |found: fs::Metadata| (found.dev(), found.ino());
        let is_there = |path: &Path, file: &File| {
            let named = fs::metadata(path).map(id);
            named.is_ok_and(|named| file.metadata().is_ok_and(|open| id(open) == named))
        };
        let log = beside(&self.path, "-wal");
        if is_there(&self.path, &self.file)
            && self.log.as_ref().is_none_or(|file| is_there(&log, file))
        {
            return Ok(());
        }
        Err(BackupError::Io {
            action: "copy",
            path: self.path.clone(),
            source: io::Error::other("it was replaced meanwhile: begin again"),
        })
    }
}

/// Returns the header of a log; `None` if it is empty.
fn header_of(log: &File) -> Option<[u8; LOG_HEADER]> {
    let mut header = [0; LOG_HEADER];
    log.read_exact_at(&mut header, 0).ok().map(|()| header)
}

/// Copies the bytes that the file `from` at `source` has now into the empty file `to` at `path`.
/// Each part is on its way to the disk while the next one is copied, and is there before another
/// one follows. A long queue of writes would keep the daemon from syncing its own, and so would a
/// disk that never rests.
#[allow(clippy::disallowed_methods, reason = "the thread of a backup may block")]
fn copy(
    from: &File,
    source: &Path,
    to: &File,
    path: &Path,
    must_stop: &dyn Fn() -> bool,
) -> Result<(), BackupError> {
    let size = from.metadata().map_err(|error| open::failed(source, error))?.len();
    let mut copied = 0;
    let mut under_way = None;
    while copied < size {
        if must_stop() {
            return Err(BackupError::Interrupted);
        }
        let began_at = clock::unpaused();
        let mut part = from.take(CHUNK.min(size - copied));
        let n = io::copy(&mut part, &mut &*to).map_err(|error| {
            // The kernel copies, and does not say which of the two files failed.
            let is_of_source = (&*from).read(&mut [0]).is_err();
            open::failed(if is_of_source { source } else { path }, error)
        })?;
        if n == 0 {
            break;
        }
        files::begin_to_write(to, copied, n);
        if let Some((offset, length)) = under_way.replace((copied, n)) {
            files::finish_to_write(to, offset, length);
        }
        copied += n;
        thread::sleep(began_at.elapsed() / REST_DIVISOR);
    }
    Ok(())
}
