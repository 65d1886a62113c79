//! Files without a name, reserved space, and shared content.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Makes a file that the owner of its descriptor can read from its start, but not write.
///
/// This is weaker than on Linux: the file is not in memory but in `folder`, where it has a name
/// only while it is empty. Its content may reach the disk, and is freed when the last descriptor is
/// closed.
pub fn unnamed(folder: &Path, name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let path = folder.join(format!(".{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let reader = File::open(&path);
    std::fs::remove_file(&path)?;
    file.write_all(content)?;
    Ok(reader?.into())
}

/// Reserves `length` bytes for an empty file by writing as many zeros. A reservation by
/// `F_PREALLOCATE` would be lost when the file is closed.
pub fn reserve(mut file: &File, length: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), length), &mut file).map(drop)
}

/// Returns an error: macOS shares the content of a file only with one that does not exist.
pub fn share(_from: &File, _to: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
