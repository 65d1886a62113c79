//! Opens folders by paths in which no link is followed.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::libc;
use rustix::fs::OFlags;

use crate::sys::walk;

/// Opens the folder at an absolute path, to look up and create entries beneath it.
///
/// # Errors
/// `LOOP` if a component is a symbolic link.
pub fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    walk::open_folder(path, OFlags::from_bits_retain(libc::O_SEARCH.cast_unsigned()))
}
