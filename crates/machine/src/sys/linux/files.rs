//! Files without a name, reserved space, and writes that begin early.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::libc;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
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

/// Gives an empty file the content of another one. Both share it, so that it needs no room.
///
/// # Errors
/// Not every file system can do that.
pub fn share(from: &File, to: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}

/// Begins to write a changed part of a file to the disk, without waiting for it.
pub fn begin_to_write(file: &File, offset: u64, length: u64) {
    write_range(file, offset, length, libc::SYNC_FILE_RANGE_WRITE);
}

/// Waits until a changed part of a file is written. The file is not safe yet, because the disk may
/// not have its length; `sync_all` makes it so.
pub fn finish_to_write(file: &File, offset: u64, length: u64) {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    write_range(file, offset, length, how);
}

/// Calls `sync_file_range(2)`. Its errors mean nothing: not every file system can do it, and an
/// error of the disk is returned by the sync of the whole file.
#[allow(unsafe_code, reason = "no safe wrapper of this call exists")]
fn write_range(file: &File, offset: u64, length: u64, how: libc::c_uint) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    // SAFETY: The descriptor is open as long as `file` is borrowed, and the call touches no memory.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, how) };
}
