//! Ending what shims that were killed have left behind. Their leaders die with them (PDEATHSIG); the rest falls to this
//! process, the next subreaper, or, if it was born later, is found by the mark in its environment.
//!
//! Children belong to a process, not to a table: what is known about them is kept once per process.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag};
use rustix::process::{Pid, Signal};

use crate::instance_dir::proc_fs::{self, Process};
use crate::instance_dir::{MARK_VARIABLE, SHIM_COMM};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Held for reading during a spawn, so that no child exists that isn't known while orphans are looked for.
static SPAWNING: RwLock<()> = RwLock::new(());
/// Spawned shims that are not reaped yet.
static SHIMS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The right to spawn a shim.
pub struct SpawnPermit(RwLockReadGuard<'static, ()>);

impl SpawnPermit {
    /// Waits while orphans are looked for: about as long as a look at all of `/proc`. Blocking.
    pub fn take() -> Self {
        Self(SPAWNING.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn spawned(self, pid: i32) {
        SHIMS.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        drop(self.0);
    }
}

pub fn shim_reaped(pid: i32) {
    SHIMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

/// Ends all orphans of this process, and everything that carries `mark` with all below it; returns when nothing of it lives.
///
/// What can't be killed is asked again and again, at growing intervals.
pub async fn clear(mark: String) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mark = mark.clone();
        let round = tokio::task::spawn_blocking(move || {
            let all = proc_fs::list().unwrap_or_default();
            end_orphans() + kill(&with_descendants(&all, &marked(&all, |found| *found == mark)))
        });
        if round.await.unwrap_or(0) == 0 {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Living processes whose mark is one that is looked for.
pub fn marked(all: &[Process], is_wanted: impl Fn(&String) -> bool) -> Vec<Process> {
    let is_marked =
        |process: &&Process| proc_fs::find_variable(process.pid, MARK_VARIABLE).is_some_and(|mark| is_wanted(&mark));
    all.iter().filter(|process| !process.is_zombie).filter(is_marked).copied().collect()
}

/// `roots` and everything below them, without zombies, each once.
pub fn with_descendants(all: &[Process], roots: &[Process]) -> Vec<Process> {
    let below = roots.iter().flat_map(|root| proc_fs::descendants(all, root.pid));
    let mut found: Vec<Process> = roots.iter().copied().chain(below).filter(|process| !process.is_zombie).collect();
    found.sort_by_key(|process| process.pid);
    found.dedup();
    found
}

/// Returns how many were there to be killed.
pub fn kill(processes: &[Process]) -> usize {
    processes.iter().filter(|process| process.send(Signal::KILL)).count()
}

/// Kills and reaps what fell to this process; returns how many orphans there were.
///
/// An orphan is a child in a session of its own that is no shim: what this process starts otherwise shares its session.
fn end_orphans() -> usize {
    let _no_spawn = SPAWNING.write().unwrap_or_else(PoisonError::into_inner);
    let me = rustix::process::getpid();
    let Ok(my_session) = rustix::process::getsid(None) else { return 0 };
    let all = proc_fs::list().unwrap_or_default();
    let shims = SHIMS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_orphan = |process: &&Process| {
        process.parent == me.as_raw_nonzero().get()
            && process.session != my_session.as_raw_nonzero().get()
            && !shims.contains(&process.pid)
            && proc_fs::comm(process.pid).is_some_and(|comm| comm != SHIM_COMM)
    };
    let orphans: Vec<Process> = all.iter().filter(is_orphan).copied().collect();
    kill(&with_descendants(&all, &orphans));
    for pid in orphans.iter().filter_map(|orphan| Pid::from_raw(orphan.pid)) {
        // By pid, never -1: other children of this process are other modules' business.
        let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
        let _ = nix::sys::wait::waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
    }
    orphans.len()
}
