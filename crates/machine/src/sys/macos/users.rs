//! The groups of a user, and acting with the rights of a user.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::CStr;
use std::io;

use nix::libc;
use nix::unistd::Gid;

/// True if programs keep logins in a keychain of the user rather than in files.
pub const HAS_KEYCHAIN: bool = true;

/// Returns all groups of `user`, including `group`, the user's own.
pub fn groups_of(user: &CStr, group: Gid) -> Result<Vec<u32>, nix::Error> {
    let own = group.as_raw().cast_signed();
    let mut room = 64;
    loop {
        let mut groups = vec![0; room];
        let mut n = libc::c_int::try_from(room).map_err(|_| nix::Error::ENOMEM)?;
        // SAFETY: the name ends with NUL, and there is room for `n` groups.
        let result =
            unsafe { libc::getgrouplist(user.as_ptr(), own, groups.as_mut_ptr(), &raw mut n) };
        if result >= 0 {
            groups.truncate(usize::try_from(n).unwrap_or_default());
            return Ok(groups.into_iter().map(i32::cast_unsigned).collect());
        }
        // The call does not return the number of groups.
        room *= 2;
    }
}

unsafe extern "C" {
    /// A function of the system's `unistd.h`, for file servers.
    fn pthread_setugid_np(uid: libc::uid_t, gid: libc::gid_t) -> libc::c_int;
}

/// Gives the calling thread the rights of another user, for good. New files belong to that user,
/// and files that the user cannot open cannot be opened. Needs root. Other threads do not change.
/// The thread has only the group `gid`.
///
/// # Errors
/// Returns an error if the kernel refuses; the thread must end then.
pub fn take_file_rights(uid: u32, gid: u32, _groups: &[u32]) -> io::Result<()> {
    // SAFETY: a system call on numbers, about this thread alone.
    if unsafe { pthread_setugid_np(uid, gid) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
