//! Who inherits a process whose parent is gone: launchd, always. What an agent left behind must be looked for.
//!
//! Weaker than on Linux: one that has left its keeper's session, and whose parent was gone before anybody saw it, is found only by the
//! mark in its environment, and not at all where that is another one, or hidden as Apple's own programs' is.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::processes::{self, Process};
use crate::domain::instance::MARK_VARIABLE;
use crate::sys::lineage::forked_by;

/// "No children" says nothing of descendants.
pub const FALL_TO_REAPER: bool = false;
/// How often one must look for orphans: nobody is told of their ends.
pub const LOOK_AGAIN: Option<Duration> = Some(Duration::from_millis(50));

/// Whoever was seen in the tree of this keeper: a process that one of them forked is of that tree, whatever became of its parent.
static LINEAGE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// There are no subreapers.
pub const fn become_reaper() -> io::Result<()> {
    Ok(())
}

/// This process keeps `leader`, which is alive.
pub fn keep(leader: i32) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let known = [me, leader].into_iter().filter_map(processes::birth).map(|birth| birth.own);
    LINEAGE.lock().unwrap_or_else(PoisonError::into_inner).extend(known);
}

/// What the keeper with this pid and start time, or who carries `mark`, has in `all`: its session, which it leads, those with the mark,
/// and, for the keeper itself, all that were forked by those it knows.
pub fn escaped(
    all: &[Process],
    keeper: Option<(i32, u64)>,
    mark: &str,
) -> io::Result<Vec<Process>> {
    // A keeper that is gone leaves its number to its session, as long as anybody is in that.
    let is_taken =
        |(pid, start): (i32, u64)| all.iter().any(|it| it.pid == pid && it.start_ticks != start);
    let session = keeper.filter(|keeper| !is_taken(*keeper)).map(|(pid, _)| pid);
    let mut found = Vec::new();
    for process in all.iter().filter(|process| !process.is_zombie && Some(process.pid) != session) {
        let has_mark = || processes::try_find_variable(process.pid, MARK_VARIABLE);
        if Some(process.session) == session || has_mark()?.is_some_and(|its| its == mark) {
            found.push(*process);
        }
    }
    let mut lineage = LINEAGE.lock().unwrap_or_else(PoisonError::into_inner);
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
