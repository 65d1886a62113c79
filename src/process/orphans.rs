//! Ending what shims that were killed have left behind. Their leaders die with them (PDEATHSIG); the rest falls to this
//! process, the next subreaper, or, if it was born later, is found by the mark in its environment. Where there are no subreapers, all of it
//! is found by what `sys::orphans` knows to look for.
//!
//! That nothing is left must be seen: a look that fails, for want of descriptors or memory, is repeated, and means nothing.
//!
//! What carries no mark (a tool started with an empty environment) is known by nothing but having fallen to this process. It
//! is claimed only where it can be no stranger: not by PID 1, to which everything falls, and not where this process already
//! had children in other sessions when it began (`setsid sidecar & exec agent-coordinator run`), since what those leave falls
//! to it as well. There, such a tool outlives a killed shim. What carries the mark of another installation is never touched.
//!
//! Which shim an unmarked orphan had can't be seen either. All are ended; each lost instance waits for those that may be its
//! own: not for one that was there when its shim still lived, so that what can't be killed holds up as few as possible.
//!
//! Children belong to a process, not to a table: what is known about them is kept once per process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use nix::sys::wait::WaitPidFlag;
use rustix::process::Signal;
use tracing::warn;

use crate::instance_dir::lock::ShimIdentity;
use crate::instance_dir::{MARK_VARIABLE, SHIM_COMM};
use crate::sys;
use crate::sys::orphans::FALL_TO_REAPER;
use crate::sys::processes::{self, Process, with_descendants};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Held for reading during a spawn, so that no child exists that isn't known while orphans are looked for.
static UNMARKED: RwLock<Unmarked> = RwLock::new(Unmarked(BTreeMap::new()));
/// Spawned shims that are not reaped yet.
static SHIMS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// Whether whatever falls to this process is an agent's.
static CLAIMS_UNMARKED: OnceLock<bool> = OnceLock::new();

/// The right to spawn a shim.
pub struct SpawnPermit(RwLockReadGuard<'static, Unmarked>);

impl SpawnPermit {
    /// Waits while orphans are looked for: about as long as a look at all of `/proc`. Blocking.
    pub fn take() -> Self {
        Self(UNMARKED.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn spawned(self, pid: i32) {
        SHIMS.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        drop(self.0);
    }
}

pub fn shim_reaped(pid: i32) {
    SHIMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

/// Makes this process the one that orphans fall to. Blocking.
pub fn become_reaper() -> io::Result<()> {
    if CLAIMS_UNMARKED.get().is_none() {
        let children = detached_children(&processes::list()?)?;
        let has_strangers = children.iter().any(|child| !child.is_zombie);
        // Another table of this process may have been first; until both are here, neither has spawned anything.
        let _ = CLAIMS_UNMARKED
            .set(FALL_TO_REAPER && !has_strangers && !rustix::process::getpid().is_init());
    }
    sys::orphans::become_reaper()
}

/// Ends everything that carries `mark` with all below it, and all unmarked orphans of this process; returns when nothing lives
/// that may have been below `shim`.
///
/// What can't be killed is asked again and again, at growing intervals.
pub async fn clear(mark: String, shim: Option<ShimIdentity>) {
    let shim = shim.map(|shim| (shim.pid, shim.start_ticks));
    until_none(move || {
        let all = processes::list()?;
        let mut roots = marked(&all, |found| *found == mark)?;
        roots.extend(sys::orphans::escaped(&all, shim, &mark)?);
        let found = with_descendants(&all, &roots);
        kill(&found);
        Ok(found.len() + end_unmarked(shim)?)
    })
    .await;
}

/// Repeats `round` until it has found nothing. One that fails has not looked.
async fn until_none(round: impl Fn() -> io::Result<usize> + Send + Sync + 'static) {
    let round = Arc::new(round);
    let (mut pause, mut has_failed) = (FIRST_PAUSE, false);
    loop {
        let this_round = Arc::clone(&round);
        let looked = tokio::task::spawn_blocking(move || this_round()).await;
        match looked.unwrap_or_else(|panic| Err(panic.into())) {
            Ok(0) => return,
            Err(error) if !has_failed => {
                has_failed = true;
                let error = &error as &dyn std::error::Error;
                warn!(error, "could not look for what a lost keeper left behind; will look again");
            }
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Living processes whose mark is one that is looked for; an error where not all could be looked at.
pub fn marked(all: &[Process], is_wanted: impl Fn(&String) -> bool) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for process in all.iter().filter(|process| !process.is_zombie) {
        if processes::try_find_variable(process.pid, MARK_VARIABLE)?
            .is_some_and(|mark| is_wanted(&mark))
        {
            found.push(*process);
        }
    }
    Ok(found)
}

/// Whether they are dead, the next look says.
fn kill(processes: &[Process]) {
    for process in processes {
        process.send(Signal::KILL);
    }
}

/// Kills and reaps what fell to this process without a mark; returns how much of it there was that may have been below `shim`.
fn end_unmarked(shim: Option<Identity>) -> io::Result<usize> {
    if !FALL_TO_REAPER {
        return Ok(0);
    }
    let mut known = UNMARKED.write().unwrap_or_else(PoisonError::into_inner);
    let all = processes::list()?;
    let (dead, living): (Vec<_>, Vec<_>) =
        detached_children(&all)?.into_iter().partition(|child| child.is_zombie);
    for child in dead {
        // By pid, never -1: other children of this process are other modules' business.
        let pid = nix::unistd::Pid::from_raw(child.pid);
        let _ = nix::sys::wait::waitpid(pid, Some(WaitPidFlag::WNOHANG));
    }
    if CLAIMS_UNMARKED.get() != Some(&true) {
        return Ok(0);
    }
    let mut orphans = Vec::new();
    for child in living {
        if processes::try_find_variable(child.pid, MARK_VARIABLE)?.is_none() {
            orphans.push(child);
        }
    }
    known.see(&orphans, || living_shims(&all));
    kill(&with_descendants(&all, &orphans));
    orphans.retain(|orphan| known.may_have_been_below(shim, orphan));
    Ok(with_descendants(&all, &orphans).len())
}

/// Children of this process in sessions of their own that are no shims: what it starts otherwise shares its session.
fn detached_children(all: &[Process]) -> io::Result<Vec<Process>> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let my_session =
        all.iter().find(|process| process.pid == me).ok_or(io::ErrorKind::NotFound)?.session;
    let shims = SHIMS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut found = Vec::new();
    for child in all.iter().filter(|child| child.parent == me && child.session != my_session) {
        if !shims.contains(&child.pid)
            && processes::try_comm(child.pid)?.is_some_and(|comm| comm != SHIM_COMM)
        {
            found.push(*child);
        }
    }
    Ok(found)
}

/// The shims in `all` that live even now: nothing in `all` has lost one of them.
fn living_shims(all: &[Process]) -> BTreeSet<Identity> {
    let is_shim =
        |process: &&Process| processes::comm(process.pid).is_some_and(|comm| comm == SHIM_COMM);
    let shims = all.iter().filter(is_shim).filter_map(|shim| processes::read(shim.pid));
    shims.filter(|shim| !shim.is_zombie).map(|shim| identity(&shim)).collect()
}

/// Pid and start ticks: a process, until the next boot.
type Identity = (i32, u64);

const fn identity(process: &Process) -> Identity {
    (process.pid, process.start_ticks)
}

/// The unmarked orphans of the last look, each with the shims that lived when it was first seen.
struct Unmarked(BTreeMap<Identity, Arc<BTreeSet<Identity>>>);

impl Unmarked {
    fn see(&mut self, orphans: &[Process], living_shims: impl FnOnce() -> BTreeSet<Identity>) {
        let now: BTreeSet<Identity> = orphans.iter().map(identity).collect();
        self.0.retain(|orphan, _| now.contains(orphan));
        if now.iter().any(|orphan| !self.0.contains_key(orphan)) {
            let living_shims = Arc::new(living_shims());
            for orphan in now {
                self.0.entry(orphan).or_insert_with(|| Arc::clone(&living_shims));
            }
        }
    }

    /// Of a shim that isn't known, everything.
    fn may_have_been_below(&self, shim: Option<Identity>, orphan: &Process) -> bool {
        let lived_beside = self.0.get(&identity(orphan));
        shim.zip(lived_beside).is_none_or(|(shim, lived_beside)| !lived_beside.contains(&shim))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn only_a_look_that_finds_nothing_means_that_nothing_is_left() {
        let n_looks = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_looks);
        until_none(move || match counter.fetch_add(1, Ordering::Relaxed) {
            0 => Err(rustix::io::Errno::MFILE.into()),
            1 => Ok(2),
            2 => panic!("a look that panics"),
            _ => Ok(0),
        })
        .await;
        assert_eq!(n_looks.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn an_orphan_is_of_any_shim_that_did_not_live_beside_it() {
        let orphan = |pid| Process {
            pid,
            parent: 1,
            group: 0,
            session: 0,
            start_ticks: 7,
            is_zombie: false,
            is_stopped: false,
        };
        let (old, new) = (orphan(100), orphan(200));
        let (first, second) = ((10, 1), (20, 1));
        let mut unmarked = Unmarked(BTreeMap::new());
        // The first shim is lost, then the second.
        unmarked.see(&[old], || BTreeSet::from([second]));
        unmarked.see(&[old, new], BTreeSet::new);
        assert!(unmarked.may_have_been_below(Some(first), &old));
        assert!(!unmarked.may_have_been_below(Some(second), &old));
        assert!(unmarked.may_have_been_below(Some(second), &new));
        assert!(unmarked.may_have_been_below(None, &old), "a shim that never noted itself");
        assert!(unmarked.may_have_been_below(Some((20, 2)), &old), "another process with that pid");
        // Its pid is another's by now.
        unmarked.see(&[], BTreeSet::new);
        unmarked.see(&[old], BTreeSet::new);
        assert!(unmarked.may_have_been_below(Some(second), &old));
    }
}
