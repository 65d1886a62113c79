//! News of folders, by a queue that watches the vnodes of folders and, where it matters that files grow, of the files in them.
//!
//! One descriptor for each folder and each such file. A file that comes is watched from the news of its coming on, before anybody is
//! told of it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::libc;

use super::queue::{Queue, Wanted};

/// So many files of a folder are watched at most.
const MOST_FILES: usize = 256;

/// Which folder an event is about.
pub type WatchId = usize;

/// Folders that are watched. Its descriptor is readable when there is news.
pub struct Watcher {
    queue: Queue,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    n_given: WatchId,
    folders: BTreeMap<WatchId, Folder>,
}

struct Folder {
    path: PathBuf,
    itself: File,
    /// Watched with it; `None` where only what comes and goes is of interest.
    files: Option<Vec<File>>,
}

impl Watcher {
    pub fn new() -> io::Result<Self> {
        Ok(Self { queue: Queue::new()?, watched: Mutex::default() })
    }

    /// Files of `dir` come, go, or are replaced by renaming.
    pub fn watch_records(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, None)
    }

    /// Files of `dir` grow, come, are replaced, or the folder itself goes.
    pub fn watch_all(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, Some(Vec::new()))
    }

    /// Files of `dir` are written, come, are replaced or go.
    pub fn watch_files(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, Some(Vec::new()))
    }

    fn watch(&self, dir: &Path, files: Option<Vec<File>>) -> io::Result<WatchId> {
        let itself = open(dir, libc::O_DIRECTORY)?;
        let mut watched = self.watched();
        watched.n_given += 1;
        let id = watched.n_given;
        self.listen_to(&itself, id)?;
        let mut folder = Folder { path: dir.to_owned(), itself, files };
        self.listen_to_files(&mut folder, id);
        watched.folders.insert(id, folder);
        Ok(id)
    }

    /// A folder that is gone is not watched any more in any case.
    pub fn unwatch(&self, id: WatchId) {
        // Closed, they are out of the queue.
        self.watched().folders.remove(&id);
    }

    /// The folders that there is news of, each as often as there is some; never `None`.
    ///
    /// # Errors
    /// `WouldBlock` when there is no news.
    pub fn news(&self) -> io::Result<Vec<Option<WatchId>>> {
        let events = self.queue.take()?;
        if events.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut watched = self.watched();
        for (ident, _, id) in &events {
            let folder = watched.folders.get_mut(id);
            let is_folder =
                |folder: &&mut Folder| usize::try_from(folder.itself.as_raw_fd()) == Ok(*ident);
            if let Some(folder) = folder.filter(is_folder) {
                self.listen_to_files(folder, *id);
            }
        }
        Ok(events.into_iter().map(|(_, _, id)| Some(id)).collect())
    }

    /// To those that are there now, up to [`MOST_FILES`]. One that can't be opened is missed until the folder changes again.
    fn listen_to_files(&self, folder: &mut Folder, id: WatchId) {
        let Some(files) = &mut folder.files else {
            return;
        };
        let entries = std::fs::read_dir(&folder.path).into_iter().flatten().flatten();
        let names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let opened = names.filter_map(|entry| open(&entry.path(), libc::O_NOFOLLOW).ok());
        *files = opened.take(MOST_FILES).collect();
        for file in files {
            let _ = self.listen_to(file, id);
        }
    }

    fn listen_to(&self, file: &File, id: WatchId) -> io::Result<()> {
        self.queue.change(Wanted {
            ident: usize::try_from(file.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: libc::EVFILT_VNODE,
            flags: libc::EV_ADD | libc::EV_CLEAR,
            notes: libc::NOTE_WRITE | libc::NOTE_EXTEND | libc::NOTE_DELETE | libc::NOTE_RENAME,
            data: 0,
            tag: id,
        })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To be watched only: it keeps no disk from being unmounted.
fn open(path: &Path, flags: libc::c_int) -> io::Result<File> {
    // The library asks for reading; the flag for events only makes nothing of that.
    OpenOptions::new().read(true).custom_flags(libc::O_EVTONLY | flags).open(path)
}

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_raw_fd()
    }
}
