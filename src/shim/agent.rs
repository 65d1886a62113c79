//! The birth of the agent's process: clean signals, own group, own directory and environment; and clear words when it fails.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;
use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::domain::Timestamp;
use crate::instance_dir::clock::wall_clock;
use crate::instance_dir::order::Order;
use crate::instance_dir::proc_fs;

/// Added to the agent's badness, so that for want of memory it goes before its keeper and the daemon.
const OOM_SCORE: i32 = 300;
const HIGHEST_SIGNAL: libc::c_int = 64;
/// The kernel's `struct sigaction` on 64-bit Linux: handler, flags, restorer (on some), mask.
static DEFAULT_ACTION: [u64; 4] = [0; 4];

/// The leader of the tree. Reaped by the keeper, never through a `Child`.
pub struct Agent {
    pub pid: i32,
    pub start_ticks: u64,
    pub started_at: Timestamp,
}

/// Reading ends of what the agent prints to: standard output, standard error.
pub type Streams = [OwnedFd; 2];

impl Agent {
    /// Starts what `order` says; the error names the object that failed, and how.
    pub fn start(order: &Order<'_>, prompt: Option<OwnedFd>) -> Result<(Self, Streams), String> {
        let in_words = |error: io::Error| format!("could not prepare the start of the agent: {error}");
        let (output, output_end) = stream().map_err(in_words)?;
        let (errors, errors_end) = stream().map_err(in_words)?;
        let mut command = Command::new(order.program.as_os_str());
        command
            .args(order.arguments.iter().map(AsRef::as_ref))
            .env_clear()
            .envs(order.environment.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
            .current_dir(&order.working_directory)
            .stdin(prompt.map_or_else(Stdio::null, Stdio::from))
            .stdout(output_end)
            .stderr(errors_end)
            .process_group(0);
        let keeper = rustix::process::getpid();
        // SAFETY: only system calls between fork and exec, no allocation and no lock.
        unsafe { command.pre_exec(move || be_born(keeper)) };
        let child = command.spawn().map_err(|error| diagnose(order, &error))?;
        let pid = child.id().cast_signed();
        let started_at = wall_clock();
        // Best effort, and from here: before its exec the child is undumpable, and its /proc entries are root's.
        let _ = raise_oom_score(pid);
        // Alive, or a zombie that nobody has reaped: it can be read either way.
        let start_ticks = proc_fs::read(pid).map_or(0, |process| process.start_ticks);
        Ok((Self { pid, start_ticks, started_at }, [output, errors]))
    }
}

/// A pipe of which only the keeper's end doesn't block.
fn stream() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, agents) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let flags = rustix::fs::fcntl_getfl(ours.as_fd())?;
    rustix::fs::fcntl_setfl(ours.as_fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((ours, agents))
}

/// Runs in the child, before the exec.
fn be_born(keeper: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(keeper) {
        // It died before the line above; nobody would ever end this process.
        return Err(Errno::SRCH.into());
    }
    // An ignored signal stays ignored through an exec, and the daemon may have been started with some.
    for signal in 1..=HIGHEST_SIGNAL {
        // Not by the C library, which hides two signals of its own from us and ignores them in what it spawns.
        // SAFETY: all zeros are the default disposition without flags or mask; for KILL and STOP it fails without effect.
        unsafe {
            let nothing = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const DEFAULT_ACTION, nothing, size_of::<u64>());
        }
    }
    // SAFETY: the set is initialised by `sigemptyset` before it is used.
    unsafe {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
    Ok(())
}

fn raise_oom_score(pid: i32) -> io::Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let score: i32 = std::fs::read_to_string(&path)?.trim().parse().unwrap_or(0);
    std::fs::write(path, (score + OOM_SCORE).min(1000).to_string())
}

/// Which object made the start fail: the same errno may mean the directory, the program, or its interpreter.
fn diagnose(order: &Order<'_>, error: &io::Error) -> String {
    let directory = order.working_directory.display();
    match std::fs::metadata(&order.working_directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return format!("working directory `{directory}` does not exist");
        }
        Err(error) => return format!("working directory `{directory}` is not accessible: {error}"),
        Ok(metadata) if !metadata.is_dir() => return format!("working directory `{directory}` is not a directory"),
        Ok(_) if rustix::fs::access(&*order.working_directory, rustix::fs::Access::EXEC_OK).is_err() => {
            return format!("working directory `{directory}` may not be entered by this user");
        }
        Ok(_) => {}
    }
    let program = order.program.display();
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) if order.program.exists() => match interpreter(&order.program) {
            Some(interpreter) => format!("interpreter `{interpreter}` of program `{program}` does not exist"),
            None => format!("interpreter or loader of program `{program}` does not exist"),
        },
        Some(Errno::NOENT) => format!("program `{program}` does not exist"),
        Some(Errno::ACCESS) => match std::fs::metadata(&order.program) {
            Ok(metadata) if metadata.is_dir() => format!("program `{program}` is a directory"),
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                format!("program `{program}` is not executable")
            }
            _ => format!("program `{program}`, or its interpreter, may not be executed by this user"),
        },
        Some(Errno::TOOBIG) => format!("argument list or environment of program `{program}` is too long"),
        Some(Errno::NOEXEC) => format!("program `{program}` is in no format that this system executes"),
        _ => format!("could not start `{program}`: {error}"),
    }
}

/// What the first line of a script asks for.
fn interpreter(program: &Path) -> Option<String> {
    use std::io::Read;
    let mut start = [0; 256];
    let n = File::open(program).and_then(|mut file| file.read(&mut start)).ok()?;
    let line = start[..n].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().next()?.to_owned())
}
