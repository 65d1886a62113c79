//! One shim as a process: who it is, how it is told, and when it is gone. The same for a fresh and for an adopted one.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use nix::libc;
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::orphans;
use crate::instance_dir::lock::{self, LockState, ShimIdentity};
use crate::instance_dir::record::{Record, Stop};

/// How often the lock is looked at of a shim that can't be watched: it has not noted itself yet, or is not of this host.
const LOCK_POLL: Duration = Duration::from_millis(20);
const LONGEST_LOCK_POLL: Duration = Duration::from_secs(1);

/// The shim of one instance; empty until it is known for certain which process that is.
#[derive(Default)]
pub struct Shim(OnceLock<AsyncFd<OwnedFd>>);

impl Shim {
    /// Tells the shim to look at `stop.json`. Where it is not known yet, [`Shim::follow`] does it as soon as it is.
    pub fn tell_to_stop(&self) {
        if let Some(pidfd) = self.0.get() {
            // Gone already: its exit is on the way.
            let _ = rustix::process::pidfd_send_signal(pidfd.get_ref(), Signal::TERM);
        }
    }

    /// Returns when the shim is gone, and reaped if it was a child. `pidfd` is that of a shim just spawned.
    pub async fn follow(&self, dir: &Path, mut pidfd: Option<OwnedFd>) {
        let mut pause = LOCK_POLL;
        loop {
            if let Some(pidfd) = pidfd.take().and_then(register) {
                let pidfd = self.0.get_or_init(|| pidfd);
                // A stop that was wanted before this shim was known, by this daemon or the one before.
                if dir.join(Stop::FILE).exists() {
                    self.tell_to_stop();
                }
                while pidfd.readable().await.is_err() {}
                reap(pidfd.get_ref());
                return;
            }
            match lock::look(dir) {
                Ok(LockState::Free(_)) => return,
                // Who holds it but isn't the one noted is never signalled; its slot is taken as long as it holds it.
                Ok(LockState::Held(noted)) => pidfd = noted.and_then(|shim| open(&shim)),
                Err(_) => {}
            }
            if pidfd.is_none() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_LOCK_POLL);
            }
        }
    }
}

/// The process that is this shim; `None` if it is gone or of another boot or pid namespace.
pub fn open(shim: &ShimIdentity) -> Option<OwnedFd> {
    // The descriptor first, then the comparison: what was compared is what is watched and signalled.
    let pidfd = rustix::process::pidfd_open(Pid::from_raw(shim.pid)?, PidfdFlags::NONBLOCK).ok()?;
    shim.is_alive().then_some(pidfd)
}

fn register(pidfd: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, and stays the same descriptor, for as long as it is owned.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.ok()
}

/// Reaps a shim if it is a child of this process: an adopted one may be, after an exec, or not.
fn reap(pidfd: &OwnedFd) {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let id = pidfd.as_raw_fd().cast_unsigned();
    // SAFETY: `info` is writable; the pid in it is read only if a child was reaped, and zero otherwise.
    let pid = unsafe {
        let result = libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), libc::WEXITED | libc::WNOHANG);
        if result == 0 { info.assume_init().si_pid() } else { 0 }
    };
    orphans::shim_reaped(pid);
}
