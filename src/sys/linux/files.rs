//! Files without a name, reserved space, and writes that begin early.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// Makes a file in memory that is read from its start and cannot be changed any more. Nothing is
/// made in the folder.
pub fn unnamed(_folder: &Path, name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    file.rewind()?;
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

/// Begins to write a changed part of a file to the disk, without waiting for it.
pub fn begin_to_write(file: &File, offset: u64, length: u64) {
    // Pages that are dropped from memory have to be written first. Those that are being written
    // stay.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(length), Advice::DontNeed);
}
