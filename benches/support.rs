//! The common parts of the benchmarks: a daemon in a folder of its own, clients of its sockets, its
//! agents, and the table of figures.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub mod agent;
pub mod bed;
pub mod clients;
pub mod figures;
pub mod fleet;
pub mod proc;
pub mod starts;

use std::time::Instant;

use machine::sys::processes;

// The server of tests/it/postgres.rs, which a benchmark starts as well, needs these three.

/// Says why a benchmark measures nothing.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Returns whether no living process has this pid.
pub fn is_gone(pid: i32) -> bool {
    processes::read(pid).is_none_or(|process| process.is_zombie)
}

/// Waits until `fact` returns something.
///
/// # Panics
/// If that takes too long.
pub fn until_some<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + clients::TIMEOUT;
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(Instant::now() < give_up_at, "waited in vain until {what}");
        std::thread::sleep(bed::PAUSE);
    }
}
