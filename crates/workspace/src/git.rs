//! Runs the git program, so that it runs nothing that an agent or a repository brings along.
//!
//! Each call has an environment of its own, options that turn off hooks, monitors, pagers and
//! helpers, a process group, a deadline, and limits on its output, its memory and its processor
//! time. The repository of an agent is never the `GIT_DIR` of a call: its filters would run. Names
//! are full names of refs, or follow `--end-of-options`.
//!
//! A call runs as the owner of the files that it is about ([`Call::run_as`]), and one on a bare
//! repository as the owner of that ([`Git::on`]): the coordinator's repositories belong to the
//! keeper. Objects go from one user to another through a pipe ([`Call::send_to`]).

mod call;
mod hook;

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::rights::Owner;
use domain::workspace::GitLimits;
use machine::sys::ownership::is_only_of_root;

pub use call::{Call, Ended};
pub(super) use hook::HookRun;

/// The oldest version that has all commands that this module uses (`merge-tree --write-tree`).
pub const OLDEST_VERSION: (u32, u32) = (2, 38);
/// The most output of a call, in bytes.
const MAX_OUTPUT: u64 = 256 * 1024 * 1024;
/// The setting that a call without memory names.
const MEMORY_LIMIT: &str = "`workspace.limits.git_memory`";
/// The configuration of each call, which is in a file.
const CONFIG: &str = "[init]\n\tdefaultBranch = main\n";
/// The reason why a call of git did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed, or not in the PATH of the daemon; install git {}.{} or newer", OLDEST_VERSION.0, OLDEST_VERSION.1)]
    Missing,
    #[error("git {found} is too old; install git {}.{} or newer", OLDEST_VERSION.0, OLDEST_VERSION.1)]
    TooOld { found: String },
    #[error("could not run git")]
    Io(#[from] io::Error),
    #[error("`git {command}` failed: {message}")]
    Failed { command: String, message: String },
    /// It says nothing about the repository, so that the call is repeated.
    #[error("`git {command}` was ended by a signal")]
    Killed { command: String },
    #[error("`git {command}` did not end within {} s", .limit.as_secs())]
    TimedOut { command: String, limit: Duration },
    #[error("`git {command}` needed more than {} s of processor time", .limit.as_secs())]
    TooSlow { command: String, limit: Duration },
    #[error("`git {command}` needed more than {n_mib} MiB of memory ({MEMORY_LIMIT})")]
    TooLarge { command: String, n_mib: u64 },
    #[error("`git {command}` printed more than {MAX_OUTPUT} bytes")]
    TooMuch { command: String },
}

impl GitError {
    /// Returns whether the call failed because of what it worked on, so that it would fail again:
    /// git refused it, or it is beyond a limit.
    pub const fn is_of_content(&self) -> bool {
        matches!(self, Self::Failed { .. }) || self.is_beyond_limit()
    }

    /// Returns whether the call went beyond a limit of processor time, output or memory, so that it
    /// would do so again.
    pub const fn is_beyond_limit(&self) -> bool {
        matches!(self, Self::TooSlow { .. } | Self::TooLarge { .. } | Self::TooMuch { .. })
    }
}

/// The git program with the files that each of its calls uses.
#[derive(Debug)]
pub struct Git {
    root: PathBuf,
    /// An empty folder.
    home: PathBuf,
    config: PathBuf,
    /// The folders in which git is looked for.
    path: OsString,
    pub limits: GitLimits,
    version: OnceCell<()>,
    /// The number of calls that were killed, or did not end in time.
    n_killed: AtomicU64,
}

impl Git {
    /// Returns the program with its files in `root`, which [`Self::check`] makes.
    pub fn new(root: &Path) -> Self {
        let root = root.to_owned();
        let home = root.join(".git-home");
        let config = root.join(".gitconfig");
        let (limits, version, n_killed) = Default::default();
        Self { root, home, config, path: safe_path(), limits, version, n_killed }
    }

    /// Returns the number of calls so far that may have left their locks behind.
    pub fn n_killed(&self) -> u64 {
        self.n_killed.load(Ordering::Relaxed)
    }

    /// Makes the files that each call uses, and checks that git is installed and new enough. That
    /// is done once. A failed check is repeated by the next call.
    ///
    /// # Errors
    /// `Missing`, `TooOld`; the files cannot be made.
    pub async fn check(&self) -> Result<(), GitError> {
        let check = || async {
            let config = self.config.to_string_lossy();
            super::strays::end(super::strays::MARK, &config).await?;
            super::strays::end(super::strays::HOOK_MARK, &format!("{config}#")).await?;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.home)?;
            std::fs::write(&self.config, CONFIG)?;
            if rustix::process::geteuid().is_root() {
                // Calls as another user read it, too.
                std::fs::set_permissions(&self.config, Permissions::from_mode(0o644))?;
            }
            super::temporary::remove_remains(&self.root);
            self.check_version().await
        };
        self.version.get_or_try_init(check).await.copied()
    }

    /// Checks that git is installed and new enough. It makes no file.
    ///
    /// # Errors
    /// `Missing`, `TooOld`.
    pub async fn check_version(&self) -> Result<(), GitError> {
        // It needs no configuration. With it, a daemon that starts would end the call.
        let call = self.in_folder(Path::new("/"), ["version"]);
        let printed = call.variable(super::strays::MARK, "/dev/null").text().await?;
        match parse_version(&printed) {
            Some(version) if version >= OLDEST_VERSION => Ok(()),
            _ => Err(GitError::TooOld { found: printed.trim().to_owned() }),
        }
    }

    /// Returns whether a program is in the folders in which git is looked for.
    pub fn has_program(&self, name: &str) -> bool {
        self.find_program(name).is_some()
    }

    /// Returns the path of git, or its name if it is missing. With a path, a call does not copy the
    /// page tables of the daemon: the standard library forks to look for a name in another `PATH`.
    fn program(&self) -> PathBuf {
        self.find_program("git").unwrap_or_else(|| "git".into())
    }

    fn find_program(&self, name: &str) -> Option<PathBuf> {
        let mut found = std::env::split_paths(&self.path).map(|folder| folder.join(name));
        found.find(|path| path.is_file())
    }

    /// Begins a call that uses no repository.
    pub fn call<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Call<'_> {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
        Call::new(self, arguments.collect())
    }

    /// Begins a call on a bare repository, as the owner of its folder.
    pub fn on<A: AsRef<OsStr>>(
        &self,
        repository: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        self.call(arguments).variable("GIT_DIR", repository).run_as(Owner::of(repository))
    }

    /// Begins a call on a bare repository with the files of `tree`. It runs at the top of them: git
    /// takes a folder below the top for the part that the call is about, and the folder of the
    /// daemon may be one.
    pub fn on_tree<A: AsRef<OsStr>>(
        &self,
        repository: &Path,
        tree: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        let call = self.on(repository, arguments).variable("GIT_WORK_TREE", tree);
        call.in_folder(tree)
    }

    /// Begins a call in a folder of a person, whose repository git finds itself.
    pub fn in_folder<A: AsRef<OsStr>>(
        &self,
        folder: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        self.call(arguments).in_folder(folder)
    }
}

/// Returns the folders of the daemon's PATH that are absolute. Root leaves out those in which other
/// users can put a program.
fn safe_path() -> OsString {
    let is_root = rustix::process::geteuid().is_root();
    let is_roots = |folder: &Path| {
        let git = folder.join("git");
        is_only_of_root(folder) && (!git.exists() || is_only_of_root(&git))
    };
    let is_safe = |folder: &PathBuf| folder.is_absolute() && (!is_root || is_roots(folder));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let safe = std::env::split_paths(&path).filter(is_safe);
    std::env::join_paths(safe).unwrap_or_default()
}

fn parse_version(printed: &str) -> Option<(u32, u32)> {
    let mut parts = printed.trim().strip_prefix("git version ")?.split(['.', ' ', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_builds_are_understood() {
        assert_eq!(parse_version("git version 2.47.3\n"), Some((2, 47)));
        assert_eq!(parse_version("git version 2.39.5 (Apple Git-154)"), Some((2, 39)));
        assert_eq!(parse_version("git version 2.51.0-rc1"), Some((2, 51)));
        assert_eq!(parse_version("hub version 2"), None);
    }

    #[tokio::test]
    async fn a_failed_call_says_which_command_failed_and_why() {
        let root = tempfile::tempdir().unwrap();
        let git = Git::new(root.path());
        git.check().await.unwrap();
        let failed = git.on(root.path(), ["cat-file", "-t", "nothing"]).run().await;
        let message = failed.unwrap_err().to_string();
        assert!(message.starts_with("`git cat-file` failed: fatal: "), "{message}");
    }
}
