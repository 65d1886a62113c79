//! Opens folders beneath a descriptor without leaving it.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the folder `name` in `parent`. Follows no link, and enters no file system that is mounted
/// there.
pub fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(parent, name, FLAGS, Mode::empty(), resolve) {
        // The kernel is older, or a sandbox does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(parent, name, FLAGS, Mode::empty()),
        opened => opened,
    }
}
