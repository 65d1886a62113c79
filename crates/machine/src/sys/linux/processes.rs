//! Processes as `/proc` shows them: identities for the files of an instance folder, and trees for
//! callers that must end one.
//!
//! Functions for information return `None` for a value that cannot be read. A caller that must know
//! that something is *not* there uses the `try_` functions and [`list`]. They fail if they could
//! not read, for want of descriptors or memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::Duration;

use nix::libc;
use nix::unistd::{SysconfVar, sysconf};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, prlimit};

use crate::sys::confined;
pub use crate::sys::process::{Process, descendants, with_descendants};

/// Implements [`Process::send`].
pub fn send(process: &Process, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return false;
    };
    // The descriptor is opened before the comparison, so that the compared process is the one that
    // is signalled.
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|pidfd| {
        read(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks)
            && rustix::process::pidfd_send_signal(pidfd, signal).is_ok()
    })
}

/// Limits the memory that a process and its children allocate, in bytes for each of them, and their
/// processor time. A process that has ended already needs no limit.
pub fn limit(pid: Pid, memory: u64, processor_time: Duration) {
    for (resource, limit) in confined::limits(memory, processor_time) {
        let _ = prlimit(Some(pid), resource, limit);
    }
}

/// Returns the process that has this pid now.
pub fn read(pid: i32) -> Option<Process> {
    try_read(pid).ok().flatten()
}

fn try_read(pid: i32) -> io::Result<Option<Process>> {
    // This uses no heap: the shim reads thousands of these when it ends a tree. The name is at most
    // 64 bytes, numbers 20.
    let mut buffer = [0; 1024];
    let n = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut buffer));
    let Some(n) = if_there(n)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&buffer[..n]).ok().or_else(|| after_name(&buffer[..n]));
    text.and_then(|text| parse_stat(pid, text))
        .map(Some)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns `None` for a process that is gone, or that this one may not read; other errors say
/// nothing about it.
fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(None),
        read => read.map(Some),
    }
}

/// Returns the part after the name. A process may give itself a name that is not valid UTF-8; the
/// numbers after it are plain.
fn after_name(stat: &[u8]) -> Option<&str> {
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    std::str::from_utf8(&stat[name_end..]).ok()
}

fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    // The name may contain spaces and parentheses; the numbers come after the last one.
    let (_, numbers) = stat.rsplit_once(')')?;
    let mut fields = numbers.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    let parent = number()?;
    let group = number()?;
    let session = number()?;
    let n_threads: i32 = fields.nth(13)?.parse().ok()?;
    let start_ticks = fields.nth(1)?.parse().ok()?;
    // The state is that of the first thread, which other threads may outlive.
    let is_zombie = matches!(state, "Z" | "X") && n_threads <= 1;
    let is_stopped = state == "T";
    Some(Process { pid, parent, group, session, start_ticks, is_zombie, is_stopped })
}

/// Returns all processes of this pid namespace, or an error, but never only some of them. It takes
/// about 12 ms with 1,000 of them, so it is not for paths that each agent takes.
pub fn list() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            all.extend(try_read(pid)?);
        }
    }
    Ok(all)
}

/// Returns the processor time of all descendants of `pid`, including dead ones, but not its own.
/// Returns `None` if it is gone or cannot be read.
pub fn time_used_by_children(pid: i32) -> Option<Duration> {
    let (_, of_dead) = ticks(pid)?;
    let living = descendants(&list().ok()?, pid).into_iter().filter_map(|child| ticks(child.pid));
    let ticks =
        living.fold(of_dead, |sum, (own, of_dead)| sum.saturating_add(own).saturating_add(of_dead));
    let per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    Some(Duration::from_millis(ticks.saturating_mul(1000).checked_div(per_second)?))
}

/// Returns the clock ticks that a process used itself, and those of its dead children.
fn ticks(pid: i32) -> Option<(u64, u64)> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_ticks(after_name(&stat)?)
}

fn parse_ticks(after_name: &str) -> Option<(u64, u64)> {
    let mut fields =
        after_name.split_ascii_whitespace().skip(12).map(|field| field.parse::<u64>().ok());
    let mut both = || Some(fields.next()??.saturating_add(fields.next()??));
    Some((both()?, both()?))
}

/// Returns the resident memory of a process, in bytes.
pub fn resident_memory(pid: i32) -> Option<u64> {
    let resident = status_line(pid, "VmRSS:")?;
    let kib: u64 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the text after `label` in the status of a process. The first line of the status is the
/// name, which need not be text.
fn status_line(pid: i32, label: &str) -> Option<String> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(label.as_bytes()))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Returns the short name of a process, as it last set it.
pub fn comm(pid: i32) -> Option<String> {
    try_comm(pid).ok().flatten()
}

/// Returns the name like [`comm`]; `None` only for a process that is gone.
pub fn try_comm(pid: i32) -> io::Result<Option<String>> {
    // A name may contain any bytes.
    let name = if_there(std::fs::read(format!("/proc/{pid}/comm")))?;
    Ok(name.map(|name| String::from_utf8_lossy(&name).trim_end().to_owned()))
}

/// Returns the arguments of a process, its own name first; none if they cannot be read.
pub fn arguments(pid: i32) -> Vec<Vec<u8>> {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    text.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

/// Returns the real user of a process.
pub fn user(pid: i32) -> Option<u32> {
    status_line(pid, "Uid:")?.split_whitespace().next()?.parse().ok()
}

/// Returns the status of a dead child like `wait`; `None` if `waitid` already returns it.
pub const fn wait_status(_dead: i32) -> Option<libc::c_int> {
    None
}

/// Returns the value of `variable` in the environment that a process was started with, if we may
/// read it.
pub fn find_variable(pid: i32, variable: &str) -> Option<String> {
    try_find_variable(pid, variable).ok().flatten()
}

/// Returns the value like [`find_variable`]; `None` only if there is none, or none that we may
/// read.
pub fn try_find_variable(pid: i32, variable: &str) -> io::Result<Option<String>> {
    let environment = if_there(std::fs::read(format!("/proc/{pid}/environ")))?.unwrap_or_default();
    let value = environment.split(|&b| b == 0).find_map(|entry| {
        let value = entry.strip_prefix(variable.as_bytes())?;
        value.strip_prefix(b"=")
    });
    Ok(value.and_then(|value| String::from_utf8(value.to_vec()).ok()))
}

/// Returns how many descriptors this process has open; `None` if the kernel does not count them
/// (before 6.2), so that they would have to be listed.
pub fn n_open_descriptors() -> Option<u64> {
    let n_open = std::fs::metadata("/proc/self/fd").ok()?.len();
    (n_open > 0).then_some(n_open)
}

/// Returns an id that differs after each boot.
pub fn boot_id() -> io::Result<String> {
    static ID: OnceLock<String> = OnceLock::new();
    once(&ID, || {
        Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
    })
}

/// Returns the inode of the pid namespace of this process, which no process can leave.
pub fn pid_namespace() -> io::Result<u64> {
    static INODE: OnceLock<u64> = OnceLock::new();
    once(&INODE, || Ok(std::fs::metadata("/proc/self/ns/pid")?.ino()))
}

/// Returns a value that stays the same while this process lives, and reads it until that succeeds.
fn once<T: Clone>(known: &OnceLock<T>, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if let Some(value) = known.get() {
        return Ok(value.clone());
    }
    let value = read()?;
    Ok(known.get_or_init(|| value).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_trouble() {
        let stat = "42 (a) R 1 (b) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        let process = parse_stat(42, stat).unwrap();
        let expected = (42, 7, 8, 9, 12345);
        assert_eq!(
            (process.pid, process.parent, process.group, process.session, process.start_ticks),
            expected
        );
        assert!(!process.is_zombie && !process.is_stopped);
    }

    #[test]
    fn a_process_is_dead_when_all_its_threads_are() {
        let is_zombie = |state: &str, n_threads: u32| {
            let stat = format!(
                "42 (a) {state} 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {n_threads} 0 12345 99 1"
            );
            parse_stat(42, &stat).unwrap().is_zombie
        };
        assert!(is_zombie("Z", 1) && is_zombie("X", 0));
        assert!(!is_zombie("Z", 2) && !is_zombie("D", 1));
    }

    #[test]
    fn gone_is_not_the_same_as_not_looked() {
        let looked = |errno: Errno| if_there::<()>(Err(errno.into()));
        for gone in [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM] {
            assert_eq!(looked(gone).unwrap(), None);
        }
        for nobody_knows in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(looked(nobody_knows).is_err());
        }
    }

    #[test]
    fn processor_time_is_told_by_who_used_it() {
        // utime, stime, cutime and cstime are 5 to 8.
        let stat = ") S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        assert_eq!(parse_ticks(stat), Some((11, 15)));
        assert_eq!(parse_ticks(") R 1"), None);
    }

    #[test]
    fn a_value_is_read_until_that_succeeds_and_never_again() {
        let known = OnceLock::new();
        assert!(once(&known, || Err::<u64, _>(Errno::MFILE.into())).is_err());
        assert_eq!(once(&known, || Ok(7)).unwrap(), 7);
        assert_eq!(once(&known, || unreachable!("it is known")).unwrap(), 7);
    }

    #[test]
    fn open_descriptors_are_counted_or_unknown() {
        let open: Vec<File> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        let listed = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        // Other tests open and close files meanwhile.
        let counted = n_open_descriptors();
        assert!(counted.is_none_or(|n| n >= 200 && n.abs_diff(listed) < 100), "{counted:?}");
        drop(open);
    }

    #[test]
    fn this_process_is_there() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = read(pid).unwrap();
        assert!(list().unwrap().contains(&me));
    }
}
