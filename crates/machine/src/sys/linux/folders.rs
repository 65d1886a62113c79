//! Watches folders and single files, by inotify.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// The watched folder or file that an event is about.
pub type WatchId = WatchDescriptor;

/// A set of watched folders. Its descriptor is readable when there is news.
pub struct Watcher(Inotify);

impl Watcher {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?))
    }

    /// Watches `dir` for files that are replaced by renaming.
    pub fn watch_records(&self, dir: &Path) -> io::Result<WatchId> {
        self.watch(dir, AddWatchFlags::IN_MOVED_TO)
    }

    /// Watches `dir` for files that grow, appear or are replaced, and for the end of the folder
    /// itself.
    pub fn watch_all(&self, dir: &Path) -> io::Result<WatchId> {
        let content =
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        self.watch(dir, content | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF)
    }

    /// Watches `dir` for files that were written, appear, are replaced or disappear.
    pub fn watch_files(&self, dir: &Path) -> io::Result<WatchId> {
        let whole = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        self.watch(dir, whole | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE)
    }

    /// Watches an open file that grows. The second watch of a file has the id of the first.
    pub fn watch_file(&self, file: &File) -> io::Result<WatchId> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(self.0.add_watch(Path::new(&path), AddWatchFlags::IN_MODIFY)?)
    }

    fn watch(&self, dir: &Path, flags: AddWatchFlags) -> io::Result<WatchId> {
        Ok(self.0.add_watch(dir, flags | AddWatchFlags::IN_ONLYDIR)?)
    }

    /// Stops watching a folder. A folder that is gone is no longer watched in any case.
    pub fn unwatch(&self, id: WatchId) {
        let _ = self.0.rm_watch(id);
    }

    /// Returns the folders with news, one entry per event. An entry `None` means that any folder
    /// may have changed.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there is no news.
    pub fn news(&self) -> io::Result<Vec<Option<WatchId>>> {
        let events = self.0.read_events()?;
        let has_place = |mask: AddWatchFlags| !mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
        Ok(events.into_iter().map(|event| has_place(event.mask).then_some(event.wd)).collect())
    }
}

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
