//! The moments between the steps of a launch, and of a start of the daemon, at which a test
//! disturbs the daemon. The daemon dies there, to show that the next one repairs the rest. Or it
//! hangs, to show that this is noticed. Or it stops and goes on later, to show its behaviour with
//! outdated knowledge.
//!
//! This module works only in builds with `debug_assertions`. In all others [`reach`] does nothing.
//! It knows no step: the code that has just taken a step calls it, in the daemon and in its
//! shims.

#[cfg(debug_assertions)]
use std::ffi::CString;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, Ordering};

/// A moment, named by the step just taken. The moments of a start of the daemon come first. The
/// moments of the shim follow `Spawned`.
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
    ShimStarted,
    ShimNoted,
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
    WorkspaceWanted,
    KeepHalfMade,
    PackCopied,
    EntryGiven,
    EntryHandedOver,
    SourceFollowed,
    BasePinned,
    WorkspaceBegun,
    RemoteFetched,
    WorkspaceCheckedOut,
    WorkspaceMade,
    WorkspaceNamed,
    HookPassed,
    WorkspaceReported,
    ObjectsCopied,
    PackMoved,
    ObjectsTaken,
    FilesTaken,
    ContentKept,
    ResultNamed,
    MergeRecorded,
    MergeWritten,
    MergePutBack,
    MergeJudged,
    MergeMade,
    MergeDelivered,
    ResultPublished,
    WorkspaceInTrash,
    WorkspaceRemoved,
    ItemTaken,
    ItemLookedAt,
    ItemLabelled,
    ItemClaimed,
    ItemWon,
    ItemRelabelled,
    ItemCommented,
    ItemFolderMoved,
    ItemResultTaken,
    ResultPushed,
    ItemPushed,
    ItemRequestOpened,
    ItemWriteDone,
    ItemWriteNoted,
    ItemStopWanted,
    ItemPauseWanted,
    ItemResumed,
    ItemSettled,
}

/// The variable with the name of the point, and after an `@` the process that dies there. No word
/// or a pid means the daemon, and `shim` means the shim itself. With `hang` no process dies,
/// and a thread that reaches the point never goes on. With `stop` the process stops as by SIGSTOP,
/// the first time that it reaches the point.
#[cfg(debug_assertions)]
pub const VARIABLE: &str = "AGENT_COORDINATOR_CRASH_AT";
#[cfg(debug_assertions)]
const SHIM: &str = "shim";
#[cfg(debug_assertions)]
const HANG: &str = "hang";
#[cfg(debug_assertions)]
const STOP: &str = "stop";

/// Kills the daemon at once if it was told to die at `point`.
#[cfg(debug_assertions)]
pub fn reach(point: CrashPoint) {
    use rustix::process::{Signal, getpid, getppid, kill_process};
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return;
    };
    let (name, victim) = wanted.split_once('@').unwrap_or((&wanted, SHIM));
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
                // The signal goes to this thread. A signal to the process might stop it only when
                // this thread has gone on.
                let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
            }
            return;
        }
        SHIM => Some(getpid()),
        // This protects other processes, because a shim whose daemon is gone has another parent.
        daemon => getppid().filter(|parent| parent.as_raw_nonzero().to_string() == daemon),
    };
    if let Some(victim) = victim {
        let _ = kill_process(victim, Signal::KILL);
    }
}

/// Does nothing without a test.
#[cfg(not(debug_assertions))]
pub const fn reach(_: CrashPoint) {}

/// Returns the variables that a shim needs, so that the daemon or the shim dies at one of the
/// shim's own points.
#[cfg(debug_assertions)]
pub fn environment_of_shim() -> Vec<CString> {
    let Ok(mut wanted) = std::env::var(VARIABLE) else {
        return Vec::new();
    };
    if !wanted.contains('@') {
        wanted = format!("{wanted}@{}", std::process::id());
    }
    CString::new(format!("{VARIABLE}={wanted}")).into_iter().collect()
}

/// Returns nothing.
#[cfg(not(debug_assertions))]
pub const fn environment_of_shim() -> Vec<std::ffi::CString> {
    Vec::new()
}
