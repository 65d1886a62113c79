//! The shim of one agent: a process of its own that starts the agent, copies its output and
//! records its end. It ends only when the agent's whole process tree has ended.
//!
//! It has a program of its own. If that program is missing, it runs in the daemon's program, whose
//! `main` branches here before anything else. The code is plain and blocking, in one thread:
//! PDEATHSIG fires when the *thread* that forked ends, and its memory counts once per agent. It
//! knows only an instance folder and an order; the daemon may die and come back without the shim
//! noticing.
//!
//! ```text
//! take over ─► start agent ─► keep ─ leader gone: `exited` ─► end the rest ─ ECHILD: `ended`
//!    │                         │                                 ▲
//!    │                         ├─ SIGTERM, start deadline: the stop sequence ─────┘
//!    │                         └─ leader gone, no process of its tree lives: `ended` at once
//!    └─ start deadline passed, stop wanted, exec failed: `ended` at once
//! ```
//!
//! A shim exits after `ended`. If it had an agent, it stays for a quarter of a second after this
//! record: if hundreds end at once, all records are written before the kernel removes the
//! processes.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may wait and ask the time"))]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::process::{Resource, Rlimit};

use self::agent::Agent;
use self::event_loop::EventLoop;
use domain::launch::ProcessEnd;
use domain::redact::Redactor;
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir::clock::{BootInstant, wall_clock};
use machine::instance_dir::lock;
use machine::instance_dir::order::{self, Order};
use machine::instance_dir::record::{self, Exit, Record, Stop};
use machine::instance_dir::{SHIM_COMM, SHIM_LOG};
use machine::sys;

mod agent;
mod clean;
mod event_loop;
mod kill_rounds;
mod output;
mod tree;

/// Returns whether this process was started as a shim.
pub fn is_wanted(arguments: &mut impl Iterator<Item = OsString>) -> bool {
    arguments.nth(1).is_some_and(|argument| argument == order::SHIM_ARGUMENT)
}

/// A step that failed before there was an agent.
#[derive(Debug, thiserror::Error)]
#[error("could not {what}")]
struct TakeOverError {
    what: &'static str,
    source: io::Error,
}

/// The kernel refused to move the agent. Its shim finds and ends its tree without the group.
#[derive(Debug, thiserror::Error)]
#[error("the agent is not in its control group: its limits are not enforced")]
struct OutsideItsGroup;

/// Runs the whole life of a shim. `arguments` are those of the process.
#[allow(unsafe_code, reason = "the process ends at once, without exit handlers")]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ! {
    let code = live(arguments);
    // SAFETY: ends the process. Its records are written, by plain system calls.
    unsafe { libc::_exit(code) }
}

fn live(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let Some(dir) = arguments.nth(2).map(PathBuf::from) else {
        eprintln!("agent-coordinator shim: is started by the daemon only");
        return 2;
    };
    match keep(&dir) {
        Ok(()) => 0,
        Err(error) => {
            complain(&dir, &error);
            1
        }
    }
}

fn keep(dir: &Path) -> Result<(), TakeOverError> {
    let failed = |what| move |source: io::Error| TakeOverError { what, source };
    become_shim().map_err(failed("become a shim"))?;
    // The lock is held for life: the kernel frees it at the moment this process is gone.
    let lock = File::from(inherited(order::fd::LOCK).map_err(failed("take over the lock"))?);
    let mut text = Vec::new();
    let order_file = inherited(order::fd::ORDER).map(File::from);
    order_file
        .and_then(|mut file| file.read_to_end(&mut text))
        .map_err(failed("read the order"))?;
    let order: Order<'_> = serde_json::from_slice(&text)
        .map_err(io::Error::from)
        .map_err(failed("understand the order"))?;
    let prompt = if order.has_prompt {
        Some(inherited(order::fd::PROMPT).map_err(failed("take over the prompt"))?)
    } else {
        None
    };
    crash_point::reach(CrashPoint::ShimStarted);
    let noted = lock::identify_this_process().and_then(|me| lock::note(&lock, &me));
    noted.map_err(failed("note who holds the lock"))?;
    crash_point::reach(CrashPoint::ShimNoted);

    match reason_not_to_start(dir, &order) {
        Some(end) => finish_without_agent(dir, end),
        None => match Agent::start(&order, prompt) {
            Ok((agent, streams)) => {
                crash_point::reach(CrashPoint::AgentForked);
                if !agent.is_in_its_group() {
                    complain(dir, &OutsideItsGroup);
                }
                let limits = event_loop::OrderLimits::of(&order);
                let redactor = Redactor::new(order.redact.iter().map(|literal| literal.as_bytes()));
                drop(order);
                // The rest of the order is secret and no longer needed. Best effort: no other
                // process can read this memory.
                text.fill(0);
                drop(text);
                EventLoop::new(dir, agent, streams, limits, redactor)
                    .map_err(failed("keep the agent"))?
                    .keep();
            }
            Err(reason) => finish_without_agent(dir, ProcessEnd::StartFailed(reason)),
        },
    }
    Ok(())
}

/// Returns the reason not to start: a claim whose time is over, or whose stop came first, must not
/// become a process.
fn reason_not_to_start(dir: &Path, order: &Order<'_>) -> Option<ProcessEnd> {
    if BootInstant::now() >= order.fuse_boottime_ms {
        return Some(ProcessEnd::StartDeadlinePassed);
    }
    match record::read::<Stop>(dir) {
        Ok(Some(stop)) => Some(ProcessEnd::StartFailed(format!(
            "stopped ({}) before it was started",
            stop.reason
        ))),
        Ok(None) => None,
        Err(error) => Some(ProcessEnd::StartFailed(format!(
            "stopped before it was started, why is unknown: {error}"
        ))),
    }
}

fn finish_without_agent(dir: &Path, end: ProcessEnd) {
    let stop = record::read::<Stop>(dir).ok().flatten().map(|stop| stop.reason);
    let exit = Exit { stop, ..Exit::without_agent(end, wall_clock()) };
    complain_unless_written::<Exit>(dir, record::write(dir, &exit));
}

fn become_shim() -> io::Result<()> {
    sys::birth::take_name(SHIM_COMM)?;
    sys::birth::hide_memory()?;
    sys::orphans::become_reaper()?;
    // The spawn did this already on systems where it can.
    let _ = rustix::process::setsid();
    keep_descriptors_from_agent()
}

/// Raises the limit of file sizes for this shim as far as possible, because that limit is for the
/// agent. Returns the agent's limit.
fn raise_file_size() -> Rlimit {
    let before = rustix::process::getrlimit(Resource::Fsize);
    let _ =
        rustix::process::setrlimit(Resource::Fsize, Rlimit { current: before.maximum, ..before });
    before
}

/// Closes or hides descriptors, so that the agent has only 0, 1 and 2, independent of the
/// descriptors that the daemon was started with.
#[allow(unsafe_code, reason = "a flag of a descriptor that may not be open")]
fn keep_descriptors_from_agent() -> io::Result<()> {
    // This process does not use any above PROMPT yet.
    sys::birth::close_from(order::fd::PROMPT + 1)?;
    for fd in order::fd::LOCK..=order::fd::PROMPT {
        // SAFETY: sets a flag; on a descriptor that is not open (no prompt) it fails without
        // effect.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Takes ownership of a descriptor that the daemon handed over by number.
#[allow(unsafe_code, reason = "descriptors come from the daemon by number")]
fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asks for a flag; harmless on a descriptor that is not open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and each number is taken once, by `keep`.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    if fd == order::fd::ORDER {
        // Standard input stays open as `/dev/null`, so that no later file becomes descriptor 0.
        let order = rustix::io::fcntl_dupfd_cloexec(&owned, order::fd::PROMPT + 1)?;
        let nothing = File::open("/dev/null")?;
        nix::unistd::dup2_stdin(&nothing)?;
        std::mem::forget(owned);
        return Ok(order);
    }
    Ok(owned)
}

/// A record that a shim could not write.
#[derive(Debug, thiserror::Error)]
#[error("could not write {file}")]
struct Unwritten {
    file: &'static str,
    source: io::Error,
}

/// Logs that a record `R` was not written. There is no other place to report it, and the agent is
/// kept all the same.
fn complain_unless_written<R: Record>(dir: &Path, written: io::Result<()>) {
    if let Err(source) = written {
        complain(dir, &Unwritten { file: R::FILE, source });
    }
}

/// Writes an error to the shim's log, its only place for messages: its standard error is not read.
fn complain(dir: &Path, error: &dyn std::error::Error) {
    let mut text = format!("{} {error}", wall_clock());
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text.push('\n');
    // If this fails, there is no other place for the message.
    let path = dir.join(OsStr::new(SHIM_LOG));
    let _ =
        sys::regular_file::open_to_append(&path).and_then(|mut log| log.write_all(text.as_bytes()));
}
