//! Processes as libproc and sysctl show them: identities for the files of an instance folder, and
//! trees for callers that must end one. Functions for information return `None` for a value that
//! cannot be read. The `try_` functions and [`list`] fail if they could not read.
//!
//! This is weaker than on Linux. Processes of other users show no start time, arguments or
//! environment. System Integrity Protection hides the environment of Apple's own programs. A
//! process cannot give itself another name.
#![allow(unsafe_code, reason = "system calls that no crate wraps safely")]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::sysctl;
use crate::sys::lineage::Birth;
pub use crate::sys::process::{Process, descendants, with_descendants};
use crate::sys::process_arguments::split;

/// A flag of `proc_pidinfo`: include processes that are dead and not reaped.
const ALSO_ZOMBIES: u64 = 1;

/// Does nothing: the system sets no limits of another process.
pub const fn limit(_: Pid, _: u64, _: Duration) {}

/// Implements [`Process::send`]. A signal goes to a number. Between the check and the signal it may
/// become another process's, but that takes a whole round through all pids within microseconds.
pub fn send(process: &Process, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return false;
    };
    let is_same = read(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks);
    is_same && rustix::process::kill_process(pid, signal).is_ok()
}

/// Returns the process that has this pid now.
pub fn read(pid: i32) -> Option<Process> {
    try_read(pid).ok().flatten()
}

fn try_read(pid: i32) -> io::Result<Option<Process>> {
    let (parent, group, status, start_ticks) = match if_there(whole(pid)) {
        Ok(Some(info)) => {
            let start = info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec;
            (info.pbi_ppid, info.pbi_pgid, info.pbi_status, start)
        }
        // It is another user's process, whose parent is public.
        Ok(None) => match if_there(short(pid))? {
            Some(info) => (info.pbsi_ppid, info.pbsi_pgid, info.pbsi_status, 0),
            None => return Ok(None),
        },
        Err(error) => return Err(error),
    };
    let session = session(pid).unwrap_or(0);
    let is_zombie = status == libc::SZOMB;
    let is_stopped = status == libc::SSTOP;
    let parent = parent.cast_signed();
    let group = group.cast_signed();
    Ok(Some(Process { pid, parent, group, session, start_ticks, is_zombie, is_stopped }))
}

/// Returns `None` for a process that is gone, or that this one may not read; other errors say
/// nothing about it.
fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) => match Errno::from_io_error(&error) {
            // `KERN_PROCARGS2` reports an invalid argument for every problem with the process.
            Some(Errno::SRCH | Errno::PERM | Errno::ACCESS | Errno::INVAL) => Ok(None),
            _ => Err(error),
        },
        read => read.map(Some),
    }
}

fn session(pid: i32) -> Option<i32> {
    rustix::process::getsid(Pid::from_raw(pid)).ok().map(|leader| leader.as_raw_nonzero().get())
}

fn whole(pid: i32) -> io::Result<libc::proc_bsdinfo> {
    // SAFETY: the flavour fills this struct, which is plain numbers.
    unsafe { info(pid, libc::PROC_PIDTBSDINFO) }
}

fn short(pid: i32) -> io::Result<libc::proc_bsdshortinfo> {
    // SAFETY: the flavour fills this struct, which is plain numbers.
    unsafe { info(pid, libc::PROC_PIDT_SHORTBSDINFO) }
}

/// # Safety
/// `T` is the struct of plain numbers that `flavour` fills.
unsafe fn info<T>(pid: i32, flavour: libc::c_int) -> io::Result<T> {
    let mut info = MaybeUninit::<T>::zeroed();
    let size = libc::c_int::try_from(size_of::<T>()).expect("a struct of some hundred bytes");
    // SAFETY: the kernel writes up to `size` bytes, which is what is there.
    let n = unsafe {
        libc::proc_pidinfo(pid, flavour, ALSO_ZOMBIES, info.as_mut_ptr().cast::<c_void>(), size)
    };
    if n != size {
        return Err(if n <= 0 {
            io::Error::last_os_error()
        } else {
            io::ErrorKind::InvalidData.into()
        });
    }
    // SAFETY: all of it is written.
    Ok(unsafe { info.assume_init() })
}

/// Returns the birth of a living process of any user. The struct is from `sys/proc_info_private.h`.
/// If a birth cannot be read, the other processes are still found.
pub fn birth(pid: i32) -> Option<Birth> {
    const PROC_PIDUNIQIDENTIFIERINFO: libc::c_int = 17;
    #[repr(C)]
    struct UniqueIdentifiers {
        executable: [u8; 16],
        own: u64,
        parents: u64,
        versions: [i32; 2],
        reserved: [u64; 2],
    }
    // SAFETY: the flavour fills this struct, which is plain numbers.
    let info: UniqueIdentifiers = unsafe { info(pid, PROC_PIDUNIQIDENTIFIERINFO) }.ok()?;
    Some(Birth { own: info.own, parents: info.parents })
}

/// Returns all processes, or an error, but never only some of them.
pub fn list() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for pid in pids()?.into_iter().filter(|pid| *pid > 0) {
        all.extend(try_read(pid)?);
    }
    Ok(all)
}

fn pids() -> io::Result<Vec<i32>> {
    let mut room = 1024;
    loop {
        let mut pids = vec![0_i32; room];
        let size = libc::c_int::try_from(room * size_of::<i32>())
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel writes up to `size` bytes of pids, and returns the number of pids.
        let n = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast::<c_void>(), size) };
        let n = usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(io::Error::last_os_error)?;
        // A full buffer means that there may be more.
        if n < room {
            pids.truncate(n);
            return Ok(pids);
        }
        room *= 2;
    }
}

/// Returns the processor time of all living descendants of `pid`, but not its own. The time of
/// descendants that ended is missing. On Apple silicon the kernel counts in units of 41 ns, which
/// are taken for nanoseconds here. So the result is too small, but never too large.
pub fn time_used_by_children(pid: i32) -> Option<Duration> {
    let used = |pid: i32| {
        // SAFETY: the flavour fills this struct, which is plain numbers.
        let task: libc::proc_taskinfo = unsafe { info(pid, libc::PROC_PIDTASKINFO) }.ok()?;
        Some(task.pti_total_user.saturating_add(task.pti_total_system))
    };
    let living = descendants(&list().ok()?, pid).into_iter().filter_map(|child| used(child.pid));
    Some(Duration::from_nanos(living.fold(0, u64::saturating_add)))
}

/// Returns the resident memory of a process, in bytes.
pub fn resident_memory(pid: i32) -> Option<u64> {
    // SAFETY: the flavour fills this struct, which is plain numbers.
    let task: libc::proc_taskinfo = unsafe { info(pid, libc::PROC_PIDTASKINFO) }.ok()?;
    Some(task.pti_resident_size)
}

/// Returns the short name of a process: the one in its arguments, by which a shim is recognised,
/// or that of its program.
pub fn comm(pid: i32) -> Option<String> {
    try_comm(pid).ok().flatten()
}

/// Returns the name like [`comm`]; `None` only for a process that is gone.
pub fn try_comm(pid: i32) -> io::Result<Option<String>> {
    if let Some(name) = try_arguments(pid)?.into_iter().next() {
        let name = String::from_utf8_lossy(&name).into_owned();
        return Ok(Some(name.rsplit('/').next().unwrap_or_default().to_owned()));
    }
    let info = if_there(short(pid))?;
    // The name is of type `c_char`, and is cut off at the first zero.
    let name = info.map(|info| info.pbsi_comm.map(i8::cast_unsigned));
    let text = |name: [u8; 16]| {
        String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default())
            .into_owned()
    };
    Ok(name.map(text))
}

/// Returns the arguments of a process, its own name first; none if they cannot be read.
pub fn arguments(pid: i32) -> Vec<Vec<u8>> {
    try_arguments(pid).unwrap_or_default()
}

fn try_arguments(pid: i32) -> io::Result<Vec<Vec<u8>>> {
    let block = if_there(sysctl::process_arguments(pid))?.unwrap_or_default();
    let arguments =
        split(&block).map(|(arguments, _)| arguments.into_iter().map(<[u8]>::to_vec).collect());
    Ok(arguments.unwrap_or_default())
}

/// Returns the real user of a process.
pub fn user(pid: i32) -> Option<u32> {
    short(pid).ok().map(|info| info.pbsi_ruid)
}

/// Returns the status of a dead child like `wait`: `waitid` does not return the signal.
pub fn wait_status(dead: i32) -> Option<libc::c_int> {
    whole(dead)
        .ok()
        .filter(|info| info.pbi_status == libc::SZOMB)
        .map(|info| info.pbi_xstatus.cast_signed())
}

/// Returns the value of `variable` in the environment that a process was started with, if we may
/// read it.
pub fn find_variable(pid: i32, variable: &str) -> Option<String> {
    try_find_variable(pid, variable).ok().flatten()
}

/// Returns the value like [`find_variable`]; `None` only if there is none, or none that we may
/// read.
pub fn try_find_variable(pid: i32, variable: &str) -> io::Result<Option<String>> {
    let block = if_there(sysctl::process_arguments(pid))?.unwrap_or_default();
    let environment = split(&block).map(|(_, environment)| environment).unwrap_or_default();
    let value = environment
        .into_iter()
        .find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="));
    Ok(value.and_then(|value| String::from_utf8(value.to_vec()).ok()))
}

/// Returns `None`: no call counts the open descriptors of a process without listing them.
pub const fn n_open_descriptors() -> Option<u64> {
    None
}

/// Returns an id that differs after each boot.
pub fn boot_id() -> io::Result<String> {
    let id = sysctl::by_name::<64>(c"kern.bootsessionuuid")?;
    Ok(String::from_utf8_lossy(&id).trim_end_matches('\0').to_owned())
}

/// Returns the same number for all processes, because there is only one pid namespace.
pub const fn pid_namespace() -> io::Result<u64> {
    Ok(0)
}
