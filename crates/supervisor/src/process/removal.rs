//! Empties a folder whose content belongs to an agent. It uses the folder's own descriptor and
//! follows no links.
//!
//! An agent can leave millions of files, folders nested to any depth, and folders without
//! permissions. Nothing here recurses: a folder in a folder moves up to the root before it is
//! emptied. At most two folders are open at any time.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::sys::stat::{FchmodatFlags, fchmodat};
use rustix::fs::{AtFlags, Dir, Mode};
use rustix::io::Errno;

use machine::sys::beneath;
use runtime::clock;

/// Removes all entries of `root`, which must belong to the user of this thread.
///
/// # Errors
/// Returns the error of an entry that cannot be removed, after the others are gone; or `TimedOut`
/// at `give_up_at`.
pub fn empty(root: BorrowedFd<'_>, give_up_at: Instant) -> io::Result<()> {
    let mut removal = Removal { root, n_moved: 0, give_up_at };
    // The agent may have removed the permissions.
    rustix::fs::fchmod(root, Mode::RWXU)?;
    removal.clear(root, Depth::Root)
}

/// The place of a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Root,
    Below,
}

struct Removal<'a> {
    root: BorrowedFd<'a>,
    /// The number of names that were given to folders that moved up.
    n_moved: u64,
    give_up_at: Instant,
}

impl Removal<'_> {
    /// Reads the folder again until it is empty, because a read may miss entries while others are
    /// removed.
    fn clear(&mut self, folder: BorrowedFd<'_>, place: Depth) -> io::Result<()> {
        loop {
            let mut is_empty = true;
            let mut is_stuck = true;
            let mut failed = None;
            for entry in Dir::read_from(folder)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                self.check_time()?;
                is_empty = false;
                match self.remove(folder, name, place) {
                    Ok(()) => is_stuck = false,
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                _ if is_empty => return Ok(()),
                Some(error) if is_stuck => return Err(error),
                _ => {}
            }
        }
    }

    fn remove(&mut self, folder: BorrowedFd<'_>, name: &CStr, place: Depth) -> io::Result<()> {
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Linux returns the first error for a folder, POSIX specifies the second.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
        match place {
            Depth::Root => {
                let inner = open(folder, name)?;
                rustix::fs::fchmod(&inner, Mode::RWXU)?;
                self.clear(inner.as_fd(), Depth::Below)?;
                Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
            }
            Depth::Below => self.move_up(folder, name),
        }
    }

    /// Moves a folder to the root, under a name that is free there.
    fn move_up(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let mut is_opened = false;
        loop {
            self.check_time()?;
            self.n_moved += 1;
            let new_name = CString::new(format!(".{}", self.n_moved))?;
            match rustix::fs::renameat(folder, name, self.root, &new_name) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                // Moving a folder changes its `..`, which needs permission to write to it.
                Err(Errno::ACCESS) if !is_opened => {
                    is_opened = true;
                    make_accessible(folder, name)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn check_time(&self) -> io::Result<()> {
        if clock::unpaused() < self.give_up_at {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// Opens the folder `name`, even if its owner has no permissions.
pub fn open(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    match beneath::open_folder(folder, name) {
        Err(Errno::ACCESS) => {
            make_accessible(folder, name)?;
            Ok(beneath::open_folder(folder, name)?)
        }
        opened => Ok(opened?),
    }
}

fn make_accessible(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let mode = nix::sys::stat::Mode::S_IRWXU;
    Ok(fchmodat(folder, name, mode, FchmodatFlags::NoFollowSymlink)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn open_path(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[track_caller]
    fn check_emptied(path: &Path) {
        empty(open_path(path).as_fd(), Instant::now() + Duration::from_mins(5)).unwrap();
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    }

    #[test]
    fn what_links_lead_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let kept = outside.path().join("kept");
        fs::write(&kept, "x").unwrap();
        fs::set_permissions(outside.path(), Permissions::from_mode(0o750)).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        symlink(outside.path(), folder.path().join("folder")).unwrap();
        symlink(outside.path(), folder.path().join("a/folder")).unwrap();
        symlink(&kept, folder.path().join("a/file")).unwrap();
        fs::hard_link(&kept, folder.path().join("a/twin")).unwrap();
        check_emptied(folder.path());
        assert_eq!(fs::read_to_string(kept).unwrap(), "x");
        let mode = fs::metadata(outside.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
    }

    #[test]
    fn folders_of_any_depth_and_closed_ones_are_removed() {
        const DEPTH: usize = 20_000;
        let folder = tempfile::tempdir().unwrap();
        let mut inner = open_path(folder.path());
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&inner, c"d", Mode::RWXU).unwrap();
            inner = beneath::open_folder(inner.as_fd(), c"d").unwrap();
        }
        drop(inner);
        for name in ["closed", "closed/inner", "closed/inner/most", ".1", ".2"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("closed/inner/most/file"), "x").unwrap();
        fs::write(folder.path().join(".3"), "x").unwrap();
        for name in ["closed/inner/most", "closed/inner", "closed"] {
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o0)).unwrap();
        }
        check_emptied(folder.path());
    }

    #[test]
    fn a_removal_ends_in_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), "x").unwrap();
        let error = empty(open_path(folder.path()).as_fd(), Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
