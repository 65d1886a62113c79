//! The signals that end the daemon, and the one that makes it read its configuration again.

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::nudge::{Nudge, Wakeups};

/// A signal that asks the daemon to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: what becomes of the agents is a setting.
    Terminate,
    /// SIGINT: that is another.
    Interrupt,
    /// SIGUSR1: they are kept in any case, for a service manager that knows that it will start the daemon again.
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

    /// What a shell calls the exit of a process that this signal ended.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
            Self::Leave => 128 + 10,
        }
    }
}

/// Lets this thread, and those it starts from then on, hear what whoever started the process had blocked: a daemon that can't
/// hear a TERM could only be killed. What it starts has a clean mask in any case.
///
/// # Errors
/// When the kernel refuses.
pub fn unblock() -> std::io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Listens from the moment it is made.
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
    leave: Stream,
    hang_up: Stream,
    hang_ups: Nudge,
    /// Never read: while somebody listens, a file that grows too large (`ulimit -f`) is an error of that write, as on a full
    /// disk, and not the end of the daemon.
    _file_size: Stream,
}

impl Signals {
    /// # Errors
    /// When the kernel refuses a handler.
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

    /// Hears each SIGHUP that [`Signals::next`] meets.
    pub fn hang_ups(&self) -> Wakeups {
        self.hang_ups.listen()
    }

    /// The next signal to end. Cancel-safe: a signal is only taken by the call that returns it.
    pub async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                Some(()) = self.terminate.recv() => return Signal::Terminate,
                Some(()) = self.interrupt.recv() => return Signal::Interrupt,
                Some(()) = self.leave.recv() => return Signal::Leave,
                // A closed terminal is no reason to end.
                Some(()) = self.hang_up.recv() => self.hang_ups.wake(),
            }
        }
    }
}
