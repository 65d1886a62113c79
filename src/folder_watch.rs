//! Hears what happens in folders: what a keeper writes is seen at once, and costs nothing while nothing happens.

pub mod shared;

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use crate::sys::folders::WatchId;
use crate::sys::folders::Watcher;

/// The watched folders; clones are the same ones.
#[derive(Clone)]
pub struct Folders(Arc<AsyncFd<Watcher>>);

/// What happened since the last look.
pub enum Seen {
    /// In these folders a file was replaced; a folder may be named more than once.
    Folders(Vec<WatchId>),
    /// Too much: anything may have happened anywhere.
    Anything,
}

impl Folders {
    /// Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a watcher owns its descriptor, which is open and the same for as long as it lives.
        let registered =
            unsafe { AsyncFd::register_with_interest(Watcher::new()?, Interest::READABLE) };
        Ok(Self(Arc::new(registered.map_err(io::Error::from)?)))
    }

    /// Hears that files of `dir` are replaced by renaming. What happened before this is not seen: read the folder once
    /// afterwards.
    pub fn watch_records(&self, dir: &Path) -> io::Result<WatchId> {
        self.0.get_ref().watch_records(dir)
    }

    /// Hears that files of `dir` grow, come, are replaced, or that the folder itself goes. What happened before this is not
    /// seen.
    pub fn watch_all(&self, dir: &Path) -> io::Result<WatchId> {
        self.0.get_ref().watch_all(dir)
    }

    /// Hears that files of `dir` were written, come, are replaced or go: for whoever wants to know when one is complete. What
    /// happened before this is not seen.
    pub fn watch_files(&self, dir: &Path) -> io::Result<WatchId> {
        self.0.get_ref().watch_files(dir)
    }

    /// A folder that is gone is not watched any more in any case.
    pub fn unwatch(&self, id: WatchId) {
        self.0.get_ref().unwatch(id);
    }

    /// Waits until something happens. Cancel-safe: an event is only taken by the call that returns it.
    pub async fn seen(&self) -> io::Result<Seen> {
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
                .map_or(Seen::Anything, Seen::Folders));
        }
    }
}
