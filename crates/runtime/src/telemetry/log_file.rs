//! The log file, which is opened again after another program has moved it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to open the log file again before the next line. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Reopen(Arc<AtomicBool>);

impl Reopen {
    pub(super) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    reopen: Reopen,
}

impl LogFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn open(path: &Path, reopen: Reopen) -> io::Result<Self> {
        // The working directory of the daemon does not change, but a path should not depend on it.
        let path = std::path::absolute(path)?;
        Ok(Self { file: append(&path)?, path, reopen })
    }
}

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.reopen.take() {
            // While no new file can be opened, the lines are safest in the former one.
            if let Ok(file) = append(&self.path) {
                self.file = file;
            } else {
                self.reopen.ask();
            }
        }
        self.file.write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_go_to_a_new_file_once_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.log");
        let moved = folder.path().join("daemon.log.1");
        let reopen = Reopen::default();
        let mut log = LogFile::open(&path, reopen.clone()).unwrap();
        log.write_all(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        log.write_all(b"two\n").unwrap();
        reopen.ask();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_loses_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log/daemon.log");
        let moved = folder.path().join("moved");
        fs::create_dir(folder.path().join("log")).unwrap();
        let reopen = Reopen::default();
        let mut log = LogFile::open(&path, reopen.clone()).unwrap();
        fs::rename(folder.path().join("log"), &moved).unwrap();
        reopen.ask();
        log.write_all(b"one\n").unwrap();
        fs::create_dir(folder.path().join("log")).unwrap();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(moved.join("daemon.log")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
    }
}
