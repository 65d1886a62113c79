//! Allows one daemon per role and state directory: the kernel frees the lock when its holder ends
//! in any way.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rustix::process::{FlockType, fcntl_getlk};

use machine::sys::regular_file::{self, MAX_SMALL};
use runtime::clock;

/// The time to wait for the lock. A process that is being spawned holds a copy of every open file
/// until its exec, so a lock may outlive its daemon for that time.
const TIMEOUT: Duration = Duration::from_millis(300);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Another daemon holds the lock.
#[derive(Debug, thiserror::Error)]
#[error("another daemon (pid {pid}) runs with this state: it holds `{}`", .path.display())]
pub struct InUse {
    path: PathBuf,
    pid: String,
}

/// The file system cannot tell whether another daemon holds the lock.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file system of `{}` does not lock files, so a second daemon would not be noticed and could damage the state; \
     name a folder of a local file system (`state_dir`, `store`)",
    .path.display()
)]
pub struct NoLocks {
    path: PathBuf,
    #[source]
    source: Errno,
}

/// The lock, held until it is dropped.
pub(super) struct RoleLock(#[allow(dead_code, reason = "held, not used")] Flock<File>);

impl RoleLock {
    /// Takes the lock, or returns an error that names its holder. Waits a moment for a predecessor
    /// that is just ending.
    pub(super) async fn take(path: &Path) -> anyhow::Result<Self> {
        let opened = regular_file::open_or_make(path);
        let mut file =
            opened.with_context(|| format!("could not open the lock `{}`", path.display()))?;
        let give_up_at = clock::now() + TIMEOUT;
        let locked = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Err((held, Errno::EWOULDBLOCK)) if clock::now() < give_up_at => file = held,
                locked => break locked,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        match locked {
            Ok(mut lock) => {
                // SQLite uses locks of this other kind, which the file system may not support.
                let of_range = fcntl_getlk(&*lock, &FlockType::WriteLock.into());
                of_range.map_err(|errno| refusal(path, Errno::from_raw(errno.raw_os_error())))?;
                // The pid is for the error message of a second daemon. The lock is the proof, not
                // this text.
                let note = lock
                    .set_len(0)
                    .and_then(|()| lock.rewind())
                    .and_then(|()| writeln!(lock, "{}", std::process::id()));
                note.with_context(|| format!("could not write to the lock `{}`", path.display()))?;
                Ok(Self(lock))
            }
            Err((_, errno)) if errno != Errno::EWOULDBLOCK => Err(refusal(path, errno)),
            Err((file, _)) => {
                let mut pid = String::new();
                let _ = file.take(MAX_SMALL).read_to_string(&mut pid);
                let pid = pid.trim();
                let pid = if pid.is_empty() { "unknown" } else { pid }.to_owned();
                Err(InUse { path: path.to_owned(), pid }.into())
            }
        }
    }
}

/// Returns the error for a file that cannot be locked for a reason other than another holder.
fn refusal(path: &Path, errno: Errno) -> anyhow::Error {
    // Lustre without `-o flock` returns the last one.
    let of_file_system =
        [Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOTSUP, Errno::EINVAL, Errno::ENOSYS];
    if of_file_system.contains(&errno) {
        return NoLocks { path: path.to_owned(), source: errno }.into();
    }
    anyhow::Error::from(errno).context(format!("could not take the lock `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_outlives_its_daemon_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("server.lock");
        let dying = RoleLock::take(&path).await.expect("a free lock");
        let (next, ()) = tokio::join!(RoleLock::take(&path), async {
            tokio::time::sleep(TIMEOUT / 2).await;
            drop(dying);
        });
        let _held = next.expect("the lock that became free");
        let asked_at = Instant::now();
        let refused = RoleLock::take(&path).await.err().expect("a lock that is held").to_string();
        assert!(
            refused.contains(&format!("another daemon (pid {})", std::process::id())),
            "{refused}"
        );
        // The time is of the paused clock, which no load slows down.
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
    }

    #[test]
    fn a_file_system_without_locks_is_named_and_not_taken_for_another_daemon() {
        for errno in [Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS] {
            let refused = refusal(Path::new("/mnt/state.db.lock"), errno);
            assert!(refused.is::<NoLocks>());
            let said = refused.to_string();
            assert!(
                said.contains("file system of `/mnt/state.db.lock` does not lock files")
                    && said.contains("name a folder of a local file system"),
                "{said}"
            );
        }
        let other = refusal(Path::new("/mnt/state.db.lock"), Errno::EIO);
        assert_eq!(other.to_string(), "could not take the lock `/mnt/state.db.lock`");
    }
}
