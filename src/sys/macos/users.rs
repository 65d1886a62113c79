//! The groups of a user.

use std::ffi::CStr;

use nix::libc;
use nix::unistd::Gid;

/// All groups of `user`, with `group`, its own.
pub fn groups_of(user: &CStr, group: Gid) -> Result<Vec<u32>, nix::Error> {
    let own = group.as_raw().cast_signed();
    let mut room = 64;
    loop {
        let mut groups = vec![0; room];
        let mut n = libc::c_int::try_from(room).map_err(|_| nix::Error::ENOMEM)?;
        // SAFETY: the name ends with NUL, and there is room for `n` groups.
        let result = unsafe { libc::getgrouplist(user.as_ptr(), own, groups.as_mut_ptr(), &raw mut n) };
        if result >= 0 {
            groups.truncate(usize::try_from(n).unwrap_or_default());
            return Ok(groups.into_iter().map(i32::cast_unsigned).collect());
        }
        // How many there are, it doesn't say.
        room *= 2;
    }
}
