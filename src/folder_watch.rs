//! Hears what happens in folders, by inotify: what a keeper writes is seen at once, and costs nothing while nothing happens.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Which folder an event is about.
pub type WatchId = WatchDescriptor;

struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// The watched folders; clones are the same ones.
#[derive(Clone)]
pub struct Folders(Arc<AsyncFd<Descriptor>>);

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
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // SAFETY: the inotify instance owns its descriptor, which is open and the same for as long as it lives.
        let registered = unsafe { AsyncFd::register_with_interest(Descriptor(inotify), Interest::READABLE) };
        Ok(Self(Arc::new(registered.map_err(io::Error::from)?)))
    }

    /// Hears that files of `dir` are replaced by renaming. What happened before this is not seen: read the folder once
    /// afterwards.
    pub fn watch_records(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, AddWatchFlags::IN_MOVED_TO)
    }

    /// Hears that files of `dir` grow, come, are replaced, or that the folder itself goes. What happened before this is not
    /// seen.
    pub fn watch_all(&self, dir: &Path) -> io::Result<WatchId> {
        let content = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        self.watch(dir, content | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF)
    }

    /// Hears that files of `dir` were written, come, are replaced or go: for whoever wants to know when one is complete. What
    /// happened before this is not seen.
    pub fn watch_files(&self, dir: &Path) -> io::Result<WatchId> {
        let whole = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        self.watch(dir, whole | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE)
    }

    fn watch(&self, dir: &Path, flags: AddWatchFlags) -> io::Result<WatchId> {
        Ok(self.0.get_ref().0.add_watch(dir, flags | AddWatchFlags::IN_ONLYDIR)?)
    }

    /// A folder that is gone is not watched any more in any case.
    pub fn unwatch(&self, id: WatchId) {
        let _ = self.0.get_ref().0.rm_watch(id);
    }

    /// Waits until something happens. Cancel-safe: an event is only taken by the call that returns it.
    pub async fn seen(&self) -> io::Result<Seen> {
        loop {
            let mut ready = self.0.readable().await?;
            let events = match self.0.get_ref().0.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)) {
                return Ok(Seen::Anything);
            }
            return Ok(Seen::Folders(events.iter().map(|event| event.wd).collect()));
        }
    }
}
