//! F-34: an agent that reads its standard input or wants a terminal, under a daemon that has one.
#![allow(unsafe_code, reason = "what runs between fork and exec")]

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;

use nix::libc;

use crate::daemon::Daemon;
use crate::support::{agent_fixture, until_some};

/// Opens a terminal. Returns the user's side and the side of the programs in it.
fn open_terminal() -> (OwnedFd, OwnedFd) {
    let (mut outside, mut inside) = (0, 0);
    // SAFETY: both numbers are writable. Without a name, a form and a size, the call takes the
    // defaults.
    let result = unsafe {
        libc::openpty(
            &raw mut outside,
            &raw mut inside,
            std::ptr::null_mut(),
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: they were just opened, and have no other owner.
    unsafe { (OwnedFd::from_raw_fd(outside), OwnedFd::from_raw_fd(inside)) }
}

/// Returns the device number of a process' terminal, or 0 without one.
fn terminal_of(pid: i32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, numbers) = stat.rsplit_once(')').unwrap();
    numbers.split_ascii_whitespace().nth(4).unwrap().parse().unwrap()
}

#[test]
fn an_agent_of_a_daemon_in_a_terminal_reads_the_end_and_has_no_terminal() {
    // A step of the script has the script as its standard input, so this step is an argument.
    let provider = format!(
        "{{ cli_command: {}, cli_args: [\"read-stdin:read\", script] }}",
        agent_fixture().display()
    );
    let mut daemon = Daemon::configured(&format!("ai_providers: {{ claude: {provider} }}"));
    let (outside, inside) = open_terminal();
    for fd in [&outside, &inside] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).unwrap();
    }
    let mut command = daemon.command();
    let terminal = inside.as_raw_fd();
    let sit_down = move || {
        // SAFETY: two system calls.
        let result = unsafe {
            libc::setsid();
            libc::ioctl(terminal, libc::TIOCSCTTY, 0)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: only system calls between fork and exec.
    unsafe { command.pre_exec(sit_down) };
    daemon.spawn_with(command, inside.try_clone().unwrap());
    daemon.until_ready();
    assert_ne!(terminal_of(daemon.pid()), 0);
    daemon.with_one_task(&[
        "run:(: </dev/tty) 2>/dev/null; echo $? >tty",
        "authenticate",
        "write:ready",
        "sleep:600",
    ]);
    assert_eq!(terminal_of(daemon.written_pid("ready")), 0);
    assert_eq!(fs::read_to_string(daemon.work().join("read")).unwrap(), "", "the end, at once");
    let opened = until_some("it tried", || fs::read_to_string(daemon.work().join("tty")).ok());
    assert_ne!(opened.trim(), "0");
    assert!(daemon.terminate().success());
    daemon.until_nothing_is_left();
}
