//! Threads for blocking work, such as the start of a shim. A thread waits a moment for more work
//! before it ends, because a burst of starts would otherwise make a thread for each.
//!
//! The runtime's pool does not serve for this: it panics if there cannot be a thread, and it has
//! hundreds of threads, which keep the memory of a burst.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use machine::locks::lock;

/// The time that a thread waits for more work.
const WAIT: Duration = Duration::from_millis(500);

type Work = Box<dyn FnOnce() + Send>;

/// A set of threads with one queue of work.
pub struct Threads {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    has_work: Condvar,
}

struct State {
    waiting: VecDeque<Work>,
    n_threads: usize,
    n_idle: usize,
}

impl Threads {
    /// Makes a set of at most `most` threads of this name, without a thread.
    pub const fn new(name: &'static str, most: usize) -> Self {
        let state = State { waiting: VecDeque::new(), n_threads: 0, n_idle: 0 };
        Self { name, most, state: Mutex::new(state), has_work: Condvar::new() }
    }

    /// Lets a thread do `work`, which waits while all threads are busy. If it panics, only this
    /// work ends.
    ///
    /// # Errors
    /// There is no thread, and none can be made. The work is not done.
    pub fn run(&'static self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.waiting.push_back(Box::new(work));
        if state.waiting.len() <= state.n_idle {
            self.has_work.notify_one();
            return Ok(());
        }
        if state.n_threads == self.most {
            return Ok(());
        }
        match thread::Builder::new().name(self.name.to_owned()).spawn(move || self.work()) {
            Ok(_) => state.n_threads += 1,
            // A thread that is busy does it next.
            Err(_) if state.n_threads > 0 => {}
            Err(error) => {
                state.waiting.pop_back();
                return Err(error);
            }
        }
        Ok(())
    }

    fn work(&self) {
        while let Some(work) = self.next() {
            // The work has dropped what its caller waits for.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }

    /// Returns the next work, or `None` if this thread is to end.
    fn next(&self) -> Option<Work> {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            state.n_idle += 1;
            let waited =
                self.has_work.wait_timeout_while(state, WAIT, |state| state.waiting.is_empty());
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.n_idle -= 1;
        }
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.n_threads -= 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    #[test]
    fn a_thread_does_more_than_one_work_and_survives_a_panic() {
        static THREADS: Threads = Threads::new("one", 1);
        let (first, receiver) = mpsc::channel();
        let last = first.clone();
        let (open, gate) = mpsc::channel::<()>();
        let work = move || {
            let _ = gate.recv();
            first.send(thread::current().id()).unwrap();
        };
        THREADS.run(work).unwrap();
        THREADS.run(|| panic!("on purpose")).unwrap();
        THREADS.run(move || last.send(thread::current().id()).unwrap()).unwrap();
        drop(open);
        let done: Vec<ThreadId> = receiver.iter().collect();
        assert_eq!(done, [done[0]; 2]);
    }

    #[test]
    fn work_waits_for_a_thread_if_all_are_busy() {
        static THREADS: Threads = Threads::new("two", 2);
        let (sender, receiver) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let gate = std::sync::Arc::new(Mutex::new(gate));
        for n in 0..5 {
            let (sender, gate) = (sender.clone(), std::sync::Arc::clone(&gate));
            let work = move || {
                let _ = lock(&gate).recv();
                sender.send(n).unwrap();
            };
            THREADS.run(work).unwrap();
        }
        assert!(receiver.try_recv().is_err());
        assert_eq!(lock(&THREADS.state).n_threads, 2);
        drop(open);
        let mut done: Vec<i32> = receiver.iter().take(5).collect();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_thread_without_work_ends() {
        static THREADS: Threads = Threads::new("short", 1);
        for _ in 0..2 {
            let (sender, receiver) = mpsc::channel();
            THREADS.run(move || sender.send(()).unwrap()).unwrap();
            receiver.recv().unwrap();
            while lock(&THREADS.state).n_threads > 0 {
                thread::yield_now();
            }
        }
        assert_eq!(lock(&THREADS.state).n_idle, 0);
    }
}
