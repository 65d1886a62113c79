//! The agent CLIs of this machine, for pages. `app` looks for them, because it knows the
//! configuration and the presets.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;

/// An agent CLI that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProgram {
    /// The kind of its agents.
    pub ai_type: String,
    /// The file.
    pub program: PathBuf,
    /// The first line that the program prints for `--version`; `None` if it prints none.
    pub version: Option<String>,
    /// Whether it has a login.
    pub login: ProgramLogin,
}

/// Whether a program has a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramLogin {
    /// A variable or a file has it.
    Yes,
    /// There is neither.
    No,
    /// Only the program can tell, or it needs none.
    Unknown,
}

/// The search for programs.
#[derive(Clone)]
pub struct Programs {
    /// The directory in which the daemon was started, if it may be the folder of a project.
    pub directory: Option<PathBuf>,
    look: Arc<dyn Fn() -> BoxFuture<'static, Vec<FoundProgram>> + Send + Sync>,
}

impl Programs {
    /// Returns a search that `look` carries out.
    pub fn new(
        directory: Option<PathBuf>,
        look: impl Fn() -> BoxFuture<'static, Vec<FoundProgram>> + Send + Sync + 'static,
    ) -> Self {
        Self { directory, look: Arc::new(look) }
    }

    /// Looks for the programs. It may take seconds.
    pub(super) async fn look(&self) -> Vec<FoundProgram> {
        (self.look)().await
    }
}

impl Default for Programs {
    /// Returns a search that finds nothing.
    fn default() -> Self {
        Self::new(None, || Box::pin(async { Vec::new() }))
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").field("directory", &self.directory).finish_non_exhaustive()
    }
}
