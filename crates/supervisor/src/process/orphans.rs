//! Ends the processes that killed shims have left behind. The leaders die with their shims
//! (PDEATHSIG). The other processes fall to this process, the next subreaper. If this process
//! started later than they were left behind, it finds them by the mark in their environment. On
//! systems without subreapers, all are found by `sys::orphans`.
//!
//! A successful search must show that nothing is left. A search that fails, for want of descriptors
//! or memory, shows nothing and is repeated.
//!
//! A process without a mark (a tool started with an empty environment) is known only by having
//! fallen to this process. It is claimed only if it cannot be a stranger. PID 1 claims none,
//! because every orphan falls to it. A process that already had children in other sessions when it
//! began (`setsid sidecar & exec agent-coordinator run`) claims none either. The orphans of those
//! children fall to it as well. In these cases, such a tool outlives a killed shim. A process with
//! the mark of another installation is never touched. The shim of an unmarked orphan cannot be seen
//! either. All unmarked orphans are ended, and each lost instance waits for those that may be its
//! own. It does not wait for an orphan that was there when its shim still lived, so that an
//! unkillable process delays as few instances as possible.
//!
//! Children belong to a process, not to a table: their state is kept once per process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard};
use std::time::Duration;

use nix::sys::wait::WaitPidFlag;
use rustix::process::Signal;
use tracing::warn;

use machine::instance_dir::lock::ShimIdentity;
use machine::instance_dir::{MARK_VARIABLE, SHIM_COMM};
use machine::locks::{self, lock};
use machine::sys;
use machine::sys::orphans::FALL_TO_REAPER;
use machine::sys::processes::{self, Process, with_descendants};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Held for reading during a spawn, so that no unknown child exists during a search for orphans.
static UNMARKED: RwLock<Unmarked> = RwLock::new(Unmarked(BTreeMap::new()));
/// Spawned shims that are not reaped yet.
static SHIMS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// True if every orphan that falls to this process belongs to an agent.
static CLAIMS_UNMARKED: OnceLock<bool> = OnceLock::new();

/// The permission to spawn a shim.
pub struct SpawnPermit(RwLockReadGuard<'static, Unmarked>);

impl SpawnPermit {
    /// Waits while a search for orphans runs: about as long as reading all of `/proc`. Blocking.
    pub fn take() -> Self {
        Self(locks::read(&UNMARKED))
    }

    pub fn spawned(self, pid: i32) {
        lock(&SHIMS).insert(pid);
        drop(self.0);
    }
}

pub fn shim_reaped(pid: i32) {
    lock(&SHIMS).remove(&pid);
}

/// Makes this process the reaper of orphans. Blocking.
pub fn become_reaper() -> io::Result<()> {
    if CLAIMS_UNMARKED.get().is_none() {
        let children = detached_children(&processes::list()?)?;
        let has_strangers = children.iter().any(|child| !child.is_zombie);
        // Another table of this process may have been first. Neither has spawned a process until
        // both are here.
        let _ = CLAIMS_UNMARKED
            .set(FALL_TO_REAPER && !has_strangers && !rustix::process::getpid().is_init());
    }
    sys::orphans::become_reaper()
}

/// Ends all processes that carry `mark`, with all their descendants, and all unmarked orphans of
/// this process. Returns when no process lives that may have been below `shim`.
///
/// Processes that do not end are killed again, at growing intervals.
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

/// Repeats `round` until it finds nothing. A failed round does not count.
async fn until_none(round: impl Fn() -> io::Result<usize> + Send + Sync + 'static) {
    let round = Arc::new(round);
    let mut pause = FIRST_PAUSE;
    let mut has_failed = false;
    loop {
        let this_round = Arc::clone(&round);
        let looked = tokio::task::spawn_blocking(move || this_round()).await;
        match looked.unwrap_or_else(|panic| Err(panic.into())) {
            Ok(0) => return,
            Err(error) if !has_failed => {
                has_failed = true;
                let error = &error as &dyn std::error::Error;
                warn!(error, "could not look for the processes of a lost shim; will look again");
            }
            Ok(_) | Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the living processes whose mark is wanted; an error if not all could be read.
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

/// Sends KILL. The next search shows whether they are dead.
fn kill(processes: &[Process]) {
    for process in processes {
        process.send(Signal::KILL);
    }
}

/// Kills and reaps the unmarked orphans of this process. Returns the number of those that may have
/// been below `shim`.
fn end_unmarked(shim: Option<Identity>) -> io::Result<usize> {
    if !FALL_TO_REAPER {
        return Ok(0);
    }
    let mut known = locks::write(&UNMARKED);
    let all = processes::list()?;
    let (dead, living): (Vec<_>, Vec<_>) =
        detached_children(&all)?.into_iter().partition(|child| child.is_zombie);
    for child in dead {
        // Reaps by pid, never by -1: other modules handle the other children of this process.
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

/// Returns the children of this process in sessions of their own that are not shims. Other children
/// of this process share its session.
fn detached_children(all: &[Process]) -> io::Result<Vec<Process>> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let my_session =
        all.iter().find(|process| process.pid == me).ok_or(io::ErrorKind::NotFound)?.session;
    let shims = lock(&SHIMS).clone();
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

/// Returns the shims in `all` that still live now: no process in `all` is an orphan of one of them.
fn living_shims(all: &[Process]) -> BTreeSet<Identity> {
    let is_shim =
        |process: &&Process| processes::comm(process.pid).is_some_and(|comm| comm == SHIM_COMM);
    let shims = all.iter().filter(is_shim).filter_map(|shim| processes::read(shim.pid));
    shims.filter(|shim| !shim.is_zombie).map(|shim| identity(&shim)).collect()
}

/// The pid and the start ticks, which identify a process until the next boot.
type Identity = (i32, u64);

const fn identity(process: &Process) -> Identity {
    (process.pid, process.start_ticks)
}

/// The unmarked orphans of the last search, each with the shims that lived when it was first seen.
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

    /// Returns whether `orphan` may have been below `shim`; always true for an unknown shim.
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
        let old = orphan(100);
        let new = orphan(200);
        let first = (10, 1);
        let second = (20, 1);
        let mut unmarked = Unmarked(BTreeMap::new());
        // The first shim is lost, then the second.
        unmarked.see(&[old], || BTreeSet::from([second]));
        unmarked.see(&[old, new], BTreeSet::new);
        assert!(unmarked.may_have_been_below(Some(first), &old));
        assert!(!unmarked.may_have_been_below(Some(second), &old));
        assert!(unmarked.may_have_been_below(Some(second), &new));
        assert!(unmarked.may_have_been_below(None, &old), "a shim that never noted itself");
        assert!(unmarked.may_have_been_below(Some((20, 2)), &old), "another process with that pid");
        // Another process has its pid by now.
        unmarked.see(&[], BTreeSet::new);
        unmarked.see(&[old], BTreeSet::new);
        assert!(unmarked.may_have_been_below(Some(second), &old));
    }
}
