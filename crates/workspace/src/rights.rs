//! Works on files with the rights of the user who owns them.
//!
//! If the daemon is root's, other users may own a tree: the agent's user (`run_as`) owns its clone,
//! and a person owns the repository of a project. A link, a hard link or a rename in it could lead
//! root to files that this user cannot read, and its settings could run programs. So the daemon
//! opens nothing below such a tree with its own rights: a thread with the file rights of the owner
//! does, and git runs as that user. The names above the tree are root's.
//!
//! Work on a tree has the rights of its owner ([`Owner::of`]), and work on a new clone those of the
//! user who gets it ([`Owner::of_order`]). Work on the coordinator's repositories has the rights of
//! their owner. That may be an account of their own, the keeper. Clones of root then have an owner
//! like those of other users ([`Owner::ROOT`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use nix::unistd::{Uid, User};
use rustix::fs::{Access, access};

use super::objects::open;
use super::{CheckoutError, Result, blocking};
use domain::RunAs;
use domain::workspace::Order;
use machine::locks::lock;
use machine::sys;

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

/// Others may enter such a folder but not list it.
const PASSAGE: u32 = 0o711;

/// The groups of a user.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    pub(super) own: u32,
    /// All groups, the own one among them.
    pub(super) all: Arc<[u32]>,
}

impl Groups {
    fn only(own: u32) -> Self {
        Self { own, all: Arc::from([own]) }
    }
}

impl Owner {
    /// Root, whose files have this owner only beside those of the keeper.
    pub(super) const ROOT: Self = Self { uid: 0, gid: 0 };

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

    /// Returns the owner of new files of a user.
    pub(super) const fn from_user(user: &RunAs) -> Self {
        Self { uid: user.uid, gid: user.gid }
    }

    /// Returns the owner of a new workspace; `None` for the daemon's own user.
    pub(super) fn of_order(order: &Order) -> Option<Self> {
        order.run_as.as_ref().map(Self::from_user)
    }

    /// Returns the groups of the user. The users of a machine may be in a directory on the network.
    pub(super) async fn groups(self) -> Groups {
        if let Some(known) = self.known_groups() {
            return known;
        }
        let found = tokio::task::spawn_blocking(move || self.find_groups()).await;
        found.unwrap_or_else(|_| Groups::only(self.own_group()))
    }

    fn known_groups(self) -> Option<Groups> {
        lock(&GROUPS).get(&self.uid).cloned()
    }

    fn find_groups(self) -> Groups {
        if let Some(known) = self.known_groups() {
            return known;
        }
        let find = || {
            let user = User::from_uid(Uid::from_raw(self.uid)).ok()??;
            let name = CString::new(user.name).ok()?;
            let all = sys::users::groups_of(&name, user.gid).ok()?.into();
            Some(Groups { own: user.gid.as_raw(), all })
        };
        let Some(groups) = find() else {
            // The machine does not know the user, or cannot look it up now.
            return Groups::only(self.own_group());
        };
        lock(&GROUPS).insert(self.uid, groups.clone());
        groups
    }

    /// Returns the group of the files. The group of root is for no other user.
    const fn own_group(self) -> u32 {
        if self.gid == 0 { self.uid } else { self.gid }
    }

    fn take_rights(self) -> Result<()> {
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
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    blocking(move || run_as(owner, work)).await
}

/// Runs `work` with the rights of the owner, on a thread of its own. Blocks until its end.
pub(super) fn run_as<T: Send>(
    owner: Option<Owner>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let Some(owner) = owner.filter(|owner| *owner != Owner::ROOT) else {
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

/// Runs `find` with the rights of the first user. `take` gets each finding in turn, with the rights
/// of the second one. Blocks until both have ended.
pub(super) fn pass_on<T: Send>(
    [finder, taker]: [Option<Owner>; 2],
    find: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()> + Send,
    mut take: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    if finder == taker {
        return run_as(finder, || find(&mut take));
    }
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let finder = scope.spawn(move || {
            run_as(finder, || {
                find(&mut |found| {
                    let gone = |_| CheckoutError::Refused("a step was given up".to_owned());
                    sender.send(found).map_err(gone)
                })
            })
        });
        // An early return drops the receiver, which ends the finder.
        run_as(taker, move || receiver.into_iter().try_for_each(take))?;
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
pub(super) fn is_open_to_others(found: &Metadata) -> bool {
    let is_writable = !found.is_symlink() && found.mode() & 0o022 != 0;
    is_root_here() && (found.uid() != 0 || is_writable)
}

/// Gives one entry to a user. Follows no link.
pub(super) fn give(path: &Path, owner: Owner) -> Result<()> {
    lchown(path, Some(owner.uid), Some(owner.gid))
        .map_err(CheckoutError::io("give to its user", path))
}

/// Lets others enter a folder, but not list it.
pub(super) fn open_passage(folder: &Path) -> Result<()> {
    set_mode(folder, PASSAGE)
}

/// Changes the mode of a file or a folder of the daemon.
pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(CheckoutError::io("set the mode of", path))
}

/// Returns whether this thread may read a file.
pub(super) fn may_read(file: &Path) -> bool {
    if access(file, Access::READ_OK).is_err() {
        return false;
    }
    // The system call asks about the real user, which stays the daemon's.
    !IS_ANOTHER.get() || open(file).is_ok()
}
