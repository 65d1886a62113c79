//! Starts the agent's process: clean signals, own groups, own user, directory and environment. It
//! returns a clear message if the start fails.
#![allow(unsafe_code, reason = "what runs between fork and exec may only make plain system calls")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit};

use domain::launch::for_person;
use domain::{RunAs, Timestamp};
use machine::cgroup::{self, Group};
use machine::instance_dir::MARK_VARIABLE;
use machine::instance_dir::clock::wall_clock;
use machine::instance_dir::order::Order;
use machine::sys::{birth, executable, orphans, processes};

/// The leader of the tree. The shim reaps it, never through a `Child`.
pub struct Agent {
    pub pid: i32,
    pub start_ticks: u64,
    pub started_at: Timestamp,
    /// The mark in the environment of each process of its tree, unless a process was started with
    /// another environment.
    pub mark: String,
    /// The control group of its tree.
    pub group: Option<Group>,
}

/// The reading ends of the agent's standard output and standard error.
pub type Streams = [OwnedFd; 2];

impl Agent {
    /// Starts the agent of `order`. The error names the object that failed, and how.
    pub fn start(order: &Order<'_>, prompt: Option<OwnedFd>) -> Result<(Self, Streams), String> {
        let in_words =
            |error: io::Error| format!("could not prepare the start of the agent: {error}");
        let group = make_group(order)?;
        let started = Self::start_in(group.as_ref(), order, prompt, in_words);
        if let (Err(_), Some(group)) = (&started, &group) {
            group.end();
        }
        started.map(|(agent, streams)| (Self { group, ..agent }, streams))
    }

    fn start_in(
        group: Option<&Group>,
        order: &Order<'_>,
        prompt: Option<OwnedFd>,
        in_words: impl Fn(io::Error) -> String,
    ) -> Result<(Self, Streams), String> {
        let entrance = group.map(Group::entrance).transpose().map_err(&in_words)?;
        let (output, output_end) = stream().map_err(&in_words)?;
        let (errors, errors_end) = stream().map_err(&in_words)?;
        let mut command = Command::new(order.program.as_os_str());
        command
            .args(order.arguments.iter().map(AsRef::as_ref))
            .env_clear()
            .envs(order.environment.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
            .stdin(prompt.map_or_else(Stdio::null, Stdio::from))
            .stdout(output_end)
            .stderr(errors_end)
            .process_group(0);
        let directory = CString::new(order.working_directory.as_os_str().as_bytes());
        let birth = Birth {
            shim: rustix::process::getpid(),
            entrance: entrance.as_ref().map(AsRawFd::as_raw_fd),
            run_as: order.run_as.clone(),
            descriptors: order.descriptors,
            file_size: super::raise_file_size(),
            directory: directory.map_err(io::Error::from).map_err(&in_words)?,
        };
        // SAFETY: only system calls between fork and exec, no allocation and no lock.
        unsafe { command.pre_exec(move || birth.go()) };
        let child = command.spawn().map_err(|error| diagnose(order, &error))?;
        let pid = child.id().cast_signed();
        let started_at = wall_clock();
        orphans::keep(pid);
        // Best effort, and from here: before its exec the child is undumpable, and its `/proc`
        // entries are root's.
        let _ = birth::go_first(pid);
        // The process is alive, or a zombie that is not reaped yet: it can be read either way.
        let start_ticks = processes::read(pid).map_or(0, |process| process.start_ticks);
        let mark = order.environment.iter().find(|(name, _)| name == MARK_VARIABLE);
        let mark = mark.map(|(_, value)| value.clone().into_owned()).unwrap_or_default();
        Ok((Self { pid, start_ticks, started_at, mark, group: None }, [output, errors]))
    }

    /// Returns whether the agent is in its group, where its limits apply. An agent that is gone
    /// already needs none.
    pub fn is_in_its_group(&self) -> bool {
        let is_zombie = || processes::read(self.pid).is_none_or(|process| process.is_zombie);
        self.group.as_ref().is_none_or(|group| group.has(self.pid) || is_zombie())
    }
}

/// Makes the control group of the order. If making it fails and there are no limits to enforce, the
/// agent runs without a group.
fn make_group(order: &Order<'_>) -> Result<Option<Group>, String> {
    let Some(wanted) = &order.cgroup else {
        return Ok(None);
    };
    let limits = cgroup::CgroupLimits { memory: wanted.memory_max, processes: wanted.pids_max };
    match Group::create(&wanted.dir, limits) {
        Ok(group) => Ok(Some(group)),
        Err(_) if limits == cgroup::CgroupLimits::default() => Ok(None),
        Err(error) => {
            Err(format!("could not make control group `{}`: {error}", wanted.dir.display()))
        }
    }
}

/// Makes a pipe of which only the shim's end does not block.
fn stream() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, agents) = io::pipe()?;
    let flags = rustix::fs::fcntl_getfl(ours.as_fd())?;
    rustix::fs::fcntl_setfl(ours.as_fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((ours.into(), agents.into()))
}

/// The steps of the child between fork and exec.
struct Birth {
    shim: Pid,
    /// `cgroup.procs` of its group.
    entrance: Option<RawFd>,
    run_as: Option<RunAs>,
    /// The soft limits that the daemon and the shim raised for themselves.
    descriptors: Option<u64>,
    file_size: Rlimit,
    directory: CString,
}

impl Birth {
    fn go(&self) -> io::Result<()> {
        // This comes first, so that no part of the child was ever outside. The shim checks the
        // result.
        if let Some(entrance) = self.entrance {
            enter(entrance);
        }
        self.lower_limits();
        if let Some(user) = &self.run_as {
            birth::become_user(user.uid, user.gid, &user.groups)?;
        }
        // This comes after the change of user, which would undo it.
        birth::die_with_parent()?;
        if rustix::process::getppid() != Some(self.shim) {
            // The shim died before the line above, so this process would never be ended.
            return Err(Errno::SRCH.into());
        }
        // This uses the rights of the user that the agent runs as.
        change_directory(&self.directory)?;
        clean_signals();
        Ok(())
    }

    /// Lowers the limits. A limit that cannot be lowered stays as it is.
    fn lower_limits(&self) {
        if let Some(descriptors) = self.descriptors {
            let now = rustix::process::getrlimit(Resource::Nofile);
            let lowered = Rlimit { current: Some(descriptors), maximum: now.maximum };
            let _ = rustix::process::setrlimit(Resource::Nofile, lowered);
        }
        let _ = rustix::process::setrlimit(Resource::Fsize, self.file_size);
    }
}

/// Moves this process into the control group whose `cgroup.procs` is `entrance`.
fn enter(entrance: RawFd) {
    let mut text = [0; 10];
    let mut at = text.len();
    let mut rest = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    while rest > 0 {
        at -= 1;
        text[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    // SAFETY: writes from a buffer of this length to a descriptor that the shim holds open; a
    // closed one only returns an error.
    unsafe { libc::write(entrance, text[at..].as_ptr().cast(), text.len() - at) };
}

fn change_directory(directory: &CStr) -> io::Result<()> {
    // SAFETY: a string that ends with NUL and lives through the call.
    match unsafe { libc::chdir(directory.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn clean_signals() {
    birth::default_signals();
    // SAFETY: the set is initialised by `sigemptyset` before it is used.
    unsafe {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Returns a message about the object that made the start fail: the same errno may mean the
/// directory, the program, or its interpreter.
fn diagnose(order: &Order<'_>, error: &io::Error) -> String {
    let user = order.run_as.as_ref();
    if let Some(fault) = executable::fault_of_directory(&order.working_directory, user) {
        return fault;
    }
    let directory = order.working_directory.display();
    let program = order.program.display();
    // The shim's own rights do not show those of another user.
    if let (Some(user), Some(Errno::ACCESS)) = (user, Errno::from_io_error(error)) {
        return for_person(&format!(
            "user `{}` may not enter working directory `{directory}`, or not execute program `{program}`",
            user.name
        ));
    }
    if let (Some(user), Some(Errno::PERM)) = (user, Errno::from_io_error(error)) {
        return for_person(&format!("could not become user `{}`: {error}", user.name));
    }
    if let Some(fault) = executable::fault_of_program(&order.program) {
        return fault;
    }
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            format!("interpreter or loader of program `{program}` does not exist")
        }
        Some(Errno::ACCESS) => for_person(&format!(
            "program `{program}`, or its interpreter, may not be executed by this user"
        )),
        Some(Errno::TOOBIG) => {
            for_person(&format!("argument list or environment of program `{program}` is too long"))
        }
        Some(Errno::NOEXEC) => {
            for_person(&format!("program `{program}` is in no format that this system executes"))
        }
        _ => format!("could not start `{program}`: {error}"),
    }
}
