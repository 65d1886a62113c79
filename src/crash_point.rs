//! The moments between the steps of a launch, and of a start of the daemon, at which a test lets the daemon die, to see that the
//! next one mends what is left, or hang, to see that somebody notices, or stop and go on later, to see what it does with what it knew.
//!
//! In builds with `debug_assertions` only; in all others [`reach`] is nothing. Knows no step: whoever has just taken one says
//! so, in the daemon and in its keepers.

#[cfg(debug_assertions)]
use std::ffi::CString;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, Ordering};

/// A moment, named by the step just taken. Those of a start of the daemon come first, those of the keeper after `Spawned`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    LockMended,
    StockTaken,
    StraysEnded,
    FoldersSetAside,
    InstancesAdopted,
    RemainsCleared,
    LossRecorded,
    ClaimGranted,
    Claimed,
    FolderMade,
    FolderReady,
    Spawned,
    KeeperStarted,
    KeeperNoted,
    AgentForked,
    StartRecorded,
    StartSeen,
    StartReported,
    Authenticated,
    AuthenticationMarked,
    ReportTaken,
    StopWanted,
    StopWritten,
    ExitRecorded,
    ExitSeen,
    ExitReported,
    EndRecorded,
    EndSeen,
    EndReported,
    FolderMoved,
    ItemTaken,
    ItemLookedAt,
    ItemLabelled,
    ItemClaimed,
    ItemWon,
    ItemRelabelled,
    ItemCommented,
    ItemFolderMoved,
    ItemOwedDone,
    ItemOwedNoted,
    ItemStopWanted,
    ItemPauseWanted,
    ItemResumed,
    ItemSettled,
}

/// Which point it is: its name, and after an `@` who dies there. Nothing or a pid is the daemon, `keeper` the keeper itself; with
/// `hang` nobody dies, and whoever comes there never goes on; with `stop` it stops as by SIGSTOP, the first time it comes there.
#[cfg(debug_assertions)]
pub const VARIABLE: &str = "AGENT_COORDINATOR_CRASH_AT";
#[cfg(debug_assertions)]
const KEEPER: &str = "keeper";
#[cfg(debug_assertions)]
const HANG: &str = "hang";
#[cfg(debug_assertions)]
const STOP: &str = "stop";

/// The end of the daemon, without a last word, if it was told to die at `point`.
#[cfg(debug_assertions)]
pub fn reach(point: CrashPoint) {
    use rustix::process::{Signal, getpid, getppid, kill_process};
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return;
    };
    let (name, victim) = wanted.split_once('@').unwrap_or((&wanted, KEEPER));
    if name != format!("{point:?}") {
        return;
    }
    let victim = match victim {
        HANG => loop {
            std::thread::park();
        },
        STOP => {
            static HAS_STOPPED: AtomicBool = AtomicBool::new(false);
            if !HAS_STOPPED.swap(true, Ordering::Relaxed) {
                // To this thread: one that is sent to the process may stop it when this thread is further.
                let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
            }
            return;
        }
        KEEPER => Some(getpid()),
        // Of nobody else: a keeper whose daemon is gone has another parent.
        daemon => getppid().filter(|parent| parent.as_raw_nonzero().to_string() == daemon),
    };
    if let Some(victim) = victim {
        let _ = kill_process(victim, Signal::KILL);
    }
}

/// No test, no end.
#[cfg(not(debug_assertions))]
pub const fn reach(_: CrashPoint) {}

/// What a keeper's environment needs, so that the daemon, or it, dies at one of the keeper's own points.
#[cfg(debug_assertions)]
pub fn environment_of_keeper() -> Vec<CString> {
    let Ok(mut wanted) = std::env::var(VARIABLE) else {
        return Vec::new();
    };
    if !wanted.contains('@') {
        wanted = format!("{wanted}@{}", std::process::id());
    }
    CString::new(format!("{VARIABLE}={wanted}")).into_iter().collect()
}

/// Nothing.
#[cfg(not(debug_assertions))]
pub const fn environment_of_keeper() -> Vec<std::ffi::CString> {
    Vec::new()
}
