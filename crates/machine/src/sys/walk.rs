//! Opens a folder by an absolute path one component at a time, so that no link leads elsewhere. It
//! is for systems that cannot do this in one call.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

/// Opens `path`, and each folder above it, with `access`.
///
/// # Errors
/// `LOOP` if a component is a symbolic link.
pub fn open_folder(path: &Path, access: OFlags) -> rustix::io::Result<OwnedFd> {
    if !path.is_absolute() {
        return Err(Errno::INVAL);
    }
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat(CWD, "/", flags, Mode::empty())?;
    for component in path
        .components()
        .filter(|component| !matches!(component, Component::RootDir | Component::CurDir))
    {
        let name = component.as_os_str();
        folder = match openat(&folder, name, flags, Mode::empty()) {
            Err(Errno::NOTDIR) => {
                let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
                return Err(if is_link { Errno::LOOP } else { Errno::NOTDIR });
            }
            opened => opened?,
        };
    }
    Ok(folder)
}
