//! The agents' processes on this host: starts them under shims, adopts those of an earlier daemon, stops them, and says how
//! each of them is.
//!
//! Knows instance folders and handles of processes, never `Child` handles: a fresh launch and an adopted one are the same thing. Doesn't
//! know what an agent is for, whether it should run, or what the server thinks of it: the coordinator compares.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::cgroup;
use crate::domain::launch::StopReason;
use crate::domain::{CommandSpec, Instance, InstanceKey, LaunchId};
pub use crate::instance_dir::clock::BootInstant;
use crate::nudge::Nudge;

mod adoption;
mod entry;
mod launcher;
mod orphans;
mod past;
mod removal;
mod shims;
mod state_dir;
mod table;
mod temporary;

pub use self::adoption::Adoption;
pub use self::launcher::find_program;
pub use self::past::remove_old;
use self::table::Request;
pub use self::temporary::TemporaryConfig;

/// Where instances live and how they are kept.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// Existing folder that this process owns alone: it takes `coordinator.lock` in it.
    pub state_dir: PathBuf,
    /// This program, to be run as `<shim_program> shim <folder>`.
    pub shim_program: PathBuf,
    /// From TERM to KILL, where a request to stop doesn't say.
    pub stop_timeout: Duration,
    /// How long what an agent left behind has between TERM and KILL.
    pub leak_grace: Duration,
    /// Largest output file, in bytes.
    pub max_file: u64,
    /// Number of output files of an instance, the current one included.
    pub files: u32,
    /// The soft limit of open files of agents; that of this process without it.
    pub descriptors: Option<u64>,
    /// Where each agent gets a control group of its own; without it, none does.
    pub cgroups: Option<cgroup::Delegated>,
    /// Where launches get folders for temporary files. What an open table has stays.
    pub temporary: TemporaryConfig,
    /// What one agent may use, as far as its control group can keep it to that.
    pub limits: cgroup::Limits,
}

/// One agent to start.
#[derive(Debug, Clone)]
pub struct StartRequest {
    pub launch: LaunchId,
    pub key: InstanceKey,
    pub command: CommandSpec,
    /// The agent isn't executed from then on, and is ended then unless it was marked as authenticated.
    pub fuse: BootInstant,
}

/// Why the table can't be opened.
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

/// Why an agent was not started. No process and no folder of the launch exists then, except for [`StartError::Exists`].
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

/// The table has been left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process table is closed")]
pub struct Gone;

/// Takes stock of the instances in `state_dir` (adopts what lives, records what ended), and opens the table of processes.
///
/// Each change of an instance from then on calls `nudge`. Must run in a tokio runtime; makes this process a subreaper.
pub async fn open(
    config: ProcessConfig,
    nudge: Nudge,
) -> Result<(ProcessTable, Adoption), OpenError> {
    table::open(config, nudge).await
}

/// Handle of the table; clones are the same table.
#[derive(Clone)]
pub struct ProcessTable {
    inbox: mpsc::Sender<Request>,
    snapshot: watch::Receiver<Arc<[Instance]>>,
    owner: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl ProcessTable {
    /// Starts an agent under a shim; returns when the shim's process exists. Whether the agent came to be is a phase.
    ///
    /// Starts run side by side. Once asked for, a start goes on even if this future is dropped.
    pub async fn start(&self, request: StartRequest) -> Result<(), StartError> {
        self.ask(|reply| Request::Start { request: Box::new(request), reply }).await?
    }

    /// Begins the stop ladder of `launch`; `false` if it is unknown or over. Returns when its shim is told.
    ///
    /// The first reason wins. Repeating it may shorten the time from TERM to KILL (`None`: `stop_timeout`), never prolong it.
    pub async fn request_stop(
        &self,
        launch: &LaunchId,
        reason: StopReason,
        timeout: Option<Duration>,
    ) -> Result<bool, Gone> {
        self.ask(|reply| Request::Stop { launch: launch.clone(), reason, timeout, reply }).await
    }

    /// Goes by other times and sizes from the next stop and the next start on: what keepers were given stays with them. The
    /// folder and the program stay, too.
    pub async fn reconfigure(&self, config: ProcessConfig) -> Result<(), Gone> {
        self.ask(|reply| Request::Reconfigure { config: Box::new(config), reply }).await
    }

    /// Disarms the fuse of `launch`. Repeating it, or marking an unknown launch, changes nothing.
    pub async fn mark_authenticated(&self, launch: &LaunchId) -> Result<(), Gone> {
        self.ask(|reply| Request::MarkAuthenticated { launch: launch.clone(), reply }).await
    }

    /// All instances that are live or not yet forgotten, as they are now.
    pub fn instances(&self) -> Arc<[Instance]> {
        self.snapshot.borrow().clone()
    }

    /// Returns when no instance is live. Cancel-safe.
    pub async fn until_idle(&self) {
        let mut newest = self.snapshot.clone();
        let _ = newest.wait_for(|instances| !instances.iter().any(Instance::is_live)).await;
    }

    /// The server acknowledged the end of `launch`: its folder moves to `ended/`. Nothing happens before its end.
    pub async fn forget(&self, launch: &LaunchId) -> Result<(), Gone> {
        self.ask(|reply| Request::Forget { launch: launch.clone(), reply }).await
    }

    /// Returns when the table is closed: by [`ProcessTable::leave`], or because its owner died.
    pub async fn closed(&self) {
        self.inbox.closed().await;
    }

    /// Closes the table when the starts under way are done. Agents are left to their shims.
    pub async fn leave(self) {
        let _ = self.ask(|reply| Request::Leave { reply }).await;
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
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
