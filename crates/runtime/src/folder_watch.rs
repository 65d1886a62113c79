//! Watches folders and files for changes. The daemon sees the files that a shim writes at once,
//! without cost while nothing happens.

pub mod shared;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use machine::sys::folders::WatchId;
use machine::sys::folders::Watcher;

/// The watched folders. Clones share them.
#[derive(Clone)]
pub struct Folders(Arc<AsyncFd<Watcher>>);

/// The changes since the last look.
pub enum FolderChanges {
    /// There was a change in these folders and files. A folder may be named more than once.
    Folders(Vec<WatchId>),
    /// There were too many changes, so that any folder may have changed.
    Anything,
}

impl Folders {
    /// Makes a watcher. Must be called within a tokio runtime.
    #[allow(unsafe_code, reason = "the runtime takes a descriptor that its owner keeps open")]
    pub fn new() -> io::Result<Self> {
        // SAFETY: a watcher owns its descriptor, which stays open and the same for the watcher's
        // whole life.
        let registered =
            unsafe { AsyncFd::register_with_interest(Watcher::new()?, Interest::READABLE) };
        Ok(Self(Arc::new(registered.map_err(io::Error::from)?)))
    }

    /// Watches `dir` for files that are replaced by renaming. It does not see earlier changes, so
    /// read the folder once afterwards.
    pub fn watch_records(&self, dir: &Path) -> io::Result<WatchId> {
        self.0.get_ref().watch_records(dir)
    }

    /// Watches `dir` for files that grow, appear or are replaced, and for the removal of the folder
    /// itself. It does not see earlier changes.
    pub fn watch_all(&self, dir: &Path) -> io::Result<WatchId> {
        self.0.get_ref().watch_all(dir)
    }

    /// Watches `dir` for files that were written, appear, are replaced or disappear, for a caller
    /// that waits until one is complete. It does not see earlier changes.
    pub fn watch_files(&self, dir: &Path) -> io::Result<WatchId> {
        self.0.get_ref().watch_files(dir)
    }

    /// Watches an open file that grows. It does not see earlier changes. The kernel may give the
    /// second watch of a file the id of the first.
    pub fn watch_file(&self, file: &File) -> io::Result<WatchId> {
        self.0.get_ref().watch_file(file)
    }

    /// Ends the watch of a folder. A removed folder is not watched any more in any case.
    pub fn unwatch(&self, id: WatchId) {
        self.0.get_ref().unwatch(id);
    }

    /// Waits until something happens. Cancel-safe: an event is only taken by the call that returns
    /// it.
    pub async fn seen(&self) -> io::Result<FolderChanges> {
        loop {
            let mut ready = self.0.readable().await?;
            let news = match self.0.get_ref().news() {
                Ok(news) => news,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    continue;
                }
                Err(error) => return Err(error),
            };
            return Ok(news
                .into_iter()
                .collect::<Option<_>>()
                .map_or(FolderChanges::Anything, FolderChanges::Folders));
        }
    }
}
