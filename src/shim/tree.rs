//! The agent's process tree as its keeper sees it. As subreaper the keeper inherits every orphan, so that "no children" is
//! "no tree": `waitid` answering ECHILD is the proof of emptiness, and the normal path needs no look at `/proc`.

use std::mem::MaybeUninit;

use nix::libc;
use rustix::process::{Pid, Signal};

use crate::domain::launch::ExitStatus;
use crate::instance_dir::proc_fs::{self, Process};

/// The next thing to know about the children of this process.
pub enum Next {
    /// No child, so no descendant.
    Empty,
    /// Children, all alive.
    Alive,
    /// A dead child, not yet reaped: its pid, and its group's id if it leads one, can't be anybody else's.
    Dead { pid: i32, exit: ExitStatus, has_dumped_core: bool },
}

/// Looks without reaping.
pub fn next() -> Next {
    // Not the safe wrappers: they fail on real-time signals, or don't tell the pid.
    let (result, info) = wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    if result != 0 {
        return Next::Empty;
    }
    // SAFETY: `waitid` succeeded, so the fields of a child event are there; the pid is 0 when there was none.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Next::Alive;
    }
    let exit = match info.si_code {
        libc::CLD_EXITED => ExitStatus { exit_code: Some(status), signal: None },
        _ => ExitStatus { exit_code: None, signal: Some(status) },
    };
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
    wait(libc::P_ALL, 0, libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT).0 == 0
}

fn wait(kind: libc::idtype_t, id: libc::id_t, options: libc::c_int) -> (libc::c_int, libc::siginfo_t) {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is writable; all zeros are a valid siginfo_t where nothing is written.
        let (result, info) = unsafe { (libc::waitid(kind, id, info.as_mut_ptr(), options), info.assume_init()) };
        if result == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return (result, info);
        }
    }
}

/// Every living process below this one. Reads all of `/proc`: for trees that didn't end by themselves.
pub fn living() -> Vec<Process> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let mut found = proc_fs::list().map(|all| proc_fs::descendants(&all, me)).unwrap_or_default();
    found.retain(|process| !process.is_zombie);
    found
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
