//! Starts a shim: folder, lock, secrets in memory, spawn. Blocking; it makes no decisions.

use std::borrow::Cow;
use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::Access;
use rustix::process::{Pid, Resource};

use super::orphans::SpawnPermit;
use super::shim_program::program_of_shims;
use super::shims::Child;
use super::temporary::{self, TemporaryFolders};
use super::transcripts;
use super::{ProcessConfig, StartError, StartRequest};
use domain::{CommandSpec, FileContent, LaunchFile, RunAs, Secret};
use machine::crash_point::{self, CrashPoint};
use machine::instance_dir::clock::wall_clock;
use machine::instance_dir::order::{self, CgroupOrder, Order};
use machine::instance_dir::record::{self, Spec};
use machine::instance_dir::{self, MARK_VARIABLE, lock};
use machine::locks::lock;
use machine::sys;
use machine::sys::handle::Handle;
use runtime::folder_watch::{Folders, WatchId};

/// The directories in which programs are looked up if the agent's environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Descriptors that are kept from agents. The daemon itself needs some. Agents use a part of the
/// rest as clients. Others serve for reading and recording how an agent ended: without those, no
/// descriptor would ever be free again. At most `MOST_SPARE` are kept.
const OWN: u64 = 32;
const CLIENTS_PART: u64 = 4;
const FOR_ENDS: u64 = 8;
const MOST_SPARE: u64 = 64;
/// Descriptors below this number are moved to it or above before the spawn, so that they do not
/// collide with their numbers in the shim.
const SAFE_DESCRIPTOR: i32 = 10;

/// A shim that was started.
pub struct Spawned {
    pub child: Child,
    pub watch: WatchId,
}

/// Starts the shim of `request`. After an error nothing of it is left.
pub fn spawn(
    config: &ProcessConfig,
    installation_id: &str,
    folders: &Folders,
    temporary: &TemporaryFolders,
    request: &StartRequest,
) -> Result<Spawned, StartError> {
    check_spare_descriptors()
        .map_err(|source| StartError::Spawn { program: config.program.clone(), source })?;
    let programs = Programs::find(&request.command)?;
    let dir = instance_dir::instance(&config.state_dir, &request.launch);
    match instance_dir::create_private(&dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(StartError::Exists { launch: request.launch.clone() });
        }
        Err(source) => return Err(StartError::Folder { path: dir, source }),
    }
    crash_point::reach(CrashPoint::FolderMade);
    let spawned = spawn_in(&dir, config, installation_id, folders, temporary, request, &programs);
    if spawned.is_err() {
        // Best effort: the next daemon recognises a folder that stays as "never started".
        let _ = std::fs::remove_dir_all(&dir);
        if let Some(files) = &request.command.files_in {
            let _ = std::fs::remove_dir_all(files);
        }
        temporary.remove(&request.launch);
    }
    spawned
}

fn spawn_in(
    dir: &Path,
    config: &ProcessConfig,
    installation_id: &str,
    folders: &Folders,
    temporary: &TemporaryFolders,
    request: &StartRequest,
    programs: &Programs,
) -> Result<Spawned, StartError> {
    let in_folder = |source| StartError::Folder { path: dir.to_owned(), source };
    let in_order = |source| StartError::Order { launch: request.launch.clone(), source };
    let command = &request.command;
    let lock = lock::take(dir).map_err(in_folder)?;
    let temporary = make_temporary(temporary, request)?;
    let spec = Spec {
        launch_id: request.launch.clone(),
        key: request.key.clone(),
        program: programs.first.clone(),
        environment: names_of(command, temporary.as_deref()),
        working_directory: command.working_directory.clone(),
        fuse_boottime_ms: request.start_deadline,
        files: command.files_in.clone().filter(|_| !command.files.is_empty()),
        cgroup: config
            .cgroups
            .as_ref()
            .map(|cgroups| cgroups.group_of(installation_id, request.launch.as_str())),
        created_at: wall_clock(),
    };
    let prepared = record::write(dir, &spec).and_then(|()| record::reserve(dir));
    prepared.map_err(in_folder)?;
    match (&spec.files, &command.run_as) {
        (Some(files), Some(user)) => {
            let failed = |source| StartError::Folder { path: files.clone(), source };
            write_files_of(user, files, &command.files).map_err(failed)?;
        }
        _ => write_files(&instance_dir::files(dir), &command.files).map_err(in_folder)?,
    }
    if let Some(kept) = transcripts::note(command) {
        record::write(dir, &kept).map_err(in_folder)?;
    }
    // The watch begins before the spawn, so that no record of the shim is missed.
    let watch = folders.watch_records(dir).map_err(in_folder)?;
    let mark = format!("{installation_id}/{}", request.launch);
    let temporary = temporary.map(|path| path.to_string_lossy().into_owned());
    let order = order(config, request, programs, &mark, temporary.as_deref(), spec.cgroup);
    let unnamed = |name, content: &[u8]| sys::files::unnamed(dir, name, content);
    let order = serde_json::to_vec(&order)
        .map_err(io::Error::from)
        .and_then(|text| unnamed("order", &text));
    let prompt =
        command.stdin.as_ref().map(|text| unnamed("prompt", text.reveal().as_bytes())).transpose();
    let handed =
        Handed { order: order.map_err(in_order)?, prompt: prompt.map_err(in_order)?, lock };
    let program = program_of_shims(&config.program);
    spawn_shim(&program, dir, &handed)
        .map(|child| Spawned { child, watch })
        .map_err(|source| StartError::Spawn { program, source })
}

/// Makes the launch's own folder for temporary files, unless its command names another one.
fn make_temporary(
    temporary: &TemporaryFolders,
    request: &StartRequest,
) -> Result<Option<PathBuf>, StartError> {
    let StartRequest { launch, command, .. } = request;
    if command.environment.iter().any(|(name, _)| name == temporary::VARIABLE) {
        return Ok(None);
    }
    let made = temporary.make(launch, command.run_as.as_ref());
    made.map_err(|source| StartError::Temporary { launch: launch.clone(), source })
}

/// Returns the names of all variables that the agent gets, except for the mark.
fn names_of(command: &CommandSpec, temporary: Option<&Path>) -> Vec<String> {
    let given = command.environment.iter().map(|(name, _)| name.clone());
    given.chain(temporary.map(|_| temporary::VARIABLE.to_owned())).collect()
}

/// Fails like an `open` without descriptors, while some are left for other uses. It must run before
/// the folder is made: without descriptors the folder could not be removed either.
fn check_spare_descriptors() -> io::Result<()> {
    // The whole machine may have too many open files.
    let any = File::open("/dev/null")?;
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    match sys::processes::n_open_descriptors() {
        Some(n_open) if n_open.saturating_add(n_spare(limit)) <= limit => Ok(()),
        Some(_) => Err(rustix::io::Errno::MFILE.into()),
        None => take_and_free(&any, n_spare(limit)),
    }
}

/// Returns how many descriptors must be free for a start, under this limit of open files.
fn n_spare(limit: u64) -> u64 {
    MOST_SPARE.min(limit.saturating_sub(OWN) / CLIENTS_PART + FOR_ENDS)
}

/// Takes as many descriptors, which shows that they are free, and frees them.
fn take_and_free(any: &File, n_descriptors: u64) -> io::Result<()> {
    // Two threads that check at the same time would count each other's descriptors as used.
    static LOOKING: Mutex<()> = Mutex::new(());
    let _looking = lock(&LOOKING);
    let taken = (0..n_descriptors).map(|_| rustix::io::fcntl_dupfd_cloexec(any, 0));
    taken.collect::<Result<Vec<OwnedFd>, _>>()?;
    Ok(())
}

/// Writes the files to a folder where another user finds them and may change them.
fn write_files_of(user: &RunAs, dir: &Path, files: &[LaunchFile]) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        // Others may enter it but not list it, for any umask.
        std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o711))?;
    }
    instance_dir::create_private(dir)?;
    write_files(dir, files)?;
    give_to(user, dir)
}

/// Gives a tree to another user. The folder itself comes last: until then, no other user can change
/// anything below it.
fn give_to(user: &RunAs, path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give_to(user, &entry?.path())?;
        }
    }
    std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid))
}

/// Writes the files. Makes no folder if there are no files.
fn write_files(dir: &Path, files: &[LaunchFile]) -> io::Result<()> {
    for LaunchFile { path, content } in files {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        match content {
            FileContent::Text(text) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)?
                    .write_all(text.as_bytes())?;
            }
            FileContent::Link(target) => std::os::unix::fs::symlink(target, path)?,
        }
    }
    Ok(())
}

fn order<'a>(
    config: &ProcessConfig,
    request: &'a StartRequest,
    programs: &'a Programs,
    mark: &'a str,
    temporary: Option<&'a str>,
    cgroup: Option<PathBuf>,
) -> Order<'a> {
    let command = &request.command;
    let limits =
        config.cgroups.as_ref().map(|cgroups| cgroups.kept(config.limits)).unwrap_or_default();
    let reveal = |secret: &'a Secret| Cow::Borrowed(secret.reveal());
    let environment = command
        .environment
        .iter()
        .map(|(name, value)| (Cow::Borrowed(name.as_str()), reveal(value)));
    let temporary = temporary.map(|path| (temporary::VARIABLE, path));
    let more = temporary.into_iter().chain([(MARK_VARIABLE, mark)]);
    Order {
        program: Cow::Borrowed(&programs.first),
        arguments: programs.arguments(command).collect(),
        environment: environment
            .chain(more.map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))))
            .collect(),
        working_directory: Cow::Borrowed(&command.working_directory),
        redact: command.redact.iter().map(reveal).collect(),
        has_prompt: command.stdin.is_some(),
        run_as: command.run_as.clone(),
        cgroup: cgroup.map(|dir| CgroupOrder {
            dir,
            memory_max: limits.memory,
            pids_max: limits.processes,
        }),
        descriptors: config.descriptors,
        fuse_boottime_ms: request.start_deadline,
        stop_timeout: config.stop.timeout,
        leak_grace: config.stop.leak_grace,
        max_file: config.output.max_file,
        files: config.output.files.max(1),
    }
}

/// The program that is executed, and the program that it executes in turn.
struct Programs {
    first: PathBuf,
    /// The agent's own program, if another program starts it.
    wrapped: Option<String>,
}

impl Programs {
    fn find(command: &CommandSpec) -> Result<Self, StartError> {
        let own = find_program(command)?;
        let Some(wrapper) = command.wrap.first() else {
            return Ok(Self { first: own, wrapped: None });
        };
        // It is looked up here as well: a wrapper may see another file system, or use another PATH.
        let wrapped = own
            .into_os_string()
            .into_string()
            .map_err(|_| StartError::ProgramNotFound { program: command.program.clone() })?;
        Ok(Self { first: find_in_path(wrapper, command)?, wrapped: Some(wrapped) })
    }

    fn arguments<'a>(&'a self, command: &'a CommandSpec) -> impl Iterator<Item = Cow<'a, str>> {
        let of_wrapper =
            command.wrap.iter().skip(1).map(String::as_str).chain(self.wrapped.as_deref());
        of_wrapper.chain(command.arguments.iter().map(String::as_str)).map(Cow::Borrowed)
    }
}

/// Returns the absolute path of the program of `command`. A bare name is looked up in the agent's
/// own `PATH`; a relative path starts at its working directory. Only the execution shows whether a
/// given path is executable.
pub fn find_program(command: &CommandSpec) -> Result<PathBuf, StartError> {
    find_in_path(&command.program, command)
}

/// Returns the absolute path of this program of `command`, such as its wrapper.
pub(super) fn find_in_path(program: &str, command: &CommandSpec) -> Result<PathBuf, StartError> {
    if program.contains('/') {
        return Ok(command.working_directory.join(program));
    }
    let folders = path_of(command).split(':');
    let candidates = folders.map(|dir| command.working_directory.join(dir).join(program));
    candidates
        .into_iter()
        .find(|path| {
            !program.is_empty()
                && path.is_file()
                && rustix::fs::access(path, Access::EXEC_OK).is_ok()
        })
        .ok_or_else(|| StartError::ProgramNotFound { program: program.to_owned() })
}

/// Returns the `PATH` in which the programs of `command` are looked up.
pub(super) fn path_of(command: &CommandSpec) -> &str {
    let path = command.environment.iter().find(|(name, _)| name == "PATH");
    path.map_or(DEFAULT_PATH, |(_, value)| value.reveal())
}

/// The descriptors that a shim gets from this process.
struct Handed {
    order: OwnedFd,
    prompt: Option<OwnedFd>,
    lock: File,
}

fn spawn_shim(program: &Path, dir: &Path, handed: &Handed) -> io::Result<Child> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let mut moved = Vec::new();
    let mut actions = PosixSpawnFileActions::init()?;
    let prompt = handed.prompt.as_ref().map(|prompt| (prompt.as_fd(), order::fd::PROMPT));
    let wanted = [
        (handed.order.as_fd(), order::fd::ORDER),
        (nothing.as_fd(), libc::STDOUT_FILENO),
        (nothing.as_fd(), libc::STDERR_FILENO),
        (handed.lock.as_fd(), order::fd::LOCK),
    ];
    for (fd, number) in wanted.into_iter().chain(prompt) {
        let mut safe = fd.as_raw_fd();
        if safe < SAFE_DESCRIPTOR {
            let copy = rustix::io::fcntl_dupfd_cloexec(fd, SAFE_DESCRIPTOR)?;
            safe = copy.as_raw_fd();
            moved.push(copy);
        }
        actions.add_dup2(safe, number)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    let flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK;
    attributes.set_flags(flags | PosixSpawnFlags::from_bits_retain(sys::birth::SPAWN_FLAGS))?;
    // The shim relies on this: it resets few signals for its agent.
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(&signals_of_a_shim())?;
    let c_string = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let program = c_string(program.as_os_str().as_bytes())?;
    let arguments = [
        c_string(sys::birth::SHIM_ARGUMENT.as_bytes())?,
        c_string(order::SHIM_ARGUMENT.as_bytes())?,
        c_string(dir.as_os_str().as_bytes())?,
    ];
    // The shim gets nothing of this process' environment, which may hold secrets: it needs none of
    // it.
    let environment = crash_point::environment_of_shim();
    let permit = SpawnPermit::take();
    crash_point::reach(CrashPoint::FolderReady);
    let pid = nix::spawn::posix_spawn(
        program.as_c_str(),
        &actions,
        &attributes,
        &arguments,
        &environment,
    )?;
    crash_point::reach(CrashPoint::Spawned);
    permit.spawned(pid.as_raw());
    let pid = Pid::from_raw(pid.as_raw()).expect("a child has a positive pid");
    // A child keeps its pid because it is not reaped before its handle exists.
    Ok(Child { pid, handle: Handle::open(pid) })
}

/// Returns the signals that a shim starts with blocked: all but faults. It reads the signals that
/// it handles when it is ready. The others cannot kill it, and none comes too early.
fn signals_of_a_shim() -> SigSet {
    let mut blocked = SigSet::all();
    for fault in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGABRT,
        Signal::SIGTRAP,
        Signal::SIGSYS,
    ] {
        blocked.remove(fault);
    }
    blocked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_stay_free_under_any_limit() {
        for (limit, expected) in [(16, 8), (64, 16), (256, 64), (20_000, 64), (u64::MAX, 64)] {
            assert_eq!(n_spare(limit), expected, "{limit}");
        }
    }
}
