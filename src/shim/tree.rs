//! The agent's process tree as its keeper sees it. As subreaper the keeper inherits every orphan, so that "no children" is
//! "no tree": `waitid` answering ECHILD is the proof of emptiness, and the normal path needs no look at `/proc`. Where there are
//! no subreapers, that nothing is found which may have escaped has to do.

use std::io;
use std::mem::MaybeUninit;

use nix::libc;
use rustix::process::{Pid, Signal};

use crate::domain::launch::ExitStatus;
use crate::sys::orphans;
use crate::sys::processes::{self, Process};

/// The next thing to know about the children of this process.
pub enum Next {
    /// No child, and no descendant.
    Empty,
    /// Children, all alive.
    Alive,
    /// A dead child, not yet reaped: its pid, and its group's id if it leads one, can't be anybody else's.
    Dead { pid: i32, exit: ExitStatus, has_dumped_core: bool },
}

/// Looks without reaping. `mark` is what the tree has in its environment.
pub fn next(mark: &str) -> Next {
    // Not the safe wrappers: they fail on real-time signals, or don't tell the pid.
    let (result, info) = wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    if result != 0 {
        // A look that fails has seen nothing.
        let is_empty =
            orphans::FALL_TO_REAPER || try_living(mark).is_ok_and(|living| living.is_empty());
        return if is_empty { Next::Empty } else { Next::Alive };
    }
    // SAFETY: `waitid` succeeded, so the fields of a child event are there; the pid is 0 when there was none.
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

/// Reaps a child that [`next`] showed as dead.
pub fn reap(pid: i32) {
    wait(libc::P_PID, pid.cast_unsigned(), libc::WEXITED | libc::WNOHANG);
}

/// Whether any child is alive, zombies left aside: for a wait for stops alone, the dead are no children. If none is, nothing of
/// the tree lives: before a process becomes a zombie, its children have become those of the nearest subreaper above it that
/// lives, and one that isn't this process would be a living descendant, too.
pub fn has_living_child() -> bool {
    // Where orphans fall to others, it can't be known here.
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

/// Every living process below this one, or that was once. Looks at all processes: for trees that didn't end by themselves.
pub fn living(mark: &str) -> Vec<Process> {
    try_living(mark).unwrap_or_default()
}

fn try_living(mark: &str) -> io::Result<Vec<Process>> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let all = processes::list()?;
    let mut found = processes::descendants(&all, me);
    let keeper =
        all.iter().find(|process| process.pid == me).map(|keeper| (me, keeper.start_ticks));
    let escaped = processes::with_descendants(&all, &orphans::escaped(&all, keeper, mark)?);
    found.retain(|process| !escaped.contains(process));
    found.extend(escaped);
    found.retain(|process| !process.is_zombie && process.pid != me);
    Ok(found)
}

/// Sends `signal` to the process group of an agent that is not reaped yet, and to `others` outside of that group.
///
/// The group first and in one go, so that nothing in it can react to the end of a sibling before its own signal; each
/// process once, because many command lines take a second TERM for "at once".
pub fn send(signal: Signal, group: Option<i32>, others: &[Process]) {
    if let Some(leader) = group.and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(leader, signal);
    }
    for process in others.iter().filter(|process| Some(process.group) != group) {
        process.send(signal);
    }
}
