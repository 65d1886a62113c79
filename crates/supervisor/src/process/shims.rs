//! One shim as a process: it identifies the shim, signals it and waits for its end. Fresh and
//! adopted shims are treated alike.
#![allow(
    unsafe_code,
    reason = "a descriptor in the runtime, and waitid on a process that may not be a child"
)]

use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use nix::libc;
use rustix::process::{Pid, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::orphans;
use machine::instance_dir::SHIM_COMM;
use machine::instance_dir::lock::{self, LockState, ShimIdentity};
use machine::instance_dir::record::{Record, Stop};
use machine::sys::handle::Handle;
use machine::sys::processes;

/// The first pause between checks of a shim that cannot be watched. Such a shim has not noted
/// itself yet, is not of this host, or a resource is used up.
const POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// The shim of one instance; empty until its process is known for certain.
#[derive(Default)]
pub struct Shim(OnceLock<AsyncFd<Handle>>);

/// A shim that was just spawned. It keeps its pid until it is reaped here.
pub struct Child {
    pub pid: Pid,
    /// The handle; `None` if no descriptor was left for it.
    pub handle: Option<Handle>,
}

/// The result of a check of a shim.
enum ShimCheck {
    Known(Handle),
    Unknown,
    Gone,
}

impl Shim {
    /// Tells the shim to read `stop.json`. If the shim is not known yet, [`Shim::follow`] tells it
    /// later.
    pub fn tell_to_stop(&self) {
        if let Some(handle) = self.0.get() {
            // If it is gone already, its exit is noticed soon.
            handle.get_ref().send(Signal::TERM);
        }
    }

    /// Returns when the shim is gone, and reaped if it was a child.
    pub async fn follow(&self, dir: &Path, child: Option<Child>) {
        let (child, mut handle) =
            child.map_or((None, None), |child| (Some(child.pid), child.handle));
        let mut pause = POLL;
        loop {
            match handle.take().map_or_else(|| look(dir, child), ShimCheck::Known) {
                ShimCheck::Known(handle) => {
                    if self.watch(dir, handle).await {
                        return;
                    }
                }
                ShimCheck::Unknown => {}
                ShimCheck::Gone => return,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_POLL);
        }
    }

    /// Waits for the shim's end and reaps it; `false` if it cannot be waited for now.
    async fn watch(&self, dir: &Path, handle: Handle) -> bool {
        let Some(handle) = register(handle) else {
            return false;
        };
        let handle = self.0.get_or_init(|| handle);
        // A stop may have been requested before this shim was known, by this daemon or an earlier
        // one.
        if dir.join(Stop::FILE).exists() {
            self.tell_to_stop();
        }
        if handle.readable().await.is_err() {
            return false;
        }
        let (kind, id) = handle.get_ref().wait_id();
        // The handle may report the end a moment before the shim can be reaped.
        wait(kind, id) != Waited::Alive
    }
}

/// Checks a child by its pid, and any other shim by its lock.
fn look(dir: &Path, child: Option<Pid>) -> ShimCheck {
    if let Some(pid) = child {
        return match wait(libc::P_PID, pid.as_raw_nonzero().get().cast_unsigned()) {
            Waited::Alive => Handle::open(pid).map_or(ShimCheck::Unknown, ShimCheck::Known),
            Waited::Reaped | Waited::NoChild => ShimCheck::Gone,
        };
    }
    match lock::look(dir) {
        // A shim releases its lock a little before it is dead, and it leaves orphans only when it
        // is dead.
        Ok(LockState::Free(noted)) => {
            noted.and_then(|shim| open(&shim)).map_or(ShimCheck::Gone, ShimCheck::Known)
        }
        // A holder other than the noted shim is never signalled. Its slot is taken for as long as
        // it holds the lock.
        Ok(LockState::Held(noted)) => {
            noted.and_then(|shim| open(&shim)).map_or(ShimCheck::Unknown, ShimCheck::Known)
        }
        Err(_) => ShimCheck::Unknown,
    }
}

/// Opens the process of this shim; `None` if it is gone or of another boot or pid namespace.
pub fn open(shim: &ShimIdentity) -> Option<Handle> {
    // The handle is opened before the comparison, so that the compared process is the one that is
    // watched and signalled.
    let handle = Handle::open(Pid::from_raw(shim.pid)?)?;
    lock::is_alive(shim).then_some(handle)
}

/// Finds the living shim that keeps the instance in `dir`, independent of its files. Reads all
/// processes.
pub fn find(dir: &Path) -> Option<ShimIdentity> {
    let has_dir = |pid: i32| {
        let arguments = processes::arguments(pid);
        arguments.get(2).is_some_and(|folder| *folder == dir.as_os_str().as_bytes())
    };
    let is_shim = |pid: i32| processes::comm(pid).is_some_and(|comm| comm == SHIM_COMM);
    let living = processes::list().ok()?.into_iter().filter(|process| !process.is_zombie);
    let shim = living.into_iter().find(|process| is_shim(process.pid) && has_dir(process.pid))?;
    lock::identify(&shim).ok()
}

/// Returns whether the shim is known to have lived in another boot or pid namespace. Its pid, and
/// those below it, belong to other processes here.
pub fn is_from_elsewhere(shim: &ShimIdentity) -> bool {
    processes::boot_id().is_ok_and(|id| id != shim.boot_id)
        || processes::pid_namespace().is_ok_and(|inode| inode != shim.pid_namespace)
}

fn register(handle: Handle) -> Option<AsyncFd<Handle>> {
    // SAFETY: a handle owns its descriptor, which is open and the same for as long as that lives.
    unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }.ok()
}

#[derive(Debug, PartialEq, Eq)]
enum Waited {
    Alive,
    Reaped,
    /// The shim is not a child. An adopted shim may be a child, after an exec, or not.
    NoChild,
}

/// Reaps a shim if it is a dead child of this process.
fn wait(kind: libc::idtype_t, id: libc::id_t) -> Waited {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is writable; the pid in it is read only after a success, and zero if no child
    // was reaped.
    let (result, pid) = unsafe {
        let result = libc::waitid(kind, id, info.as_mut_ptr(), libc::WEXITED | libc::WNOHANG);
        (result, if result == 0 { info.assume_init().si_pid() } else { 0 })
    };
    match (result, pid) {
        (0, 0) => Waited::Alive,
        (0, pid) => {
            orphans::shim_reaped(pid);
            Waited::Reaped
        }
        _ => Waited::NoChild,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::zombie_processes, reason = "this module waits for it")]
    fn child(program: &str, argument: &str) -> Pid {
        let child = std::process::Command::new(program).arg(argument).spawn().unwrap();
        Pid::from_raw(child.id().cast_signed()).unwrap()
    }

    #[test]
    fn a_child_without_a_handle_is_found_and_reaped() {
        let dir = tempfile::tempdir().unwrap();
        let pid = child("sleep", "600");
        assert!(matches!(look(dir.path(), Some(pid)), ShimCheck::Known(_)));
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        let give_up_at = std::time::Instant::now() + Duration::from_secs(20);
        while !matches!(look(dir.path(), Some(pid)), ShimCheck::Gone) {
            assert!(std::time::Instant::now() < give_up_at);
            std::thread::yield_now();
        }
        assert!(
            processes::read(pid.as_raw_nonzero().get()).is_none_or(|process| !process.is_zombie)
        );
    }

    #[tokio::test]
    async fn one_that_cant_be_watched_is_looked_at_instead() {
        let dir = tempfile::tempdir().unwrap();
        let pid = child("true", "");
        // A descriptor that epoll refuses.
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let handle = Some(Handle::from(std::os::fd::OwnedFd::from(file)));
        Shim::default().follow(dir.path(), Some(Child { pid, handle })).await;
        assert_eq!(wait(libc::P_PID, pid.as_raw_nonzero().get().cast_unsigned()), Waited::NoChild);
    }
}
