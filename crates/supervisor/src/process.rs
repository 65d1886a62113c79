//! The processes of the agents on this host: it starts them under shims, adopts those of an earlier
//! daemon, stops them, and reports their state.
//!
//! It knows instance folders and handles of processes, but no `Child` handles: a fresh launch and
//! an adopted one are treated alike. It does not know the task of an agent, whether the agent
//! should run, or the server's view of it: the coordinator compares.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use config::{Output, Stop};
use domain::launch::StopReason;
use domain::{CommandSpec, Instance, InstanceKey, LaunchId};
use machine::cgroup;
pub use machine::instance_dir::clock::BootInstant;
use machine::locks::lock;
use runtime::nudge::Nudge;

mod adoption;
mod entry;
mod launcher;
mod orphans;
mod output_retention;
mod removal;
mod shim_program;
mod shims;
mod start_fault;
mod state_dir;
mod table;
mod temporary;
mod threads;
pub mod transcripts;

pub use self::adoption::Adoption;
pub use self::launcher::find_program;
pub use self::output_retention::remove_old;
pub use self::shim_program::{SHIM_PROGRAM, program_of_shims};
pub use self::start_fault::{StartFault, find_elsewhere, find_fault};
use self::table::Request;
pub use self::temporary::TemporaryConfig;

/// The place of the instances, and the settings for keeping them.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// An existing folder that this process owns alone: it takes `coordinator.lock` in it.
    pub state_dir: PathBuf,
    /// The path of this program. Shims run it as `<program> shim <folder>`, unless the program that
    /// is only a shim is beside it: see [`program_of_shims`].
    pub program: PathBuf,
    /// The deadlines of stop requests that name none, and of processes that an agent left behind.
    pub stop: Stop,
    /// The limits of the stored output of an instance.
    pub output: Output,
    /// The soft limit of open files of agents; `None` for the limit of this process.
    pub descriptors: Option<u64>,
    /// The place where each agent gets its own control group; `None` for no control groups.
    pub cgroups: Option<cgroup::Delegated>,
    /// The place where launches get folders for temporary files. A reconfiguration does not change
    /// it in an open table.
    pub temporary: TemporaryConfig,
    /// The limits of one agent, as far as its control group can enforce them.
    pub limits: cgroup::CgroupLimits,
}

/// A request to start one agent.
#[derive(Debug, Clone)]
pub struct StartRequest {
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub command: CommandSpec,
    /// The agent is not executed after this time. It is ended at this time unless it was marked as
    /// authenticated.
    pub start_deadline: BootInstant,
}

/// The reason why the table cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another coordinator (pid {pid}) uses `{}`", .path.display())]
    InUse { path: PathBuf, pid: String },
    #[error("state directory `{}` is not usable", .path.display())]
    StateDir { path: PathBuf, source: io::Error },
    #[error("could not watch instances")]
    Watch { source: io::Error },
    #[error("could not become the reaper of orphaned processes")]
    Subreaper { source: io::Error },
    #[error("could not look for agents of an earlier coordinator")]
    Strays { source: io::Error },
}

/// The reason why an agent was not started. No process and no folder of the launch exists then,
/// except for [`StartError::Exists`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("launch {launch} already has a process")]
    Exists { launch: LaunchId },
    #[error("{key} is already live as launch {launch}")]
    KeyIsLive { key: InstanceKey, launch: LaunchId },
    #[error("program `{program}` was not found in the PATH of the agent")]
    ProgramNotFound { program: String },
    #[error("could not prepare instance folder `{}`", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("could not make the folder for temporary files of launch {launch}")]
    Temporary { launch: LaunchId, source: io::Error },
    #[error("could not hand over the command of launch {launch}")]
    Order { launch: LaunchId, source: io::Error },
    #[error("could not start shim `{}`", .program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// The table has been closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process table is closed")]
pub struct Gone;

/// Adopts the live instances in `state_dir`, records the ended ones, and opens the table of
/// processes.
///
/// Each later change of an instance calls `nudge`. Must run in a tokio runtime; makes this process
/// a subreaper.
pub async fn open(
    config: ProcessConfig,
    nudge: Nudge,
) -> Result<(ProcessTable, Adoption), OpenError> {
    table::open(config, nudge).await
}

/// A handle of the table; clones are handles of the same table.
#[derive(Clone)]
pub struct ProcessTable {
    inbox: mpsc::Sender<Request>,
    snapshot: watch::Receiver<Arc<[Instance]>>,
    owner: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl ProcessTable {
    /// Starts an agent under a shim. Returns when the shim's process exists; the phase shows
    /// whether the agent itself was started.
    ///
    /// Starts run in parallel. Once requested, a start continues even if this future is dropped.
    pub async fn start(&self, request: StartRequest) -> Result<(), StartError> {
        self.ask(|reply| Request::Start { request: Box::new(request), reply }).await?
    }

    /// Begins the stop sequence of `launch`. Returns when its shim is told; `false` if the launch
    /// is unknown or has ended.
    ///
    /// The first reason wins. Repeating it may shorten the time from TERM to KILL (`None`:
    /// `stop_timeout`), but never prolongs it.
    pub async fn request_stop(
        &self,
        launch: &LaunchId,
        reason: StopReason,
        timeout: Option<Duration>,
    ) -> Result<bool, Gone> {
        self.ask(|reply| Request::Stop { launch: launch.clone(), reason, timeout, reply }).await
    }

    /// Uses other times and sizes from the next stop and the next start on. Running shims keep
    /// their settings. The folder, the program and the place for temporary files do not change.
    pub async fn reconfigure(&self, config: ProcessConfig) -> Result<(), Gone> {
        self.ask(|reply| Request::Reconfigure { config: Box::new(config), reply }).await
    }

    /// Cancels the start deadline of `launch`. Repeating it, or marking an unknown launch, changes
    /// nothing.
    pub async fn mark_authenticated(&self, launch: &LaunchId) -> Result<(), Gone> {
        self.ask(|reply| Request::MarkAuthenticated { launch: launch.clone(), reply }).await
    }

    /// Returns the current state of all instances that are live or not yet forgotten.
    pub fn instances(&self) -> Arc<[Instance]> {
        self.snapshot.borrow().clone()
    }

    /// Returns when no instance is live. Cancel-safe.
    pub async fn until_idle(&self) {
        let mut newest = self.snapshot.clone();
        let _ = newest.wait_for(|instances| !instances.iter().any(Instance::is_live)).await;
    }

    /// Returns the instance of `launch` when none of its processes lives; `None` if it is not
    /// listed. Cancel-safe.
    pub async fn until_ended(&self, launch: &LaunchId) -> Option<Instance> {
        let find = |instances: &Arc<[Instance]>| {
            instances.iter().find(|instance| instance.launch == *launch).cloned()
        };
        let mut newest = self.snapshot.clone();
        let ended = newest
            .wait_for(|instances| find(instances).is_none_or(|instance| !instance.is_live()))
            .await;
        find(&*ended.ok()?)
    }

    /// Moves the folder of `launch` to `ended/`, because the server acknowledged its end. Does
    /// nothing if the launch has not ended.
    pub async fn forget(&self, launch: &LaunchId) -> Result<(), Gone> {
        self.ask(|reply| Request::Forget { launch: launch.clone(), reply }).await
    }

    /// Returns when the table is closed: by [`ProcessTable::leave`], or because its owner task
    /// ended.
    pub async fn closed(&self) {
        self.inbox.closed().await;
    }

    /// Closes the table when the starts under way are done. The agents stay with their shims.
    pub async fn leave(self) {
        let _ = self.ask(|reply| Request::Leave { reply }).await;
        let owner = lock(&self.owner).take();
        if let Some(owner) = owner {
            let _ = owner.await;
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(request(reply)).await.map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
}

impl fmt::Debug for ProcessTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessTable").field("instances", &self.instances()).finish_non_exhaustive()
    }
}
