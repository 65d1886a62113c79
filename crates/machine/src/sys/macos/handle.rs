//! A handle of one process: a queue that reports its end, and its start time.
//!
//! This is weaker than on Linux in one point. A signal goes to a number, which may have become
//! another process's between the check of its start time and the signal.

use std::os::fd::{AsRawFd, RawFd};

use nix::libc;
use rustix::process::{Pid, Signal};

use super::processes::{self, Process};
use super::queue::{Queue, Wanted};

/// A process. Its descriptor is readable once the process has exited, which may be a moment before
/// it can be reaped.
pub struct Handle {
    queue: Queue,
    process: Process,
}

impl Handle {
    /// Opens the process that has this pid now; `None` if there is none, or no descriptor for it.
    pub fn open(pid: Pid) -> Option<Self> {
        let queue = Queue::new().ok()?;
        let pid = pid.as_raw_nonzero().get();
        let exit = Wanted {
            ident: usize::try_from(pid).ok()?,
            filter: libc::EVFILT_PROC,
            flags: libc::EV_ADD,
            notes: libc::NOTE_EXIT,
            data: 0,
            tag: 0,
        };
        // The registration fails for a process that is dead already. It comes before the reading, so
        // that the kernel reports the end of exactly the process that was read.
        queue.change(exit).ok()?;
        Some(Self { queue, process: processes::read(pid)? })
    }

    /// Sends `signal`; returns `false` if the process is gone.
    pub fn send(&self, signal: Signal) -> bool {
        self.process.send(signal)
    }

    /// Returns the arguments of `waitid` for this process.
    pub fn wait_id(&self) -> (libc::idtype_t, libc::id_t) {
        (libc::P_PID, self.process.pid.cast_unsigned())
    }
}

/// Exposes the queue. The event is never taken, so that the descriptor stays readable.
impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_raw_fd()
    }
}
