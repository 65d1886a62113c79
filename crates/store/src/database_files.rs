//! Notices that the files of a database were deleted or replaced while it is in use.
//!
//! SQLite continues with the files that it has open. Later writes would be lost with the process,
//! and a log that stays beside another database damages that one. The store therefore writes
//! nothing until the files are back.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::db::DbError;

/// The identity of a file under any name: its device, and its number there.
type FileId = (u64, u64);

/// A database file and its log, with their identities from the time when they were opened.
#[derive(Debug)]
pub(super) struct DatabaseFiles {
    database: File,
    log: File,
    /// The error about files that are not in their place was logged.
    is_reported: AtomicBool,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    opened: OnceLock<FileId>,
}

/// An accident of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Missing {
    #[error("the database file was deleted or moved while it is in use")]
    Deleted,
    #[error("the database file was replaced by another one while it is in use")]
    Replaced,
    #[error("the log of the database (`-wal`) was deleted or replaced while it is in use")]
    Log,
}

impl Missing {
    const fn remedy(self) -> &'static str {
        match self {
            Self::Deleted => "put the file back; or put a copy of it there, and restart the daemon",
            Self::Replaced => "put the former file back; or restart the daemon to use this one",
            Self::Log => "restart the daemon: nothing is lost",
        }
    }
}

impl File {
    /// Returns the file that has this name now.
    fn find(&self) -> io::Result<Option<FileId>> {
        match std::fs::metadata(&self.path) {
            Ok(found) => Ok(Some((found.dev(), found.ino()))),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl DatabaseFiles {
    /// Returns the place of the open database at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let file = |path: PathBuf| File { path, opened: OnceLock::new() };
        let place = Self {
            database: file(path.to_owned()),
            log: file(log.into()),
            is_reported: AtomicBool::new(false),
        };
        if let Ok(Some(found)) = place.database.find() {
            place.database.opened.get_or_init(|| found);
        }
        place
    }

    /// Returns what happened to the files, or `None` if they are in their place.
    pub(super) fn missing(&self) -> Option<Missing> {
        let opened = self.database.opened.get()?;
        match self.database.find() {
            Ok(None) => return Some(Missing::Deleted),
            Ok(Some(found)) if found != *opened => return Some(Missing::Replaced),
            // A failure of the check is no reason to stop.
            Ok(Some(_)) | Err(_) => {}
        }
        // The log is created when a connection first reads, and stays as long as one is open.
        match (self.log.find(), self.log.opened.get()) {
            (Ok(Some(found)), _) if found != *self.log.opened.get_or_init(|| found) => {
                Some(Missing::Log)
            }
            (Ok(None), Some(_)) => Some(Missing::Log),
            _ => None,
        }
    }

    /// Returns an error while the files are not in their place. It logs once that they are gone,
    /// and once that they are back. It calls `save` when they have just gone.
    pub(super) fn check(&self, save: impl FnOnce()) -> Result<(), DbError> {
        let missing = self.missing();
        let was_reported = self.is_reported.swap(missing.is_some(), Ordering::Relaxed);
        let database = self.database.path.display();
        match missing {
            None if was_reported => {
                tracing::info!(%database, "the database is in its place again");
                Ok(())
            }
            None => Ok(()),
            Some(missing) => {
                if !was_reported {
                    save();
                    tracing::error!(
                        %database, error = %missing, remedy = missing.remedy(),
                        "the database is not in its place: nothing is written and no agent starts; running agents go on"
                    );
                }
                Err(DbError::Database(missing.into()))
            }
        }
    }
}
