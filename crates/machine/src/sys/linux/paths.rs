//! Opens folders by paths in which no link is followed.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::sys::walk;

/// Opens the folder at an absolute path, to look up and create entries beneath it.
///
/// # Errors
/// `LOOP` if a component is a symbolic link.
pub fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // The kernel is older than 5.6, or a sandbox does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => walk::open_folder(path, OFlags::PATH),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    type Open = fn(&Path) -> rustix::io::Result<OwnedFd>;

    #[test]
    fn no_link_in_a_path_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(folder.join("a/b")).unwrap();
        std::fs::write(folder.join("file"), "").unwrap();
        symlink("a", folder.join("link")).unwrap();
        let by_steps: Open = |path| walk::open_folder(path, OFlags::PATH);
        for open in [open_folder as Open, by_steps] {
            let found = |below: &str| open(&folder.join(below)).map(drop);
            assert_eq!(found("a/b"), Ok(()));
            assert_eq!(found("link"), Err(Errno::LOOP));
            assert_eq!(found("link/b"), Err(Errno::LOOP));
            assert_eq!(found("file"), Err(Errno::NOTDIR));
            assert_eq!(found("none"), Err(Errno::NOENT));
        }
    }
}
