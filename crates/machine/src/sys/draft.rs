//! A file under construction. It has another name until it is whole, so that the file with the
//! final name is whole or does not exist.
//!
//! The code is the same on both systems. `backup`, `restore` and `export` use it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::regular_file;

/// The treatment of a file that already has the final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    Refuse,
    Replace,
}

/// A private file beside the final one. It is removed when this is dropped, unless it got its final
/// name.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    /// Keeps a second process from using the same draft.
    lock: Flock<File>,
    /// It has its final name. Its first name may belong to another process by now.
    is_placed: bool,
}

impl Draft {
    /// Makes an empty file. The file of an interrupted process is replaced.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if another process uses this draft, and the errors of
    /// the folder.
    pub fn make(path: &Path) -> io::Result<Self> {
        let opened = regular_file::open_or_make(path)?;
        let lock = Flock::lock(opened, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| io::Error::from(errno))?;
        // Another process may have put the file in its place, or removed it, before this lock.
        let held = lock.metadata()?;
        let named = fs::symlink_metadata(path);
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // A file that was left here keeps the rights that it has.
        lock.set_permissions(Permissions::from_mode(0o600))?;
        lock.set_len(0)?;
        Ok(Self { path: path.to_owned(), lock, is_placed: false })
    }

    /// Returns the path that it has until it is whole.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.lock
    }

    /// Returns whether it has its final name.
    pub const fn is_placed(&self) -> bool {
        self.is_placed
    }

    /// Gives the file its final name. The caller has synced its content.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AlreadyExists`] if a file of this name exists and may not be
    /// replaced, and the errors of the folder.
    pub fn put_in_place(&mut self, file: &Path, if_exists: IfExists) -> io::Result<()> {
        match if_exists {
            IfExists::Replace => fs::rename(&self.path, file)?,
            IfExists::Refuse => {
                match renameat_with(CWD, &self.path, CWD, file, RenameFlags::NOREPLACE) {
                    // Not every file system has this call. The file was absent a moment ago.
                    Err(Errno::INVAL | Errno::NOSYS) if !file.exists() => {
                        fs::rename(&self.path, file)?;
                    }
                    renamed => renamed?,
                }
            }
        }
        self.is_placed = true;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
