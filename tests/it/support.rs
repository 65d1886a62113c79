//! The common parts of the tests: waiting for a fact, and a bed of agents that leaves no process
//! behind.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use domain::launch::{ExitStatus, ProcessEnd, StopReason};
use domain::{AgentId, CommandSpec, InstanceKey, LaunchId, ProjectId, Purpose, Secret};
use domain::{Instance, Phase};
use machine::cgroup::CgroupLimits;
use machine::instance_dir;
use machine::instance_dir::clock::BootInstant;
use machine::instance_dir::lock::{self, LockState, ShimIdentity};
use machine::instance_dir::record::{self, Exit, Stop};
use machine::sys::processes;
use runtime::nudge::Nudge;
use supervisor::process::{
    self, Adoption, ProcessConfig, ProcessTable, StartRequest, TemporaryConfig,
};
use tempfile::TempDir;

pub use crate::forge::fake::git::run as git;

/// The deadline of a wait. Nothing here takes as long on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The longest pause between two looks at a fact.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Waits until `fact` returns something.
#[track_caller]
pub fn until_some<T>(what: &str, fact: impl FnMut() -> Option<T>) -> T {
    until_some_within(DEADLINE, fact, || format!("waited in vain until {what}"))
}

/// Waits like [`until_some`] for a longer time. `complaint` describes the failure. The pause after a
/// look is as long as the look took, because most looks start a program.
#[track_caller]
pub fn until_some_within<T>(
    timeout: Duration,
    mut fact: impl FnMut() -> Option<T>,
    complaint: impl Fn() -> String,
) -> T {
    let give_up_at = Instant::now() + timeout;
    loop {
        let look_at = Instant::now();
        if let Some(found) = fact() {
            return found;
        }
        assert!(Instant::now() < give_up_at, "{}", complaint());
        std::thread::sleep(look_at.elapsed().clamp(Duration::from_millis(1), LONGEST_PAUSE));
    }
}

/// Waits until `fact` holds. It blocks its thread, so that async tests need a runtime with several.
#[track_caller]
pub fn until(what: &str, mut fact: impl FnMut() -> bool) {
    until_some(what, || fact().then_some(()));
}

/// Returns whether a file or an answer has a text. The search of the standard library is optimized
/// in each build, and a file of a state can have many megabytes.
pub fn contains(content: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(content).contains(text)
}

/// Writes to the terminal why a test does nothing. The line is visible even if the test passes.
/// `.ci/run` counts these lines.
pub fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Returns whether no living process has this pid.
pub fn is_gone(pid: i32) -> bool {
    processes::read(pid).is_none_or(|process| process.is_zombie)
}

/// Installs a program in a folder, in the way in which a package manager replaces a running one.
/// Returns its path.
pub fn install(program: &Path, folder: &Path, name: &str) -> PathBuf {
    let (new, installed) = (folder.join("new"), folder.join(name));
    // `cp` writes it. A process that another test starts meanwhile would inherit the descriptor of
    // this process, and a program that is open for writing does not start.
    let copied = Command::new("cp").arg(program).arg(&new).status();
    assert!(copied.unwrap().success());
    std::fs::rename(new, &installed).unwrap();
    installed
}

/// Returns the path of the scripted agent.
pub fn agent_fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/agent")
}

/// A mounted file system, which is unmounted when this is dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts a file system in memory with these options on a folder. Returns `None` if this user
    /// may not do so.
    pub fn small(folder: &Path, options: &str) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "none"]).arg(folder).stderr(Stdio::null());
        let is_mounted = command.status().is_ok_and(|status| status.success());
        is_mounted.then(|| Self(folder.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The unmount is lazy, because a process that is just ending may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A state directory with a table of processes. The end of a test ends all agents in any case.
pub struct Bed {
    pub config: ProcessConfig,
    pub work: TempDir,
    _state: TempDir,
    table: Option<ProcessTable>,
    n_launches: AtomicU32,
}

impl Bed {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut ProcessConfig)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut config = ProcessConfig {
            state_dir: state.path().to_owned(),
            program: env!("CARGO_BIN_EXE_agent-coordinator").into(),
            stop: config::Stop::default(),
            output: config::Output { max_file: 1024 * 1024, files: 3 },
            descriptors: None,
            cgroups: None,
            temporary: TemporaryConfig {
                bases: vec![state.path().to_owned()],
                is_for_others: false,
            },
            limits: CgroupLimits::default(),
        };
        change(&mut config);
        let work = tempfile::tempdir().unwrap();
        let mut bed =
            Self { config, work, _state: state, table: None, n_launches: AtomicU32::new(0) };
        bed.open().await;
        bed
    }

    /// Opens the table, like a daemon that starts.
    pub async fn open(&mut self) -> Adoption {
        let (table, adoption) = process::open(self.config.clone(), Nudge::new()).await.unwrap();
        self.table = Some(table);
        adoption
    }

    /// Waits until the shim is gone, too. Then there is nothing to adopt.
    #[track_caller]
    pub fn until_shim_gone(&self, launch: &LaunchId) {
        let dir = self.dir(launch);
        until("the shim is gone", || matches!(lock::look(&dir), Ok(LockState::Free(_))));
    }

    /// Closes the table, like a daemon that ends. Its agents run on.
    pub async fn leave(&mut self) {
        self.table.take().unwrap().leave().await;
    }

    pub fn table(&self) -> &ProcessTable {
        self.table.as_ref().unwrap()
    }

    /// Returns a start of the scripted agent with these steps.
    pub fn request(&self, steps: &[&str]) -> StartRequest {
        let n = self.n_launches.fetch_add(1, Ordering::Relaxed);
        let arguments = steps
            .iter()
            .map(|&step| step.to_owned())
            .chain(["-p".to_owned(), "a prompt".to_owned()]);
        StartRequest {
            launch: format!("lch_{n}").parse().unwrap(),
            key: key(&format!("agt_{n}")),
            command: CommandSpec {
                program: agent_fixture().to_str().unwrap().to_owned(),
                arguments: arguments.collect(),
                environment: vec![("PATH".to_owned(), Secret::new(std::env::var("PATH").unwrap()))],
                working_directory: self.work.path().to_owned(),
                stdin: None,
                redact: Vec::new(),
                files: Vec::new(),
                wrap: Vec::new(),
                run_as: None,
                files_in: None,
                transcript: None,
            },
            start_deadline: BootInstant::now() + Duration::from_mins(10),
        }
    }

    /// Returns a start of another program.
    pub fn request_program(&self, program: &str, arguments: &[&str]) -> StartRequest {
        let mut request = self.request(&[]);
        program.clone_into(&mut request.command.program);
        request.command.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        request
    }

    pub async fn start(&self, steps: &[&str]) -> LaunchId {
        self.start_request(self.request(steps)).await
    }

    pub async fn start_request(&self, request: StartRequest) -> LaunchId {
        let launch = request.launch.clone();
        self.table().start(request).await.unwrap();
        launch
    }

    /// Returns the path of a file in the agent's working directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Waits until the agent has written `name`, and returns its text.
    pub fn written(&self, name: &str) -> String {
        until_some(&format!("{name} is written"), || std::fs::read_to_string(self.file(name)).ok())
    }

    pub fn dir(&self, launch: &LaunchId) -> PathBuf {
        instance_dir::find(&self.config.state_dir, launch).unwrap()
    }

    pub fn instance(&self, launch: &LaunchId) -> Option<Instance> {
        self.table().instances().iter().find(|instance| instance.launch == *launch).cloned()
    }

    pub fn phase(&self, launch: &LaunchId) -> Phase {
        self.instance(launch).unwrap().phase
    }

    #[track_caller]
    pub fn until_running(&self, launch: &LaunchId) -> i32 {
        until_some("the agent runs", || match self.phase(launch) {
            Phase::Running { pid, .. } => Some(pid),
            _ => None,
        })
    }

    #[track_caller]
    pub fn until_ended(&self, launch: &LaunchId) -> ProcessEnd {
        until_some("the instance has ended", || match self.phase(launch) {
            Phase::Ended { end, .. } => Some(end),
            _ => None,
        })
    }

    pub async fn stop(&self, launch: &LaunchId) -> bool {
        self.table().request_stop(launch, StopReason::Person, None).await.unwrap()
    }

    pub fn exit_record(&self, launch: &LaunchId) -> Exit {
        record::read(&self.dir(launch)).unwrap().unwrap()
    }

    /// Returns its whole output, in order.
    pub fn output(&self, launch: &LaunchId) -> String {
        let files = instance_dir::output_files(&self.dir(launch));
        files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
    }

    pub fn shim(&self, launch: &LaunchId) -> ShimIdentity {
        let dir = self.dir(launch);
        until_some("the shim is known", || match lock::look(&dir) {
            Ok(LockState::Held(shim)) => shim,
            _ => None,
        })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        end_all(&self.config.state_dir);
    }
}

/// Ends the agents that a test left running below this state directory. A shim that is told to stop
/// at once ends its whole tree.
pub fn end_all(state_dir: &Path) {
    let folders =
        std::fs::read_dir(instance_dir::instances(state_dir)).into_iter().flatten().flatten();
    for dir in folders.map(|entry| entry.path()) {
        let give_up_at = Instant::now() + DEADLINE;
        while let Ok(LockState::Held(shim)) = lock::look(&dir) {
            let _ = record::write(&dir, &Stop::new(StopReason::Unknown, Duration::ZERO));
            if let Some(shim) = shim.filter(lock::is_alive) {
                kill(shim.pid, rustix::process::Signal::TERM);
            }
            std::thread::sleep(Duration::from_millis(5));
            if Instant::now() > give_up_at {
                eprintln!("a shim does not end: {}", dir.display());
                break;
            }
        }
    }
    end_marked(state_dir);
}

/// Returns the living processes of the installation in this state directory, without its daemon.
/// They have the mark in the environment; shims have the folder in their arguments. A test must
/// know other processes by their pids.
pub fn processes_of(state_dir: &Path) -> Vec<i32> {
    let id = std::fs::read_to_string(state_dir.join("installation_id")).unwrap_or_default();
    let is_marked = |pid: i32| {
        let mark = processes::find_variable(pid, instance_dir::MARK_VARIABLE);
        !id.is_empty() && mark.is_some_and(|mark| mark.starts_with(id.trim()))
    };
    let folders = instance_dir::instances(state_dir).into_os_string().into_encoded_bytes();
    let is_shim = |pid: i32| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|&byte| byte == 0).nth(2).is_some_and(|folder| folder.starts_with(&folders))
    };
    let living = processes::list()
        .unwrap()
        .into_iter()
        .filter(|process| !process.is_zombie)
        .map(|process| process.pid);
    living.filter(|&pid| is_marked(pid) || is_shim(pid)).collect()
}

/// Ends agents whose folder a test removed. Their shims end with them.
fn end_marked(state_dir: &Path) {
    let Ok(id) = std::fs::read_to_string(state_dir.join("installation_id")) else {
        return;
    };
    let is_ours = |pid: i32| {
        let mark = processes::find_variable(pid, instance_dir::MARK_VARIABLE);
        mark.is_some_and(|mark| mark.starts_with(id.trim()))
    };
    for process in
        processes::list().unwrap_or_default().iter().filter(|process| is_ours(process.pid))
    {
        process.send(rustix::process::Signal::KILL);
    }
}

pub fn key(agent: &str) -> InstanceKey {
    let project: ProjectId = "prj_test".parse().unwrap();
    let agent: AgentId = agent.parse().unwrap();
    InstanceKey::new(agent, project, Purpose::Task)
}

pub fn kill(pid: i32, signal: rustix::process::Signal) {
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
}

/// Returns the descendants of `pid` now.
pub fn tree_of(pid: i32) -> Vec<i32> {
    processes::descendants(&processes::list().unwrap(), pid)
        .iter()
        .map(|process| process.pid)
        .collect()
}

/// Returns the number of a table's instances in such a phase.
pub fn n_in_phase(instances: &Arc<[Instance]>, is_wanted: impl Fn(&Phase) -> bool) -> usize {
    instances.iter().filter(|instance| is_wanted(&instance.phase)).count()
}

pub const fn exited(code: i32) -> ProcessEnd {
    ProcessEnd::Exited(ExitStatus { exit_code: Some(code), signal: None })
}

pub const fn killed(signal: i32) -> ProcessEnd {
    ProcessEnd::Exited(ExitStatus { exit_code: None, signal: Some(signal) })
}
