//! The signals that end the daemon, and the one that makes it read its configuration again.

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use runtime::nudge::{Nudge, Wakeups};

/// A signal that asks the daemon to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: a setting decides about the agents.
    Terminate,
    /// SIGINT: another setting decides about the agents.
    Interrupt,
    /// SIGUSR1: the agents are always kept. It is for a service manager that will start the daemon
    /// again.
    Leave,
}

impl Signal {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::Leave => "SIGUSR1",
        }
    }

    /// Returns the exit code that a shell shows for a process that this signal ended.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
            Self::Leave => 128 + 10,
        }
    }
}

/// Unblocks all signals in this thread and in the threads that it starts later. The process that
/// started the daemon may have blocked them: a daemon that cannot receive TERM could only be
/// killed. Child processes get a clean mask in any case.
///
/// # Errors
/// Returns an error if the kernel refuses.
pub fn unblock() -> std::io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// The receiver of signals. It listens from the moment it is made.
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
    leave: Stream,
    hang_up: Stream,
    hang_ups: Nudge,
    /// Never read. While it exists, a write to a file that grows too large (`ulimit -f`) fails, as
    /// on a full disk. It does not end the daemon.
    _file_size: Stream,
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            leave: signal(SignalKind::user_defined1())?,
            hang_up: signal(SignalKind::hangup())?,
            hang_ups: Nudge::new(),
            _file_size: signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        })
    }

    /// Listens for each SIGHUP that [`Signals::next`] receives.
    pub fn hang_ups(&self) -> Wakeups {
        self.hang_ups.listen()
    }

    /// Returns the next signal that asks the daemon to end. Cancel-safe: only the call that returns
    /// a signal takes it.
    pub async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                Some(()) = self.terminate.recv() => return Signal::Terminate,
                Some(()) = self.interrupt.recv() => return Signal::Interrupt,
                Some(()) = self.leave.recv() => return Signal::Leave,
                // A closed terminal is not a reason to end.
                Some(()) = self.hang_up.recv() => self.hang_ups.wake(),
            }
        }
    }
}
