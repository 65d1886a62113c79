//! Works on files with the rights of the user who owns them.
//!
//! If the daemon is root's, other users may own a tree: the agent's user (`run_as`) owns its clone,
//! and a person owns the repository of a project. A link, a hard link or a rename in it could lead
//! root to files that this user cannot read, and its settings could run programs. So the daemon
//! opens nothing below such a tree with its own rights: a thread with the file rights of the owner
//! does, and git runs as that user. The names above the tree are root's.
//!
//! [`Owner::of`] is the one place that decides as whom a step runs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use nix::unistd::{Uid, User};
use rustix::fs::{Access, access};

use super::objects::open;
use super::{CheckoutError, blocking};
use crate::locks::lock;
use crate::sys;

/// The number of open files that wait to be copied.
const MAX_WAITING: usize = 16;

thread_local! {
    /// This thread has the rights of another user.
    static IS_ANOTHER: Cell<bool> = const { Cell::new(false) };
}

/// The groups of users, by the id of the user. Like those of a process, they stay as they were.
static GROUPS: LazyLock<Mutex<BTreeMap<u32, Groups>>> = LazyLock::new(Mutex::default);

/// A user other than the daemon's own, who owns the files of a workspace or of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The groups of a user.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    pub(super) own: u32,
    /// With the own one.
    pub(super) all: Arc<[u32]>,
}

impl Groups {
    fn only(own: u32) -> Self {
        Self { own, all: Arc::from([own]) }
    }
}

impl Owner {
    /// Returns the owner of a tree; `None` if it is the daemon's own user, and if there is no tree.
    /// A daemon of an ordinary user can only be itself. No user can give a tree away, and only root
    /// can put another one in the place of a clone.
    pub(super) fn of(tree: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let found = tree.symlink_metadata().ok()?;
        (found.uid() != 0).then(|| Self { uid: found.uid(), gid: found.gid() })
    }

    /// Returns the groups of the user. The users of a machine may be in a directory on the network.
    pub(super) async fn groups(self) -> Groups {
        if let Some(known) = lock(&GROUPS).get(&self.uid) {
            return known.clone();
        }
        let found = tokio::task::spawn_blocking(move || self.find_groups()).await;
        found.unwrap_or_else(|_| Groups::only(self.own_group()))
    }

    fn find_groups(self) -> Groups {
        if let Some(known) = lock(&GROUPS).get(&self.uid) {
            return known.clone();
        }
        let user = User::from_uid(Uid::from_raw(self.uid)).ok().flatten();
        let named = user.and_then(|user| Some((CString::new(user.name).ok()?, user.gid)));
        let found = named.and_then(|(name, gid)| {
            let all = sys::users::groups_of(&name, gid).ok()?.into();
            Some(Groups { own: gid.as_raw(), all })
        });
        // The machine may not know the user.
        let groups = found.unwrap_or_else(|| Groups::only(self.own_group()));
        lock(&GROUPS).insert(self.uid, groups.clone());
        groups
    }

    /// Returns the group of the files. The group of root is for no other user.
    const fn own_group(self) -> u32 {
        if self.gid == 0 { self.uid } else { self.gid }
    }

    fn take_rights(self) -> Result<(), CheckoutError> {
        let uid = self.uid;
        let Groups { own, all } = self.find_groups();
        sys::users::take_file_rights(uid, own, &all)
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

/// Returns whether this thread has the rights of root.
pub(super) fn is_root_here() -> bool {
    rustix::process::geteuid().is_root() && !IS_ANOTHER.get()
}

/// Returns whether this thread has the rights of root, and others can change the entry.
pub(super) fn is_open_to_others(folder: &Metadata) -> bool {
    let is_writable = !folder.is_symlink() && folder.mode() & 0o022 != 0;
    is_root_here() && (folder.uid() != 0 || is_writable)
}

/// Returns whether this thread may read a file.
pub(super) fn may_read(file: &Path) -> bool {
    if access(file, Access::READ_OK).is_err() {
        return false;
    }
    // The system call asks about the real user, which stays the daemon's.
    !IS_ANOTHER.get() || open(file).is_ok()
}
