//! Files without a name, reserved space, and shared content.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Makes a file in memory that is read from its start and cannot be changed any more. Nothing is
/// made in the folder.
pub fn unnamed(_folder: &Path, name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let file = File::from(fd);
    // This leaves the position at the start.
    file.write_all_at(content, 0)?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(file.into())
}

/// Reserves `length` bytes for an empty file, which stays empty.
pub fn reserve(file: &File, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length) {
        // Not every file system can reserve space. The file is then as safe as any other.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives an empty file the content of another one. Both share it, so that it needs no room.
///
/// # Errors
/// Not every file system can do that.
pub fn share(from: &File, to: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}
