//! The groups of a user, and acting with the rights of a user.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::CStr;
use std::io;

use nix::libc;
use nix::unistd::Gid;

/// True if programs keep logins in a keychain of the user rather than in files.
pub const HAS_KEYCHAIN: bool = false;

/// Returns all groups of `user`, including `group`, the user's own.
pub fn groups_of(user: &CStr, group: Gid) -> Result<Vec<u32>, nix::Error> {
    Ok(nix::unistd::getgrouplist(user, group)?.iter().map(|gid| gid.as_raw()).collect())
}

/// Gives the calling thread the rights of another user for files, for good. New files belong to
/// that user, and files that the user cannot open cannot be opened. Needs root. Other threads do
/// not change, nor do the processes that may signal or trace this one.
///
/// # Errors
/// Returns an error if the kernel refuses; the thread must end then.
pub fn take_file_rights(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<_> = groups.iter().map(|group| rustix::fs::Gid::from_raw(*group)).collect();
    // The system call itself applies to this thread alone.
    rustix::thread::set_thread_groups(&groups)?;
    // SAFETY: system calls on numbers, each for this thread alone. They return the previous value,
    // so the second one shows whether the first one succeeded.
    let is_done = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        libc::setfsgid(gid).cast_unsigned() == gid && libc::setfsuid(uid).cast_unsigned() == uid
    };
    if is_done { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
