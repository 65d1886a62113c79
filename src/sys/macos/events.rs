//! What a keeper waits for beside its agent's output: signals and a deadline, both by one queue.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::Signal;

use super::clock;
use super::queue::{Queue, Wanted};

/// The one timer of the queue.
const DEADLINE: usize = 0;
const NOTHING: Wanted = Wanted { ident: 0, filter: 0, flags: 0, notes: 0, data: 0, tag: 0 };

/// Signals that are blocked in this process, and one deadline.
pub struct Events {
    queue: Queue,
    /// Taken out of the queue, or there before it was.
    came: Vec<Signal>,
}

impl Events {
    /// From now on, `signals` are taken here; also those that came since they were blocked.
    pub fn listen(signals: &[Signal]) -> io::Result<Self> {
        let queue = Queue::new()?;
        for signal in signals {
            let ident =
                usize::try_from(*signal as libc::c_int).expect("signals have positive numbers");
            // Told also of one that is blocked or ignored; it stays pending, which hurts nobody.
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

    /// The deadline, in milliseconds on the clock that goes on while the machine sleeps; none takes back the last one.
    pub fn wake_at(&self, deadline: Option<u64>) {
        let timer = Wanted { ident: DEADLINE, filter: libc::EVFILT_TIMER, ..NOTHING };
        let Some(at) = deadline else {
            // There may be none.
            let _ = self.queue.change(Wanted { flags: libc::EV_DELETE, ..timer });
            return;
        };
        let pause = Duration::from_millis(at).saturating_sub(clock::with_sleep());
        let micros = isize::try_from(pause.as_micros()).unwrap_or(isize::MAX);
        let _ = self.queue.change(Wanted {
            flags: libc::EV_ADD | libc::EV_ONESHOT,
            notes: libc::NOTE_USECONDS | libc::NOTE_MACH_CONTINUOUS_TIME,
            // The next one, if it is over already.
            data: micros.max(1),
            ..timer
        });
    }

    /// What is readable when there is something to take, or the deadline is over.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.queue.as_fd())
    }

    /// A signal that came; `None` when all are taken.
    pub fn take_signal(&mut self) -> Option<Signal> {
        if self.came.is_empty() {
            // With them goes the deadline that is over.
            for (ident, filter, _) in self.queue.take().unwrap_or_default() {
                let signal =
                    i32::try_from(ident).ok().and_then(|number| Signal::try_from(number).ok());
                self.came.extend(signal.filter(|_| filter == libc::EVFILT_SIGNAL));
            }
        }
        self.came.pop()
    }
}

/// Which signals came before anybody listened.
fn pending() -> io::Result<impl Fn(Signal) -> bool> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is writable, and a number is a whole one even if nothing is written.
    let (result, set) = unsafe { (libc::sigpending(set.as_mut_ptr()), set.assume_init()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: looks at a set that is there.
    Ok(move |signal: Signal| unsafe { libc::sigismember(&raw const set, signal as libc::c_int) } == 1)
}
