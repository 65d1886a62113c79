//! The order that the daemon gives to a shim. It travels in a file without a name (on Linux in
//! memory), because it contains secrets.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::BootInstant;
use domain::RunAs;

/// The first argument of a shim's process; the second is its instance folder.
pub const SHIM_ARGUMENT: &str = "shim";

/// The descriptors that a shim finds open at its start, beside 1 and 2.
pub mod fd {
    use std::os::fd::RawFd;

    /// A file without a name with the [`Order`](super::Order) as JSON.
    pub const ORDER: RawFd = 0;
    /// The instance's lock, already taken.
    pub const LOCK: RawFd = 3;
    /// A file without a name that becomes the agent's standard input; only with `has_prompt`.
    pub const PROMPT: RawFd = 4;
}

/// The control group of one agent. The shim makes it, and leaves it empty at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupOrder {
    pub dir: PathBuf,
    /// The limit of memory, in bytes.
    pub memory_max: Option<u64>,
    pub pids_max: Option<u64>,
}

/// The order to run one agent. It deliberately has no `Debug`: most of it is secret.
#[derive(Serialize, Deserialize)]
pub struct Order<'a> {
    /// The absolute path of the program.
    #[serde(borrow)]
    pub program: Cow<'a, Path>,
    #[serde(borrow)]
    pub arguments: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    pub environment: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(borrow)]
    pub working_directory: Cow<'a, Path>,
    /// Texts to keep out of the output log.
    #[serde(borrow)]
    pub redact: Vec<Cow<'a, str>>,
    pub has_prompt: bool,
    /// The user of the agent's process; `None` for the shim's own user.
    pub run_as: Option<RunAs>,
    /// The control group of the agent's tree, apart from its shim.
    pub cgroup: Option<CgroupOrder>,
    /// The soft limit of open files that the daemon was started with; it may have raised its own.
    pub descriptors: Option<u64>,
    /// The agent is not executed after this time. It is ended at this time unless it was marked as
    /// authenticated.
    pub fuse_boottime_ms: BootInstant,
    /// The time from TERM to KILL for stop requests that name none.
    pub stop_timeout: Duration,
    /// The time from TERM to KILL for processes that the agent left behind.
    pub leak_grace: Duration,
    /// The largest size of `output.log`, in bytes.
    pub max_file: u64,
    /// The number of output files, including the current one; at least 1.
    pub files: u32,
}
