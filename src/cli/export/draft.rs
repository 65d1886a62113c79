//! A file under construction. It has another name until it is whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::cli::error::CliError;
use machine::sys::regular_file;

/// A private file beside the final one. It is removed when this is dropped, unless it got its final
/// name.
pub(super) struct Draft {
    path: PathBuf,
    file: PathBuf,
    /// Keeps a second process from using the same draft.
    lock: Flock<File>,
    is_placed: bool,
}

impl Draft {
    /// Makes `<file>.partial`. The file of an interrupted process is replaced.
    ///
    /// # Errors
    /// `file` exists and may not be replaced, it is not a file, another export writes it, or the
    /// folder refuses.
    pub(super) fn make(file: &Path, may_replace: bool) -> Result<Self, CliError> {
        match fs::symlink_metadata(file) {
            Ok(found) if !found.is_file() => {
                let told = format!("`{}` is not a file: name another path", file.display());
                return Err(CliError::Failed(told));
            }
            Ok(_) if !may_replace => return Err(exists(file)),
            _ => {}
        }
        let path = file.with_added_extension("partial");
        let failed = |error: io::Error| failed(&path, &error);
        let under_way = || {
            let told = format!("another export to `{}` is under way: wait for it", file.display());
            CliError::Failed(told)
        };
        let opened = regular_file::open_or_make(&path).map_err(failed)?;
        let lock = match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Err(under_way()),
            Err((_, errno)) => return Err(failed(errno.into())),
        };
        // Another process may have put the file in its place, or removed it, before this lock.
        let held = lock.metadata().map_err(failed)?;
        let named = fs::symlink_metadata(&path);
        if !named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
            return Err(under_way());
        }
        // A file that was left here keeps the rights that it has.
        lock.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
        lock.set_len(0).map_err(failed)?;
        Ok(Self { path: path.clone(), file: file.to_owned(), lock, is_placed: false })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The disk is full, for example.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        (&*self.lock).write_all(bytes).map_err(|error| failed(&self.path, &error))
    }

    /// Syncs the file and gives it its final name.
    ///
    /// # Errors
    /// The disk is full, or a file of this name has come meanwhile and may not be replaced.
    pub(super) fn put_in_place(mut self, may_replace: bool) -> Result<(), CliError> {
        self.lock.sync_all().map_err(|error| failed(&self.path, &error))?;
        let renamed = if may_replace {
            fs::rename(&self.path, &self.file)
        } else {
            match renameat_with(CWD, &self.path, CWD, &self.file, RenameFlags::NOREPLACE) {
                // Not every file system has this call. The file was absent a moment ago.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !self.file.exists() => {
                    fs::rename(&self.path, &self.file)
                }
                renamed => renamed.map_err(io::Error::from),
            }
        };
        match renamed {
            Ok(()) => self.is_placed = true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(exists(&self.file));
            }
            Err(error) => return Err(failed(&self.file, &error)),
        }
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| failed(&self.file, &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn exists(file: &Path) -> CliError {
    CliError::Failed(format!(
        "`{}` exists, and was left as it is: name another file, or add --force",
        file.display()
    ))
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("could not write `{}`: {error}", path.display()))
}
