//! What to execute for a launch: the words between `provider`, which composes them, and `process`, which runs them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// One agent command line, complete: acting on it makes no choices.
#[derive(Debug, Clone)]
pub struct CommandSpec {
    /// Program and arguments that start the program instead of us, which follows them with its arguments; empty: nothing does.
    pub wrap: Vec<String>,
    /// Name or path of the program; a bare name is looked up in the `PATH` of `environment`.
    pub program: String,
    pub arguments: Vec<String>,
    /// The whole environment of the agent; nothing else is inherited.
    pub environment: Vec<(String, Secret)>,
    pub working_directory: PathBuf,
    /// What the agent reads from its standard input; nothing (`/dev/null`) without it.
    pub stdin: Option<Secret>,
    /// Texts to keep out of the output log: the passkey or ticket.
    pub redact: Vec<Secret>,
    /// What the agent finds in the files' folder of its instance.
    pub files: Vec<LaunchFile>,
    /// The files' folder, where that isn't the one of its instance: another user may not enter that.
    pub files_in: Option<PathBuf>,
    /// Whose process it becomes, where that isn't the daemon's own user.
    pub run_as: Option<RunAs>,
}

/// A user of this machine, with all that a process of that user has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
}

/// A file for one launch: there before the agent starts, gone with the folder of its instance. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchFile {
    /// Relative to the files' folder; its parents are made.
    pub path: PathBuf,
    pub content: FileContent,
}

/// What a [`LaunchFile`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    Text(String),
    /// A symbolic link to this path, whether there is something or not.
    Link(PathBuf),
}
