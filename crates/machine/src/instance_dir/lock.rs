//! The lock of an instance folder. The daemon takes it before the spawn and hands the open file to
//! the shim, which keeps it for life. A held lock means that a shim lives or is just being started.
//! A free lock means that there is no shim, now or ever again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::sys::processes::{self, Process};
use crate::sys::regular_file::{self, MAX_SMALL};
pub use domain::instance::ShimIdentity;

const FILE: &str = "lock";

/// Returns the identity of this process, as a shim notes it.
///
/// # Errors
/// The process is not found in the system's list, or the list is not readable.
pub fn identify_this_process() -> io::Result<ShimIdentity> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    identify(&processes::read(pid).ok_or(io::ErrorKind::NotFound)?)
}

/// Returns the identity of a process that was seen on this host.
///
/// # Errors
/// The boot or the pid namespace is not known.
pub fn identify(process: &Process) -> io::Result<ShimIdentity> {
    Ok(ShimIdentity {
        pid: process.pid,
        start_ticks: process.start_ticks,
        boot_id: processes::boot_id()?,
        pid_namespace: processes::pid_namespace()?,
    })
}

/// Returns whether a shim lived in this boot and in this pid namespace, so that its pid can refer
/// to it at all.
pub fn is_of_here(shim: &ShimIdentity) -> bool {
    processes::boot_id().is_ok_and(|id| id == shim.boot_id)
        && processes::pid_namespace().is_ok_and(|inode| inode == shim.pid_namespace)
}

/// Returns whether the process with the pid of a shim is still the one that was noted.
pub fn is_alive(shim: &ShimIdentity) -> bool {
    is_of_here(shim)
        && processes::read(shim.pid).is_some_and(|process| process.start_ticks == shim.start_ticks)
}

/// The state of a lock, with the shim that was noted in it, if there is a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    Held(Option<ShimIdentity>),
    Free(Option<ShimIdentity>),
}

impl LockState {
    /// Returns the shim that holds the lock, if that is certain: a damaged or restored lock may
    /// name another process.
    pub fn live_shim(&self) -> Option<&ShimIdentity> {
        match self {
            Self::Held(noted) => noted.as_ref().filter(|shim| is_alive(shim)),
            Self::Free(_) => None,
        }
    }
}

/// Creates and takes the lock of a new instance.
pub fn take(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(FILE))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Writes the holder's identity into the lock.
pub fn note(lock: &File, shim: &ShimIdentity) -> io::Result<()> {
    let text = serde_json::to_vec(shim)?;
    lock.write_all_at(&text, 0)
}

/// Writes the identity of the shim of `dir` over the content of its lock. A holder keeps the lock.
pub fn note_anew(dir: &Path, shim: &ShimIdentity) -> io::Result<()> {
    let lock = regular_file::open_or_make(&dir.join(FILE))?;
    lock.set_len(0)?;
    note(&lock, shim)
}

/// Renames an unusable lock, and returns its new path.
pub fn set_aside(dir: &Path) -> io::Result<PathBuf> {
    super::record::set_aside(&dir.join(FILE))
}

/// Returns the state of the lock without disturbing other processes. A missing lock is free.
///
/// # Errors
/// Returns an error also if something other than a file is in its place.
pub fn look(dir: &Path) -> io::Result<LockState> {
    let file = match regular_file::open(&dir.join(FILE)) {
        Ok(file) => file,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(LockState::Free(None));
        }
        Err(error) => return Err(error),
    };
    // The lock is shared, so that two concurrent checks do not take each other for a shim.
    let is_free = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => true,
        Err(rustix::io::Errno::WOULDBLOCK) => false,
        Err(error) => return Err(error.into()),
    };
    let mut text = Vec::new();
    // A longer text is not a note of a shim.
    file.take(MAX_SMALL).read_to_end(&mut text)?;
    let noted = serde_json::from_slice(&text).ok();
    Ok(if is_free { LockState::Free(noted) } else { LockState::Held(noted) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_tells_whether_its_shim_lives() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look(dir.path()).unwrap(), LockState::Free(None));
        let lock = take(dir.path()).unwrap();
        assert_eq!(look(dir.path()).unwrap(), LockState::Held(None));
        let me = identify_this_process().unwrap();
        note(&lock, &me).unwrap();
        assert_eq!(look(dir.path()).unwrap(), LockState::Held(Some(me.clone())));
        assert!(is_alive(&me));
        drop(lock);
        assert_eq!(look(dir.path()).unwrap(), LockState::Free(Some(me)));
    }

    #[test]
    fn a_lock_that_somebody_made_longer_is_held_still() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path()).unwrap();
        let me = identify_this_process().unwrap();
        note(&lock, &me).unwrap();
        lock.set_len(20 << 30).unwrap();
        assert_eq!(look(dir.path()).unwrap(), LockState::Held(None));
        note_anew(dir.path(), &me).unwrap();
        assert_eq!(look(dir.path()).unwrap(), LockState::Held(Some(me)));
    }

    #[test]
    fn a_recycled_pid_is_somebody_else() {
        let me = identify_this_process().unwrap();
        assert!(!is_alive(&ShimIdentity { start_ticks: me.start_ticks + 1, ..me.clone() }));
        assert!(!is_of_here(&ShimIdentity { boot_id: "another".to_owned(), ..me }));
    }
}
