//! Reads the output of an instance from the oldest file to the newest, while it grows and is
//! rotated. The caller knows when there is more.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::{Timestamp, Zoned};
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::{OUTPUT_LOG, rotated_log};
use crate::sys::regular_file;

/// A position in the output of an instance.
#[derive(Debug)]
pub struct OutputReader {
    /// The folder; it stays valid when it moves to the ended ones.
    folder: File,
    /// Files that are still to be read; the next one is the last.
    files: Vec<File>,
    current: Option<File>,
}

impl OutputReader {
    /// Starts at the beginning of the kept output.
    ///
    /// # Errors
    /// Returns an error if there is no folder `dir`, or if it cannot be opened.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, dir, flags, Mode::empty())?.into();
        Ok(Self { folder, files: Vec::new(), current: None })
    }

    /// Fills `chunk` with the next output. Returns 0 if there is no more at present.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(file) = &mut self.current {
                let n_read = file.read(chunk)?;
                if n_read > 0 {
                    return Ok(n_read);
                }
            }
            if let Some(file) = self.files.pop() {
                self.current = Some(file);
                continue;
            }
            // The end of the current file may have been written just before the newer file was
            // made.
            if !self.open_newer()? {
                return Ok(0);
            }
        }
    }

    /// Returns the time of the last write to the file that is read, in the zone of this machine; the
    /// present if it is not known, or if a wrong clock has set it. Earlier lines of the file may be
    /// older.
    pub fn written_at(&self) -> Zoned {
        let now = Zoned::now();
        let written = self.current.as_ref().and_then(|file| file.metadata().ok()?.modified().ok());
        let written = written.and_then(|at| Timestamp::try_from(at).ok());
        match written.filter(|at| *at < now.timestamp()) {
            Some(at) => at.to_zoned(now.time_zone().clone()),
            None => now,
        }
    }

    /// Opens the files that are newer than the current one; `false` if there are none.
    ///
    /// The order is from the newest to the oldest. A rotation moves files in the same direction, so
    /// a file may be found twice, but none is missed.
    fn open_newer(&mut self) -> io::Result<bool> {
        let current = self.current.as_ref().map(inode).transpose()?;
        let mut last = None;
        let mut is_gap = false;
        for n in 0.. {
            let Some(file) = self.open_nth(n)? else {
                // Between two steps of a rotation one number is free.
                if is_gap {
                    break;
                }
                is_gap = true;
                continue;
            };
            is_gap = false;
            let inode = Some(inode(&file)?);
            if inode == current {
                break;
            }
            if inode != last {
                self.files.push(file);
            }
            last = inode;
        }
        Ok(!self.files.is_empty())
    }

    /// Opens the newest file (0), or the nth older one. An entry that is not a regular file counts
    /// as missing.
    fn open_nth(&self, n: u32) -> io::Result<Option<File>> {
        let name = if n == 0 { PathBuf::from(OUTPUT_LOG) } else { rotated_log(Path::new(""), n) };
        match regular_file::open_at(&self.folder, &name) {
            Ok(file) => Ok(Some(file)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn inode(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.ino())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn output_is_as_old_as_the_last_write_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(OUTPUT_LOG);
        std::fs::write(&file, "resets 9am\n").unwrap();
        let mut reader = OutputReader::open(dir.path()).unwrap();
        reader.read(&mut [0; 64]).unwrap();
        let set = |at| File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        let now = SystemTime::now();
        set(now - Duration::from_hours(12));
        let age = |reader: &OutputReader| Zoned::now().duration_since(&reader.written_at());
        assert_eq!(age(&reader).as_hours(), 12);
        set(now + Duration::from_hours(12));
        assert_eq!(age(&reader).as_hours(), 0);
    }
}
