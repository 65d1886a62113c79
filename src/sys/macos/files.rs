//! Files without a name, and space that nobody else gets.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A file to be read from its start, and not written, by whoever gets its descriptor.
///
/// Weaker than on Linux: it is in no memory of its own but in `folder`, where it has a name only while it is empty. What is written
/// into it may reach the disk, and is freed when the last descriptor is closed.
pub fn unnamed(folder: &Path, name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let path = folder.join(format!(".{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let reader = File::open(&path);
    std::fs::remove_file(&path)?;
    file.write_all(content)?;
    Ok(reader?.into())
}

/// Reserves `length` bytes for an empty file, by writing as many zeros: what is only promised (`F_PREALLOCATE`) is taken back when
/// the file is closed.
pub fn reserve(mut file: &File, length: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), length), &mut file).map(drop)
}
