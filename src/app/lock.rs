//! One daemon per role and state directory: a lock that the kernel frees when its holder dies, whatever way.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::fcntl::{Flock, FlockArg};

/// Another daemon has it.
#[derive(Debug, thiserror::Error)]
#[error("another daemon (pid {pid}) uses the state directory: it holds `{}`", .path.display())]
pub struct InUse {
    path: PathBuf,
    pid: String,
}

/// The lock, held until it is dropped.
pub(super) struct RoleLock(#[allow(dead_code, reason = "held, not used")] Flock<File>);

impl RoleLock {
    /// Takes the lock or says who has it; never waits.
    pub(super) fn take(path: &Path) -> anyhow::Result<Self> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("could not open the lock `{}`", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // For whoever comes second. The lock is the proof, not this text.
                let note = lock
                    .set_len(0)
                    .and_then(|()| lock.rewind())
                    .and_then(|()| writeln!(lock, "{}", std::process::id()));
                note.with_context(|| format!("could not write to the lock `{}`", path.display()))?;
                Ok(Self(lock))
            }
            Err((mut file, _)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim();
                let pid = if pid.is_empty() { "unknown" } else { pid }.to_owned();
                Err(InUse { path: path.to_owned(), pid }.into())
            }
        }
    }
}
