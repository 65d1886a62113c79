//! The agent's process tree from the view of its shim. As subreaper the shim inherits every
//! orphan, so that "no children" is "no tree". If `waitid` answers ECHILD, the tree is empty, and
//! the normal path does not read `/proc`. On systems without subreapers, a search that finds no
//! escaped process must suffice.
#![allow(unsafe_code, reason = "waitid with flags and signals that the safe wrappers refuse")]

use std::io;
use std::mem::MaybeUninit;

use nix::libc;
use rustix::process::{Pid, Signal};

use domain::launch::ExitStatus;
use machine::sys::orphans;
use machine::sys::processes::{self, Process};

/// The next fact about the children of this process.
pub enum Next {
    /// There is no child, and no descendant.
    Empty,
    /// There are children, all alive.
    Alive,
    /// There is a dead child that is not yet reaped: its pid, and its group's id if it leads one,
    /// cannot belong to another process.
    Dead { pid: i32, exit: ExitStatus, has_dumped_core: bool },
}

/// Returns the next fact without reaping. `mark` is the mark in the environment of the tree.
pub fn next(mark: &str) -> Next {
    // The safe wrappers are not used: they fail on real-time signals, or do not return the pid.
    let (result, info) = wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    if result != 0 {
        // A search that fails has not shown that the tree is empty.
        let is_empty =
            orphans::FALL_TO_REAPER || try_living(mark).is_ok_and(|living| living.is_empty());
        return if is_empty { Next::Empty } else { Next::Alive };
    }
    // SAFETY: `waitid` succeeded, so the fields of a child event are there; the pid is 0 when there
    // was none.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Next::Alive;
    }
    let (exit_code, signal) = match (info.si_code, processes::wait_status(pid)) {
        (libc::CLD_EXITED, Some(whole)) => (Some(libc::WEXITSTATUS(whole)), None),
        (libc::CLD_EXITED, None) => (Some(status), None),
        (_, Some(whole)) => (None, Some(libc::WTERMSIG(whole))),
        (_, None) => (None, Some(status)),
    };
    let exit = ExitStatus { exit_code, signal };
    Next::Dead { pid, exit, has_dumped_core: info.si_code == libc::CLD_DUMPED }
}

/// Reaps a child that [`next`] reported as dead.
pub fn reap(pid: i32) {
    wait(libc::P_PID, pid.cast_unsigned(), libc::WEXITED | libc::WNOHANG);
}

/// Returns whether any child is alive, not counting zombies: for a wait for stops alone, dead
/// processes are not children. If none is alive, no process of the tree lives. Before a process
/// becomes a zombie, its children have moved to the nearest living subreaper above it. A subreaper
/// other than this process would be a living descendant, too.
pub fn has_living_child() -> bool {
    // If orphans fall to another process, this cannot be known here.
    !orphans::FALL_TO_REAPER
        || wait(libc::P_ALL, 0, libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT).0 == 0
}

fn wait(
    kind: libc::idtype_t,
    id: libc::id_t,
    options: libc::c_int,
) -> (libc::c_int, libc::siginfo_t) {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is writable; all zeros are a valid siginfo_t where nothing is written.
        let (result, info) =
            unsafe { (libc::waitid(kind, id, info.as_mut_ptr(), options), info.assume_init()) };
        if result == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
        {
            return (result, info);
        }
    }
}

/// Returns every living process that is or was below this one. Reads all processes: it is for trees
/// that did not end by themselves.
pub fn living(mark: &str) -> Vec<Process> {
    try_living(mark).unwrap_or_default()
}

fn try_living(mark: &str) -> io::Result<Vec<Process>> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let all = processes::list()?;
    let mut found = processes::descendants(&all, me);
    let shim = all.iter().find(|process| process.pid == me).map(|shim| (me, shim.start_ticks));
    let escaped = processes::with_descendants(&all, &orphans::escaped(&all, shim, mark)?);
    found.retain(|process| !escaped.contains(process));
    found.extend(escaped);
    found.retain(|process| !process.is_zombie && process.pid != me);
    Ok(found)
}

/// Sends `signal` to the process group of an agent that is not reaped yet, and to `others` outside
/// of that group.
///
/// The group comes first and in one call, so that no member can react to the end of a sibling
/// before its own signal. Each process gets the signal once, because many command lines take a
/// second TERM for "at once".
pub fn send(signal: Signal, group: Option<i32>, others: &[Process]) {
    if let Some(leader) = group.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(leader, signal);
    }
    for process in others.iter().filter(|process| Some(process.group) != group) {
        process.send(signal);
    }
}
