//! Processes as `/proc` shows them: identities for the files of an instance folder, and trees for those who must end one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, PidfdFlags, Signal};

/// One process at the moment of looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Start time in clock ticks since boot: with the pid, and until the next boot, its identity.
    pub start_ticks: u64,
    /// Dead, and not yet reaped by its parent.
    pub is_zombie: bool,
}

impl Process {
    /// Sends `signal` to this very process; `false` if it is gone, also when its pid is somebody else's by now.
    pub fn send(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        // The descriptor first, then the look: what is compared is what is signalled.
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|pidfd| {
            read(self.pid).is_some_and(|now| now.start_ticks == self.start_ticks)
                && rustix::process::pidfd_send_signal(pidfd, signal).is_ok()
        })
    }
}

/// The process that has this pid now.
pub fn read(pid: i32) -> Option<Process> {
    // No heap: the shim reads thousands of these when it ends a tree. The name is at most 64 bytes, numbers 20.
    let mut buffer = [0; 1024];
    let n = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut buffer)).ok()?;
    parse_stat(pid, std::str::from_utf8(&buffer[..n]).ok().or_else(|| after_name(&buffer[..n]))?)
}

/// A process may give itself a name that is no UTF-8; the numbers behind it are plain.
fn after_name(stat: &[u8]) -> Option<&str> {
    let name_end = stat.iter().rposition(|&b| b == b')')?;
    std::str::from_utf8(&stat[name_end..]).ok()
}

fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    // The name may contain spaces and parentheses; behind the last one come the numbers.
    let (_, numbers) = stat.rsplit_once(')')?;
    let mut fields = numbers.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, start_ticks, is_zombie: matches!(state, "Z" | "X") })
}

/// All processes of this pid namespace. About 12 ms with 1,000 of them: not for paths that each agent takes.
pub fn list() -> io::Result<Vec<Process>> {
    Ok(pids()?.filter_map(read).collect())
}

fn pids() -> io::Result<impl Iterator<Item = i32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// The processes below `root` in `all`, children before grandchildren.
pub fn descendants(all: &[Process], root: i32) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parent = Some(root);
    let mut next = 0;
    while let Some(pid) = parent {
        found.extend(all.iter().filter(|process| process.parent == pid && process.pid != pid));
        parent = found.get(next).map(|process| process.pid);
        next += 1;
    }
    found
}

/// The short name of a process, as it last set it.
pub fn comm(pid: i32) -> Option<String> {
    let mut name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    name.truncate(name.trim_end().len());
    Some(name)
}

/// The value of `variable` in the environment that a process was started with, where we may see it.
pub fn find_variable(pid: i32, variable: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environment.split(|&b| b == 0).find_map(|entry| {
        let value = entry.strip_prefix(variable.as_bytes())?;
        value.strip_prefix(b"=")
    })?;
    String::from_utf8(value.to_vec()).ok()
}

/// Differs after each boot.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

/// Inode of the pid namespace of this process.
pub fn pid_namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_trouble() {
        let stat = "42 (a) R 1 (b) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        let process = parse_stat(42, stat).unwrap();
        assert_eq!(process, Process { pid: 42, parent: 7, group: 8, session: 9, start_ticks: 12345, is_zombie: false });
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let process = |pid, parent| Process { pid, parent, group: 0, session: 0, start_ticks: 0, is_zombie: false };
        let all = [process(5, 4), process(1, 0), process(3, 2), process(2, 1), process(4, 2), process(9, 8)];
        let pids: Vec<i32> = descendants(&all, 2).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [3, 4, 5]);
        assert!(descendants(&all, 9).is_empty());
    }

    #[test]
    fn this_process_is_there() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = read(pid).unwrap();
        assert!(list().unwrap().contains(&me));
    }
}
