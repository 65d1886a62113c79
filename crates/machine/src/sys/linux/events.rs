//! The events that a shim waits for beside its agent's output: signals and a deadline, each by a
//! descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// Signals that are blocked in this process, and one deadline.
pub struct Events {
    signals: SignalFd,
    timer: OwnedFd,
}

impl Events {
    /// Receives `signals` from now on, including those that came since they were blocked.
    pub fn listen(signals: &[Signal]) -> io::Result<Self> {
        let mut wanted = SigSet::empty();
        for signal in signals {
            wanted.add(*signal);
        }
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        Ok(Self {
            signals: SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            timer,
        })
    }

    /// Sets the deadline, in milliseconds on the clock that continues while the machine sleeps.
    /// `None` removes the last one.
    pub fn wake_at(&self, deadline: Option<u64>) {
        // All zeros disarm the timer.
        let at = deadline.map_or(0, |at| i64::try_from(at).unwrap_or(i64::MAX));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: at / 1_000, tv_nsec: at % 1_000 * 1_000_000 },
        };
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
    }

    /// Returns the descriptors that are readable when there is a signal to take, or the deadline is
    /// over.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.signals.as_fd(), self.timer.as_fd()].into_iter()
    }

    /// Takes a signal that came; `None` when all are taken, or for an unknown signal.
    pub fn take_signal(&mut self) -> Option<Signal> {
        let signal = self.signals.read_signal().ok()??;
        Signal::try_from(signal.ssi_signo.cast_signed()).ok()
    }
}
