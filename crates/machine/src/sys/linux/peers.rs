//! The process at the other end of a Unix socket, and its ancestors.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::process::Pid;

use domain::peer::{Executable, Sight};

/// Returns the pid and the effective user of the process that connected.
pub fn credentials(socket: &impl AsFd) -> io::Result<(i32, u32)> {
    let credentials = getsockopt(socket, PeerCredentials)?;
    Ok((credentials.pid(), credentials.uid()))
}

/// Returns the name of this process.
pub fn own_name() -> Vec<u8> {
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    name.strip_suffix(b"\n").unwrap_or(&name).to_vec()
}

/// Looks at a process, from this process's point of view.
pub fn look(pid: i32) -> Sight {
    let seen = std::fs::read(format!("/proc/{pid}/stat")).ok().and_then(|stat| parse(&stat));
    // `/proc` may hide the processes of other users (`hidepid`), and a signal is refused for no
    // other reason.
    seen.unwrap_or_else(|| match Pid::from_raw(pid).map(rustix::process::test_kill_process) {
        Some(Err(Errno::PERM)) => Sight::OtherUser,
        Some(Err(Errno::SRCH)) => Sight::Gone,
        Some(Ok(()) | Err(_)) | None => Sight::Unreadable,
    })
}

/// Returns which program a process executes.
pub fn executable(pid: i32) -> Executable {
    static OWN: LazyLock<Option<(u64, u64)>> = LazyLock::new(|| inode(Path::new("/proc/self/exe")));
    static OWN_PATH: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| path(Path::new("/proc/self/exe")));
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let Some(its) = inode(&link) else {
        return Executable::Unreadable;
    };
    // The path is compared, too: the program may be replaced while a daemon runs.
    let is_ours = *OWN == Some(its) || (OWN_PATH.is_some() && path(&link) == *OWN_PATH);
    if is_ours { Executable::Ours } else { Executable::Other }
}

fn inode(link: &Path) -> Option<(u64, u64)> {
    let file = std::fs::metadata(link).ok()?;
    Some((file.dev(), file.ino()))
}

fn path(link: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(link).ok()?.into_os_string().into_vec();
    let target = target.strip_suffix(b" (deleted)").unwrap_or(&target).to_vec();
    Some(OsString::from_vec(target).into())
}

/// Parses `pid (name) state ppid …`. The name may contain any bytes, which are not always text;
/// plain numbers follow it.
fn parse(stat: &[u8]) -> Option<Sight> {
    let name_from = stat.iter().position(|&byte| byte == b'(')? + 1;
    let name_to = stat.iter().rposition(|&byte| byte == b')')?;
    let name = stat.get(name_from..name_to)?.to_vec();
    let mut fields = std::str::from_utf8(&stat[name_to + 1..]).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Sight::Seen { start_ticks, name, parent })
}

/// Returns the process whose session shows the lost ancestors of a process. None are lost here:
/// orphans stay below their shim.
pub const fn session_leader(_pid: i32) -> Option<i32> {
    None
}

/// Returns whether only its mark shows that a process belongs to an agent. Its ancestors show it
/// here.
pub const fn is_marked(_pid: i32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;
    use crate::sys::processes;

    #[test]
    fn a_name_of_any_bytes_is_read() {
        for name in [&b"a) R 1 (b"[..], b"\xff\xfe", b"", b"(", b" "] {
            let stat =
                [b"42 (", name, b") S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1\n"]
                    .concat();
            let expected = Sight::Seen { start_ticks: 12345, name: name.to_vec(), parent: 7 };
            assert_eq!(parse(&stat), Some(expected), "{name:?}");
        }
        assert_eq!(parse(b"42 )("), None);
        assert_eq!(parse(b""), None);
    }

    /// The kernel cuts the name of this script in the middle of a character.
    #[test]
    fn a_process_whose_name_is_not_utf_8_is_seen_with_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("aエージェント起動.sh");
        std::fs::write(&script, "#!/bin/sh\nread line\n").unwrap();
        std::fs::set_permissions(&script, Permissions::from_mode(0o700)).unwrap();
        let mut child = Command::new(&script).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (sight, process, user) =
            (look(pid), processes::read(pid).unwrap(), processes::user(pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        let name =
            "aエージェ".as_bytes()[..13].iter().chain(&"ン".as_bytes()[..2]).copied().collect();
        assert_eq!(
            sight,
            Sight::Seen { start_ticks: process.start_ticks, name, parent: process.parent }
        );
        assert_eq!(user, Some(nix::unistd::Uid::current().as_raw()));
        assert_eq!(look(pid), Sight::Gone);
    }

    #[test]
    fn a_process_that_executes_this_program_is_known_by_it() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let other = i32::try_from(child.id()).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let seen = [me, other, i32::MAX].map(executable);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, [Executable::Ours, Executable::Other, Executable::Unreadable]);
    }

    #[test]
    fn this_process_and_its_name_are_seen() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(matches!(look(me), Sight::Seen { parent, .. } if parent > 0));
        assert!(!own_name().is_empty() && !own_name().ends_with(b"\n"));
    }
}
