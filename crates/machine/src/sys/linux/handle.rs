//! A handle of one process, and never of another one that gets its pid later: a pidfd.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::libc;
use rustix::process::{Pid, PidfdFlags, Signal};

/// A process. Its descriptor is readable once the process is dead.
pub struct Handle(OwnedFd);

impl Handle {
    /// Opens the process that has this pid now; `None` if there is none, or no descriptor for it.
    pub fn open(pid: Pid) -> Option<Self> {
        rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok().map(Self)
    }

    /// Sends `signal`; returns `false` if the process is gone.
    pub fn send(&self, signal: Signal) -> bool {
        rustix::process::pidfd_send_signal(&self.0, signal).is_ok()
    }

    /// Returns the arguments of `waitid` for this process.
    pub fn wait_id(&self) -> (libc::idtype_t, libc::id_t) {
        (libc::P_PIDFD, self.0.as_raw_fd().cast_unsigned())
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Takes a descriptor of a process that was opened elsewhere.
impl From<OwnedFd> for Handle {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}
