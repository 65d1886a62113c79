//! The groups of a user, and acting with its rights.

use std::ffi::CStr;
use std::io;

use nix::libc;
use nix::unistd::Gid;

/// All groups of `user`, with `group`, its own.
pub fn groups_of(user: &CStr, group: Gid) -> Result<Vec<u32>, nix::Error> {
    Ok(nix::unistd::getgrouplist(user, group)?.iter().map(|gid| gid.as_raw()).collect())
}

/// Gives the calling thread the rights of another user for files, for good: what it makes from now on is that user's, and what that
/// user can't open it can't open either. Needs root. Other threads, and who may signal or trace the process, stay as they are.
///
/// # Errors
/// If the kernel refuses; the thread must end then.
pub fn take_file_rights(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<_> = groups.iter().map(|group| rustix::fs::Gid::from_raw(*group)).collect();
    // The system call itself is about this thread alone.
    rustix::thread::set_thread_groups(&groups)?;
    // SAFETY: system calls on numbers, each about this thread alone. They return what was before, so the second one tells whether the
    // first one did it.
    let is_done = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        libc::setfsgid(gid).cast_unsigned() == gid && libc::setfsuid(uid).cast_unsigned() == uid
    };
    if is_done { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
