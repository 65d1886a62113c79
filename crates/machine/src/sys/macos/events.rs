//! The events that a shim waits for beside its agent's output: signals and a deadline, both by
//! one queue.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::Signal;

use super::clock;
use super::queue::{Queue, Wanted};

/// The id of the only timer of the queue.
const DEADLINE: usize = 0;
const NOTHING: Wanted = Wanted { ident: 0, filter: 0, flags: 0, notes: 0, data: 0, tag: 0 };

/// Signals that are blocked in this process, and one deadline.
pub struct Events {
    queue: Queue,
    /// Signals that were taken out of the queue, or came before there was a queue.
    came: Vec<Signal>,
}

impl Events {
    /// Receives `signals` from now on, including those that came since they were blocked.
    pub fn listen(signals: &[Signal]) -> io::Result<Self> {
        let queue = Queue::new()?;
        for signal in signals {
            let ident =
                usize::try_from(*signal as libc::c_int).expect("signals have positive numbers");
            // The queue also reports a signal that is blocked or ignored; the signal stays pending,
            // which does no harm.
            queue.change(Wanted {
                ident,
                filter: libc::EVFILT_SIGNAL,
                flags: libc::EV_ADD,
                ..NOTHING
            })?;
        }
        let early = pending()?;
        let came = signals.iter().copied().filter(|signal| early(*signal)).collect();
        Ok(Self { queue, came })
    }

    /// Sets the deadline, in milliseconds on the clock that continues while the machine sleeps.
    /// `None` removes the last one.
    pub fn wake_at(&self, deadline: Option<u64>) {
        let timer = Wanted { ident: DEADLINE, filter: libc::EVFILT_TIMER, ..NOTHING };
        let Some(at) = deadline else {
            // There may be no timer.
            let _ = self.queue.change(Wanted { flags: libc::EV_DELETE, ..timer });
            return;
        };
        let pause = Duration::from_millis(at).saturating_sub(clock::with_sleep());
        let micros = isize::try_from(pause.as_micros()).unwrap_or(isize::MAX);
        let _ = self.queue.change(Wanted {
            flags: libc::EV_ADD | libc::EV_ONESHOT,
            notes: libc::NOTE_USECONDS | libc::NOTE_MACH_CONTINUOUS_TIME,
            // A deadline that is over fires at once.
            data: micros.max(1),
            ..timer
        });
    }

    /// Returns the descriptors that are readable when there is a signal to take, or the deadline is
    /// over.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.queue.as_fd())
    }

    /// Takes a signal that came; `None` when all are taken.
    pub fn take_signal(&mut self) -> Option<Signal> {
        if self.came.is_empty() {
            // This also takes a deadline that is over.
            for (ident, filter, _) in self.queue.take().unwrap_or_default() {
                let signal =
                    i32::try_from(ident).ok().and_then(|number| Signal::try_from(number).ok());
                self.came.extend(signal.filter(|_| filter == libc::EVFILT_SIGNAL));
            }
        }
        self.came.pop()
    }
}

/// Returns which signals came before the queue listened.
fn pending() -> io::Result<impl Fn(Signal) -> bool> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable, and a number is initialised even if nothing is written.
    let (result, set) = unsafe { (libc::sigpending(set.as_mut_ptr()), set.assume_init()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: reads an initialised set.
    Ok(move |signal: Signal| unsafe { libc::sigismember(&raw const set, signal as libc::c_int) } == 1)
}
