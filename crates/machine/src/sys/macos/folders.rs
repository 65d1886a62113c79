//! Watches folders, by a queue that watches the vnodes of folders. If the growth of files matters,
//! it also watches the files in them. Single files can be watched, too.
//!
//! It uses one descriptor for each folder and each such file. A new file is watched from the event
//! of its creation on, before that event is returned.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use nix::libc;

use super::queue::{Queue, Wanted};

use crate::locks::lock;

/// The largest number of files of a folder that are watched.
const MOST_FILES: usize = 256;

/// The watched folder or file that an event is about.
pub type WatchId = usize;

/// A set of watched folders. Its descriptor is readable when there is news.
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
    /// The files that are watched with it; `None` if only files that appear or disappear matter.
    files: Option<Vec<File>>,
}

impl Watcher {
    pub fn new() -> io::Result<Self> {
        Ok(Self { queue: Queue::new()?, watched: Mutex::default() })
    }

    /// Watches `dir` for files that appear, disappear, or are replaced by renaming.
    pub fn watch_records(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, None)
    }

    /// Watches `dir` for files that grow, appear or are replaced, and for the end of the folder
    /// itself.
    pub fn watch_all(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, Some(Vec::new()))
    }

    /// Watches `dir` for files that are written, appear, are replaced or disappear.
    pub fn watch_files(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, Some(Vec::new()))
    }

    /// Watches an open file that grows.
    pub fn watch_file(&self, file: &File) -> io::Result<WatchId> {
        self.add(file.try_clone()?, Path::new(""), None)
    }

    fn watch(&self, dir: &Path, files: Option<Vec<File>>) -> io::Result<WatchId> {
        self.add(open(dir, libc::O_DIRECTORY)?, dir, files)
    }

    fn add(&self, itself: File, path: &Path, files: Option<Vec<File>>) -> io::Result<WatchId> {
        let mut watched = self.watched();
        watched.n_given += 1;
        let id = watched.n_given;
        self.listen_to(&itself, id)?;
        let mut folder = Folder { path: path.to_owned(), itself, files };
        self.listen_to_files(&mut folder, id);
        watched.folders.insert(id, folder);
        Ok(id)
    }

    /// Stops watching a folder. A folder that is gone is no longer watched in any case.
    pub fn unwatch(&self, id: WatchId) {
        // Closing the files removes them from the queue.
        self.watched().folders.remove(&id);
    }

    /// Returns the folders with news, one entry per event. No entry is `None`.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there is no news.
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

    /// Listens to the present files, up to [`MOST_FILES`]. A file that cannot be opened is missed
    /// until the folder changes again.
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
        lock(&self.watched)
    }
}

/// Opens a file only to watch it: this does not keep a disk from being unmounted.
fn open(path: &Path, flags: libc::c_int) -> io::Result<File> {
    // The library requests reading; the flag for events only cancels that.
    OpenOptions::new().read(true).custom_flags(libc::O_EVTONLY | flags).open(path)
}

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_raw_fd()
    }
}
