//! Reads the instances that an earlier daemon left in the state directory, before anything is
//! started. Blocking, except for ending strays.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tracing::{info, warn};

use super::ProcessConfig;
use super::{orphans, shims};
use domain::LaunchId;
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir::lock::{self, LockState, ShimIdentity};
use machine::instance_dir::record::{self, Exit, Record, RecordError, Spec, Started, Stop};
use machine::instance_dir::{self, SHIM_COMM};
use machine::sys::processes::{self, Process};
use machine::sys::regular_file;
use runtime::clock;

/// The time that a killed stray may take to end. An unkillable stray must not keep all others from
/// running.
const TIMEOUT: Duration = Duration::from_secs(5);
const STRAY_POLL: Duration = Duration::from_millis(20);

/// The result of [`open`](super::open).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adoption {
    /// The number of live instances, which count from now on.
    pub n_adopted: usize,
    /// The number of instances that ended while no daemon ran, or whose end the server has not
    /// acknowledged.
    pub n_ended: usize,
    /// The number of instances whose shim was killed or never started.
    pub n_lost: usize,
    /// The number of live processes of this installation without a usable folder; they have been
    /// ended.
    pub n_strays: usize,
    /// The number of folders that could not be used; they have been set aside.
    pub n_set_aside: usize,
}

/// A usable instance folder.
pub struct UsableFolder {
    pub dir: PathBuf,
    pub spec: Spec,
    pub lock: LockState,
}

/// An unusable instance folder.
struct UnusableFolder {
    dir: PathBuf,
    /// A process holds the lock of the folder.
    is_held: bool,
    shim: Option<ShimIdentity>,
}

/// The contents of `instances/`, with the strays that must end before anything starts.
pub struct Stock {
    pub found: Vec<UsableFolder>,
    unusable: Vec<UnusableFolder>,
}

/// Reads all instance folders.
pub fn take_stock(state_dir: &Path) -> io::Result<Stock> {
    let mut stock = Stock { found: Vec::new(), unusable: Vec::new() };
    for entry in std::fs::read_dir(instance_dir::instances(state_dir))? {
        let entry = entry?;
        let dir = entry.path();
        // Folders that were set aside begin with a dot. Other names that are not launch ids are
        // ignored.
        let Some(launch) =
            entry.file_name().to_str().and_then(|name| name.parse::<LaunchId>().ok())
        else {
            continue;
        };
        if !entry.file_type()?.is_dir() {
            warn!(launch_id = %launch, path = %dir.display(), "not an instance folder; it is set aside");
            stock.unusable.push(UnusableFolder { dir, is_held: false, shim: None });
            continue;
        }
        let lock = usable_lock(&dir, &launch)?;
        match record::read::<Spec>(&dir) {
            Ok(Some(spec)) if spec.launch_id == launch => {
                let lock = mend_lock(&dir, lock);
                stock.found.push(UsableFolder { dir, spec, lock });
            }
            Ok(None) if matches!(lock, LockState::Free(_)) && says_nothing(&dir)? => {
                remove_blank(&dir, &launch);
            }
            Err(RecordError::Read { source, .. }) if !regular_file::is_lasting(&source) => {
                return Err(source);
            }
            unusable => {
                let error = unusable.err();
                let error = error.as_ref().map(|error| error as &dyn std::error::Error);
                warn!(launch_id = %launch, path = %dir.display(), error, "instance folder can't be used; it is set aside");
                let (is_held, shim) = match lock {
                    LockState::Held(shim) => (true, shim),
                    LockState::Free(_) => (false, None),
                };
                stock.unusable.push(UnusableFolder { dir, is_held, shim });
            }
        }
    }
    Ok(stock)
}

/// Returns the state of a folder's lock. An unusable lock is set aside, and counts as missing.
fn usable_lock(dir: &Path, launch: &LaunchId) -> io::Result<LockState> {
    match lock::look(dir) {
        Err(error) if regular_file::is_lasting(&error) => {
            let error = &error as &dyn std::error::Error;
            warn!(launch_id = %launch, path = %dir.display(), error, "lock of an instance can't be used; it is set aside");
            // If nothing in the folder can be renamed, no record can be read either.
            let _ = lock::set_aside(dir);
            Ok(LockState::Free(None))
        }
        looked => looked,
    }
}

/// Returns the state of the lock of a usable folder, and repairs it if necessary. A lock that names
/// no living shim may be wrong if files were damaged or restored from a copy. The shim then holds
/// another file, but still has the folder in its arguments.
fn mend_lock(dir: &Path, lock: LockState) -> LockState {
    let is_named = matches!(&lock, LockState::Held(Some(shim)) if lock::is_alive(shim));
    if is_named || instance_dir::is_ended(dir) {
        return lock;
    }
    let Some(shim) = shims::find(dir) else {
        return lock;
    };
    // The log that the shim writes to may be gone, too. The signal comes before the repair of the
    // lock: the next daemon repeats an unfinished repair only while the lock is wrong.
    if let Some(handle) = shims::open(&shim) {
        handle.send(Signal::HUP);
    }
    let noted = lock::note_anew(dir, &shim);
    if let Err(error) = noted {
        warn!(path = %dir.display(), error = &error as &dyn std::error::Error, "could not repair the lock file of an instance");
        return lock;
    }
    crash_point::reach(CrashPoint::LockMended);
    warn!(path = %dir.display(), pid = shim.pid, "repaired the lock file of an instance, which did not name its shim");
    LockState::Held(Some(shim))
}

/// Returns whether the daemon died before it wrote the spec of the folder: there is then no shim,
/// no agent and nothing to report.
fn says_nothing(dir: &Path) -> io::Result<bool> {
    for name in [Started::FILE, Stop::FILE, Exit::FILE, instance_dir::OUTPUT_LOG] {
        match dir.join(name).symlink_metadata() {
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn remove_blank(dir: &Path, launch: &LaunchId) {
    match std::fs::remove_dir_all(dir) {
        Ok(()) => {
            info!(launch_id = %launch, "removed the folder of a start that was not carried out");
        }
        // The folder is only litter: the next daemon tries again.
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(launch_id = %launch, error, "could not remove the folder of a start that was not carried out");
        }
    }
}

/// Ends live processes of this installation that have no usable folder: they could not be counted,
/// and their key is unknown. Returns the number of these processes, and the number of folders that
/// were set aside. Returns an error if the processes could not be listed.
pub async fn end_strays(
    stock: &mut Stock,
    config: &ProcessConfig,
    installation_id: &str,
) -> io::Result<(usize, usize)> {
    let unusable = std::mem::take(&mut stock.unusable);
    // This includes lost instances: they have a folder, and the table ends them.
    let known: Vec<String> = stock
        .found
        .iter()
        .map(|found| format!("{installation_id}/{}", found.spec.launch_id))
        .collect();
    let ours = format!("{installation_id}/");
    let kill_at = clock::unpaused() + config.stop.timeout + config.stop.leak_grace;
    let mut n_strays = 0;
    let mut is_first = true;
    loop {
        let known = known.clone();
        let ours = ours.clone();
        let shims: Vec<ShimIdentity> =
            unusable.iter().filter_map(|folder| folder.shim.clone()).collect();
        let signal = match (is_first, clock::unpaused() >= kill_at) {
            (_, true) => Some(Signal::KILL),
            (true, false) => Some(Signal::TERM),
            (false, false) => None,
        };
        let round = tokio::task::spawn_blocking(move || {
            let all = processes::list()?;
            let strays =
                orphans::marked(&all, |mark| mark.starts_with(&ours) && !known.contains(mark))?;
            Ok(tell_strays(&all, &strays, &shims, signal))
        });
        let n_alive = match round.await.unwrap_or_else(|panic| Err(panic.into())) {
            Ok(n_alive) => n_alive,
            Err(error) if clock::unpaused() >= kill_at + TIMEOUT => return Err(error),
            Err(_) => {
                tokio::time::sleep(STRAY_POLL).await;
                continue;
            }
        };
        if is_first {
            n_strays = n_alive;
        }
        is_first = false;
        let is_held = |folder: &&UnusableFolder| {
            folder.is_held
                && folder.shim.is_some()
                && !matches!(lock::look(&folder.dir), Ok(LockState::Free(_)))
        };
        if n_alive == 0
            && unusable.iter().find(is_held).is_none_or(|_| clock::unpaused() >= kill_at)
        {
            break;
        }
        if clock::unpaused() >= kill_at + TIMEOUT {
            warn!(n_alive, "could not end the processes of unknown instances; continuing");
            break;
        }
        tokio::time::sleep(STRAY_POLL).await;
    }
    crash_point::reach(CrashPoint::StraysEnded);
    let n_set_aside = unusable.iter().filter(|folder| set_folder_aside(&folder.dir)).count();
    crash_point::reach(CrashPoint::FoldersSetAside);
    Ok((n_strays, n_set_aside))
}

/// Signals the shim of each stray, which ends it with the whole stop sequence. A stray without a
/// shim gets the signal itself.
fn tell_strays(
    all: &[Process],
    strays: &[Process],
    shims: &[ShimIdentity],
    signal: Option<Signal>,
) -> usize {
    let trees = processes::with_descendants(all, strays);
    let mut told: Vec<Process> = Vec::new();
    for stray in &trees {
        let shim = shim_of(all, stray);
        match signal {
            Some(Signal::KILL) => told.extend(shim.into_iter().chain([*stray])),
            _ => told.push(shim.unwrap_or(*stray)),
        }
    }
    told.sort_by_key(|process| process.pid);
    told.dedup();
    if let Some(signal) = signal {
        for process in &told {
            process.send(signal);
        }
        for shim in shims.iter().filter(|shim| told.iter().all(|process| process.pid != shim.pid)) {
            if let Some(handle) = shims::open(shim) {
                handle.send(signal);
            }
        }
    }
    trees.len()
}

fn shim_of(all: &[Process], process: &Process) -> Option<Process> {
    let mut ancestor = *process;
    loop {
        ancestor = *all.iter().find(|candidate| candidate.pid == ancestor.parent)?;
        if processes::comm(ancestor.pid).is_some_and(|comm| comm == SHIM_COMM) {
            return Some(ancestor);
        }
    }
}

fn set_folder_aside(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let time = instance_dir::clock::wall_clock().as_millis();
    let renamed = std::fs::rename(dir, dir.with_file_name(format!(".corrupt-{time}-{name}")));
    if let Err(error) = &renamed {
        warn!(path = %dir.display(), error = error as &dyn std::error::Error, "could not set the folder aside");
    }
    renamed.is_ok()
}

/// Sets a damaged file of an instance aside; the instance goes on without it.
pub fn set_record_aside<T: Record>(dir: &Path, launch: &LaunchId, error: &RecordError) {
    warn!(launch_id = %launch, error = error as &dyn std::error::Error, "instance file can't be used; it is set aside");
    let _ = record::set_aside(&dir.join(T::FILE));
}
