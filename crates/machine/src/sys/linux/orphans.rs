//! Orphans on Linux: the nearest subreaper above a process inherits it. Shims and the daemon are
//! subreapers.

use std::io;
use std::time::Duration;

use crate::sys::processes::Process;

/// True: "no children" of a reaper means "no descendants".
pub const FALL_TO_REAPER: bool = true;
/// The interval of searches for orphans whose ends are not reported: there are none.
pub const LOOK_AGAIN: Option<Duration> = None;

/// Makes orphans below this process its children, in any session.
pub fn become_reaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Notes that this process keeps `leader`. The kernel does so already.
pub const fn keep(_leader: i32) {}

/// Returns the processes in `all` beside its descendants that belong to the shim with this pid
/// and these start ticks, or carry `mark`. There are none: such processes stay below the shim, or
/// fall to the daemon.
pub const fn escaped(
    _all: &[Process],
    _shim: Option<(i32, u64)>,
    _mark: &str,
) -> io::Result<Vec<Process>> {
    Ok(Vec::new())
}
