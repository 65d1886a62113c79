//! The groups of a user.

use std::ffi::CStr;

use nix::unistd::Gid;

/// All groups of `user`, with `group`, its own.
pub fn groups_of(user: &CStr, group: Gid) -> Result<Vec<u32>, nix::Error> {
    Ok(nix::unistd::getgrouplist(user, group)?.iter().map(|gid| gid.as_raw()).collect())
}
