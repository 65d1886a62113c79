//! Who inherits a process whose parent is gone: the nearest subreaper above it, which keepers and the daemon are.

use std::io;
use std::time::Duration;

use crate::sys::processes::Process;

/// "No children" of a reaper is "no descendants".
pub const FALL_TO_REAPER: bool = true;
/// How often one must look for orphans that nobody is told of: there are none.
pub const LOOK_AGAIN: Option<Duration> = None;

/// Orphans below this process become children of it, whatever session they moved to.
pub fn become_reaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// This process keeps `leader`: the kernel does so.
pub const fn keep(_leader: i32) {}

/// What the keeper with this pid and these start ticks, or who carries `mark`, has in `all` beside its descendants: nothing, they
/// stay below it, or fall to the daemon.
pub const fn escaped(
    _all: &[Process],
    _keeper: Option<(i32, u64)>,
    _mark: &str,
) -> io::Result<Vec<Process>> {
    Ok(Vec::new())
}
