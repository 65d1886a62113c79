//! Works on the files of a workspace with the rights of the user who owns them.
//!
//! If the daemon is root's and the agent runs as another user (`run_as`), that user owns the tree.
//! A link, a hard link or a rename in it could lead root to files that the agent cannot read. So
//! the daemon opens nothing below such a tree with its own rights: a thread with the file rights of
//! the owner does, and git runs as that user. The names above the tree are root's.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use rustix::fs::{Access, access};

use super::objects::open;
use super::{CheckoutError, blocking};
use crate::sys;

/// The number of open files that wait to be copied.
const MAX_WAITING: usize = 16;

thread_local! {
    /// This thread has the rights of another user.
    static IS_ANOTHER: Cell<bool> = const { Cell::new(false) };
}

/// A user other than the daemon's own, who owns the files of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    /// Returns the owner of a tree; `None` if it is the daemon's own user, and if there is no tree.
    /// No user can give a tree away, or put another one in its place.
    pub(super) fn of(tree: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let found = tree.symlink_metadata().ok()?;
        (found.uid() != 0).then(|| Self { uid: found.uid(), gid: found.gid() })
    }

    fn take_rights(self) -> Result<(), CheckoutError> {
        let Self { uid, gid } = self;
        sys::users::take_file_rights(uid, gid, &[gid])
            .map_err(|source| CheckoutError::OtherUser { uid, source })?;
        IS_ANOTHER.set(true);
        Ok(())
    }
}

/// Runs a function that reads or writes many files with the rights of their owner.
pub(super) async fn blocking_as<T: Send + 'static>(
    owner: Option<Owner>,
    work: impl FnOnce() -> Result<T, CheckoutError> + Send + 'static,
) -> Result<T, CheckoutError> {
    blocking(move || run_as(owner, work)).await
}

/// Runs `work` with the rights of the owner, on a thread of its own. Blocks until its end.
pub(super) fn run_as<T: Send>(
    owner: Option<Owner>,
    work: impl FnOnce() -> Result<T, CheckoutError> + Send,
) -> Result<T, CheckoutError> {
    let Some(owner) = owner else {
        return work();
    };
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            owner.take_rights()?;
            work()
        });
        thread.join().unwrap_or_else(|_| Err(panicked()))
    })
}

/// Runs `find` with the rights of the owner. `take` gets each finding in turn, with the rights of
/// the daemon. Blocks until both have ended.
pub(super) fn hand_over<T: Send>(
    owner: Option<Owner>,
    find: impl FnOnce(&mut dyn FnMut(T) -> Result<(), CheckoutError>) -> Result<(), CheckoutError>
    + Send,
    mut take: impl FnMut(T) -> Result<(), CheckoutError>,
) -> Result<(), CheckoutError> {
    let Some(owner) = owner else {
        return find(&mut take);
    };
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let finder = scope.spawn(move || {
            owner.take_rights()?;
            find(&mut |found| {
                let gone = |_| CheckoutError::Refused("a step was given up".to_owned());
                sender.send(found).map_err(gone)
            })
        });
        for found in receiver {
            // An early return drops the receiver, which ends the finder.
            take(found)?;
        }
        finder.join().unwrap_or_else(|_| Err(panicked()))
    })
}

fn panicked() -> CheckoutError {
    CheckoutError::Refused("a step failed: its thread panicked".to_owned())
}

/// Returns whether this thread may read a file.
pub(super) fn may_read(file: &Path) -> bool {
    if access(file, Access::READ_OK).is_err() {
        return false;
    }
    // The system call asks about the real user, which stays the daemon's.
    !IS_ANOTHER.get() || open(file).is_ok()
}
