//! Orphans on macOS: launchd always inherits them. The processes that an agent left behind must be
//! searched for.
//!
//! This is weaker than on Linux. A process may have left its shim's session and lost its parent
//! before it was seen. It is then found only by the mark in its environment. It is not found if it
//! has another environment, or a hidden one, as Apple's own programs have.

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use super::processes::{self, Process};
use crate::locks::lock;
use crate::sys::lineage::forked_by;
use domain::instance::MARK_VARIABLE;

/// False: "no children" says nothing of descendants.
pub const FALL_TO_REAPER: bool = false;
/// The interval of searches for orphans, because their ends are not reported.
pub const LOOK_AGAIN: Option<Duration> = Some(Duration::from_millis(50));

/// The processes that were seen in the tree of this shim. A process that one of them forked
/// belongs to the tree, even if its parent is gone.
static LINEAGE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Does nothing: there are no subreapers.
pub const fn become_reaper() -> io::Result<()> {
    Ok(())
}

/// Notes that this process keeps `leader`, which is alive.
pub fn keep(leader: i32) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let known = [me, leader].into_iter().filter_map(processes::birth).map(|birth| birth.own);
    lock(&LINEAGE).extend(known);
}

/// Returns the processes in `all` that belong to the shim with this pid and start time, or carry
/// `mark`. These are the members of the session that the shim leads, and the processes with the
/// mark. For the shim itself, the processes that known ones forked are added.
pub fn escaped(all: &[Process], shim: Option<(i32, u64)>, mark: &str) -> io::Result<Vec<Process>> {
    // The pid of a shim that is gone stays the id of its session while the session has members.
    let is_taken =
        |(pid, start): (i32, u64)| all.iter().any(|it| it.pid == pid && it.start_ticks != start);
    let session = shim.filter(|shim| !is_taken(*shim)).map(|(pid, _)| pid);
    let mut found = Vec::new();
    for process in all.iter().filter(|process| !process.is_zombie && Some(process.pid) != session) {
        let has_mark = || processes::try_find_variable(process.pid, MARK_VARIABLE);
        if Some(process.session) == session || has_mark()?.is_some_and(|its| its == mark) {
            found.push(*process);
        }
    }
    let mut lineage = lock(&LINEAGE);
    if !lineage.is_empty() {
        lineage.extend(
            found.iter().filter_map(|process| processes::birth(process.pid)).map(|birth| birth.own),
        );
        let births =
            all.iter().filter_map(|process| Some((*process, processes::birth(process.pid)?)));
        found.extend(
            forked_by(&mut lineage, births.collect()).iter().filter(|it| Some(it.pid) != session),
        );
    }
    Ok(found)
}
