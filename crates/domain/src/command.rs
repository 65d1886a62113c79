//! The command to execute for a launch. `provider` composes it and `process` runs it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::cli_lines::kept::{Asked, Keeper};
use super::secret::Secret;

/// One complete agent command line. The code that runs it makes no choices.
#[derive(Debug, Clone)]
pub struct CommandSpec {
    /// The program and arguments to start instead of our own program, which is appended to them
    /// with its arguments. Empty if our program is started directly.
    pub wrap: Vec<String>,
    /// The name or path of the program. A bare name is looked up in the `PATH` of `environment`.
    pub program: String,
    pub arguments: Vec<String>,
    /// The whole environment of the agent. Nothing else is inherited.
    pub environment: Vec<(String, Secret)>,
    pub working_directory: PathBuf,
    /// The text on the standard input of the agent; `None` connects it to `/dev/null`.
    pub stdin: Option<Secret>,
    /// Texts that are removed from the output log: the passkey or ticket.
    pub redact: Vec<Secret>,
    /// The files that the agent finds in the files' folder of its instance.
    pub files: Vec<LaunchFile>,
    /// The files' folder, if it is not the one of the instance. Another user may not enter that
    /// one.
    pub files_in: Option<PathBuf>,
    /// The user that the process runs as, if it is not the daemon's own user.
    pub run_as: Option<RunAs>,
    /// The transcript that the program will keep; `None` if it is not known.
    pub transcript: Option<TranscriptSpec>,
}

/// The transcript that an agent CLI will keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptSpec {
    pub keeper: Keeper,
    /// The folder in which the CLI keeps its files.
    pub folder: PathBuf,
    /// The conversation that the arguments ask for.
    #[serde(flatten)]
    pub asked: Asked,
}

/// A user of this machine, with the ids that a process of that user has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups, including the primary one.
    pub groups: Vec<u32>,
}

/// A file for one launch. It is written before the agent starts and removed with the folder of the
/// instance. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchFile {
    /// A path relative to the files' folder. Its parent directories are created.
    pub path: PathBuf,
    pub content: FileContent,
}

/// The content of a [`LaunchFile`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    Text(String),
    /// A symbolic link to this path, whether or not the path exists.
    Link(PathBuf),
}
