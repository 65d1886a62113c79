//! Opens, makes and removes files below a folder in which others can write.
//!
//! No link is followed, neither at the end of a path nor on the way. Each folder is opened from the
//! one above it, so that a folder that is replaced meanwhile leads nowhere else. Only regular files
//! are opened, and no pipe is waited for. All functions block.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;

use super::{CheckoutError, Result};
use machine::sys::{beneath, regular_file};

/// The treatment of a link or a file in the place of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InTheWay {
    Refuse,
    Remove,
}

/// A folder, below which paths are resolved.
pub(super) struct Inside {
    top: OwnedFd,
    path: PathBuf,
}

impl Inside {
    /// Opens a folder. It must not be a link.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::open(path, flags, Mode::empty());
        let top = top.map_err(|error| CheckoutError::io("open", path)(error.into()))?;
        Ok(Self { top, path: path.to_owned() })
    }

    /// Opens a folder below this one, and makes those that are missing.
    ///
    /// # Errors
    /// `Refused` if a link or a file is in the way and is not to be removed.
    pub(super) fn make_folder(&self, path: &Path, in_the_way: InTheWay) -> Result<OwnedFd> {
        let failed = |error: Errno| {
            CheckoutError::io("make the folder", &self.path.join(path))(error.into())
        };
        let mut folder = self.top.try_clone().map_err(CheckoutError::io("open", &self.path))?;
        for name in names_of(path)? {
            let make = |folder: &OwnedFd| match rustix::fs::mkdirat(
                folder,
                &name,
                Mode::from_raw_mode(0o777),
            ) {
                Err(error) if error != Errno::EXIST => Err(error),
                _ => beneath::open_folder(folder.as_fd(), &name),
            };
            folder = match make(&folder) {
                Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
                    if in_the_way == InTheWay::Refuse {
                        return Err(CheckoutError::Refused(format!(
                            "`{}` leads through `{}`, which is not a folder; nothing is written there",
                            self.path.join(path).display(),
                            name.to_string_lossy()
                        )));
                    }
                    rustix::fs::unlinkat(&folder, &name, AtFlags::empty()).map_err(failed)?;
                    make(&folder).map_err(failed)?
                }
                opened => opened.map_err(failed)?,
            };
        }
        Ok(folder)
    }

    /// Writes a new file, in the place of a file or a link that has this path.
    pub(super) fn write(&self, path: &Path, content: &[u8], mode: RawMode) -> Result<()> {
        let mut file = self.make_file(path, mode)?;
        file.write_all(content).map_err(CheckoutError::io("write", &self.path.join(path)))
    }

    /// Makes an empty file, in the place of a file or a link that has this path.
    pub(super) fn make_file(&self, path: &Path, mode: RawMode) -> Result<File> {
        let (folder, name) = self.place_of(path)?;
        let failed = |error: Errno| CheckoutError::io("write", &self.path.join(path))(error.into());
        remove(&folder, &name).map_err(failed)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let file = rustix::fs::openat(&folder, &name, flags, mode).map_err(failed)?;
        rustix::fs::fchmod(&file, mode).map_err(failed)?;
        Ok(file.into())
    }

    /// Makes a link, in the place of a file or a link that has this path.
    pub(super) fn link(&self, path: &Path, target: &OsStr) -> Result<()> {
        let (folder, name) = self.place_of(path)?;
        let failed = |error: Errno| CheckoutError::io("make", &self.path.join(path))(error.into());
        remove(&folder, &name).map_err(failed)?;
        rustix::fs::symlinkat(target, &folder, &name).map_err(failed)
    }

    /// Removes a file or a link. One that does not exist is fine.
    pub(super) fn remove_file(&self, path: &Path) -> Result<()> {
        let failed =
            |error: Errno| CheckoutError::io("remove", &self.path.join(path))(error.into());
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        let folder = match self.folder(parent) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        remove(&folder, &name_of(path)?).map_err(failed)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// It cannot be opened, or a link is on the way.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<File> {
        let folder = self.folder(path.parent().unwrap_or_else(|| Path::new("")))?;
        regular_file::open_at(folder, Path::new(path.file_name().unwrap_or_default()))
    }

    /// Returns the mode of a regular file; `None` for anything else, and behind a link.
    pub(super) fn mode_of(&self, path: &Path) -> Option<RawMode> {
        let file = self.open_file(path).ok()?;
        Some(rustix::fs::fstat(&file).ok()?.st_mode & 0o777)
    }

    /// Opens a folder below this one.
    fn folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let top = beneath::open_folder(self.top.as_fd(), c".")?;
        let names = names_of(path).map_err(|_| Errno::INVAL)?;
        names.iter().try_fold(top, |folder, name| beneath::open_folder(folder.as_fd(), name))
    }

    fn place_of(&self, path: &Path) -> Result<(OwnedFd, CString)> {
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        Ok((self.make_folder(parent, InTheWay::Refuse)?, name_of(path)?))
    }
}

fn remove(folder: &OwnedFd, name: &CString) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => Err(error),
        _ => Ok(()),
    }
}

/// Returns the names in a relative path that leads downwards only.
fn names_of(path: &Path) -> Result<Vec<CString>> {
    let leads_away =
        || CheckoutError::Refused(format!("`{}` leads out of the folder", path.display()));
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => CString::new(name.as_bytes()).map_err(|_| leads_away()),
        _ => Err(leads_away()),
    };
    path.components().filter(|part| *part != Component::CurDir).map(name).collect()
}

fn name_of(path: &Path) -> Result<CString> {
    let name = path.file_name().unwrap_or_default();
    names_of(Path::new(name))?
        .pop()
        .ok_or_else(|| CheckoutError::Refused(format!("`{}` names no file", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn nothing_is_written_read_or_removed_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        let other = folder.path().join("other");
        std::fs::create_dir(&top).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("file"), "theirs").unwrap();
        symlink(&other, top.join("link")).unwrap();
        symlink(other.join("file"), top.join("file")).unwrap();
        let inside = Inside::open(&top).unwrap();
        for path in ["link/new", "link/file", "../other/file", "/etc/file", "link/a/b"] {
            inside.write(Path::new(path), b"ours", 0o644).unwrap_err();
            inside.link(Path::new(path), OsStr::new("x")).unwrap_err();
            inside.open_file(Path::new(path)).unwrap_err();
            inside.remove_file(Path::new(path)).unwrap_err();
        }
        inside.open_file(Path::new("file")).unwrap_err();
        Inside::open(&top.join("link")).err().expect("the folder itself is no link");
        // A link is replaced, and what it leads to stays.
        inside.write(Path::new("file"), b"ours", 0o755).unwrap();
        assert_eq!(std::fs::read(top.join("file")).unwrap(), b"ours");
        assert_eq!(inside.mode_of(Path::new("file")), Some(0o755));
        inside.make_folder(Path::new("link/new"), InTheWay::Remove).unwrap();
        assert!(top.join("link/new").is_dir() && !top.join("link").is_symlink());
        inside.write(Path::new("a/b/c"), b"", 0o600).unwrap();
        assert_eq!(top.join("a/b/c").metadata().unwrap().permissions().mode() & 0o777, 0o600);
        inside.remove_file(Path::new("a/b/c")).unwrap();
        inside.remove_file(Path::new("x/y")).unwrap();
        assert_eq!(std::fs::read(other.join("file")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let inside = Inside::open(folder.path()).unwrap();
        inside.open_file(Path::new("pipe")).unwrap_err();
        inside.write(Path::new("pipe"), b"a file", 0o600).unwrap();
        assert_eq!(std::fs::read(pipe).unwrap(), b"a file");
    }
}
