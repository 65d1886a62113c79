//! What the daemon tells a shim to run. It travels in a file without a name (on Linux in memory), because it
//! contains secrets.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::BootInstant;
use crate::domain::RunAs;

/// First argument of a process that is a shim; the second is its instance folder.
pub const SHIM_ARGUMENT: &str = "shim";

/// Descriptors that a shim finds open at its start, beside 1 and 2.
pub mod fd {
    use std::os::fd::RawFd;

    /// A file without a name with the [`Order`](super::Order) as JSON.
    pub const ORDER: RawFd = 0;
    /// The instance's lock, already taken.
    pub const LOCK: RawFd = 3;
    /// A file without a name that becomes the agent's standard input; only with `has_prompt`.
    pub const PROMPT: RawFd = 4;
}

/// The control group of one agent: to be made, and left empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupOrder {
    pub dir: PathBuf,
    /// In bytes.
    pub memory_max: Option<u64>,
    pub pids_max: Option<u64>,
}

/// One agent to run. Deliberately without `Debug`: most of it is secret.
#[derive(Serialize, Deserialize)]
pub struct Order<'a> {
    /// Absolute path.
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
    /// Whose process the agent becomes; the keeper's own user's without it.
    pub run_as: Option<RunAs>,
    /// Where its tree lives, apart from its keeper.
    pub cgroup: Option<CgroupOrder>,
    /// The soft limit of open files that the daemon was started with; it may have raised its own.
    pub descriptors: Option<u64>,
    /// Not executed from then on, and ended then unless marked as authenticated.
    pub fuse_boottime_ms: BootInstant,
    /// From TERM to KILL where the request to stop doesn't say.
    pub stop_timeout: Duration,
    /// How long what the agent left behind has between TERM and KILL.
    pub leak_grace: Duration,
    /// Largest `output.log`, in bytes.
    pub max_file: u64,
    /// Number of output files, the current one included; at least 1.
    pub files: u32,
}
