//! Runs the git program, so that it runs nothing that an agent or a repository brings along.
//!
//! Each call has an environment of its own, options that turn off hooks, monitors, pagers and
//! helpers, a process group, a deadline, and limits on its output, its memory and its processor
//! time. The repository of an agent is never the `GIT_DIR` of a call: its filters would run. Names
//! are full names of refs, or follow `--end-of-options`.
//!
//! A call runs as the owner of the files that it is about ([`Call::run_as`]). Only the
//! coordinator's own repositories are read by the daemon's own user. Objects go from one user to
//! another through a pipe ([`Call::send_to`]).

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use super::rights::{Groups, Owner};
use crate::domain::workspace::Remote;
use crate::sys::ownership::is_changed_by_others;
use crate::sys::{confined, processes};

/// The oldest version that has all commands that this module uses (`merge-tree --write-tree`).
pub const OLDEST_VERSION: (u32, u32) = (2, 38);
/// The time for a call that neither transfers objects nor writes many files.
const SHORT: Duration = Duration::from_mins(1);
/// The time for a call that does.
const LONG: Duration = Duration::from_mins(30);
/// The most output of a call, in bytes.
const MAX_OUTPUT: u64 = 256 * 1024 * 1024;
/// The most bytes of an error message that are kept.
const MAX_MESSAGE: usize = 4 * 1024;

/// The most memory of a process of git, in bytes. It counts what git allocates, not the packs that
/// it maps.
const MAX_MEMORY: u64 = 1 << 30;

/// The options of each call. They come before the configuration of the repository.
const OPTIONS: [&str; 15] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=objects,derived-metadata,reference",
    // With these, git stays below its limit of memory: larger files are read piece by piece.
    "core.bigFileThreshold=64m",
    "core.packedGitLimit=64m",
    "core.packedGitWindowSize=16m",
    "pack.threads=4",
    "pack.windowMemory=64m",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "protocol.ext.allow=never",
    "http.followRedirects=false",
    "advice.detachedHead=false",
];

/// The file with the configuration of each call.
const CONFIG: &str = "[init]\n\tdefaultBranch = main\n";
/// Lets git use a repository with files of several users. Git heeds this only in that file. A call
/// of root never has it: such a call runs only on files of root.
const TRUSTING: &str = "[safe]\n\tdirectory = *\n";

/// Starts git with the pipe of its standard input as descriptor 9. The name and the token for a
/// remote are in that pipe, so that no argument, variable or file has them.
const WITH_CREDENTIAL: [&str; 3] = ["-c", "exec 9<&0 </dev/null; exec git \"$@\"", "git"];
/// Gives git the content of that pipe.
const CREDENTIAL_HELPER: &str = "!f() { test \"$1\" = get && cat <&9; }; f";
/// A transfer that is slower than 1,000 bytes a second for a minute is ended.
const REMOTE_OPTIONS: [&str; 3] =
    ["credential.helper=", "http.lowSpeedLimit=1000", "http.lowSpeedTime=60"];

/// The variables that name the proxies of this host. The client of the forge heeds them, too.
const PROXIES: [&str; 7] =
    ["HTTPS_PROXY", "https_proxy", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];

/// The variables that name the authorities of certificates, for the client of the forge and for git.
const CERTIFICATES: [(&str, &str); 2] =
    [("SSL_CERT_FILE", "GIT_SSL_CAINFO"), ("SSL_CERT_DIR", "GIT_SSL_CAPATH")];

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
    #[error("`git {command}` printed more than {MAX_OUTPUT} bytes")]
    TooMuch { command: String },
}

/// The git program with the files that each of its calls uses.
#[derive(Debug)]
pub struct Git {
    /// An empty folder.
    home: PathBuf,
    config: PathBuf,
    /// The configuration of calls that run as another user.
    config_of_owners: PathBuf,
    /// The folders in which git is looked for.
    path: OsString,
    version: OnceCell<()>,
    /// The number of calls that were killed, or did not end in time.
    n_killed: AtomicU64,
}

/// The end of a call.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub message: String,
}

impl Git {
    /// Returns the program with its files in `root`, which [`Self::check`] makes.
    pub fn new(root: &Path) -> Self {
        let home = root.join(".git-home");
        let config = root.join(".gitconfig");
        let config_of_owners = root.join(".gitconfig-of-owners");
        let (version, n_killed) = Default::default();
        Self { home, config, config_of_owners, path: safe_path(), version, n_killed }
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
            super::strays::end(&[&self.config, &self.config_of_owners]).await?;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.home)?;
            let trusting = format!("{TRUSTING}{CONFIG}");
            if rustix::process::geteuid().is_root() {
                std::fs::write(&self.config, CONFIG)?;
                std::fs::write(&self.config_of_owners, trusting)?;
                for (path, mode) in [(&self.home, 0o711), (&self.config_of_owners, 0o644)] {
                    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
                }
            } else {
                std::fs::write(&self.config, trusting)?;
            }
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
        let call = self.call(["version"]).variable(super::strays::MARK, "/dev/null");
        let call = Call { folder: Some(PathBuf::from("/")), ..call };
        let printed = call.text().await?;
        match parse_version(&printed) {
            Some(version) if version >= OLDEST_VERSION => Ok(()),
            _ => Err(GitError::TooOld { found: printed.trim().to_owned() }),
        }
    }

    /// Begins a call that uses no repository.
    pub fn call<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Call<'_> {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
        Call {
            git: self,
            arguments: arguments.collect(),
            variables: Vec::new(),
            folder: None,
            input: Vec::new(),
            limit: SHORT,
            cut_at: None,
            remote: None,
            run_as: None,
        }
    }

    /// Begins a call on a bare repository.
    pub fn on<A: AsRef<OsStr>>(
        &self,
        repository: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        self.call(arguments).variable("GIT_DIR", repository)
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
        Call { folder: Some(tree.to_owned()), ..call }
    }

    /// Begins a call in a folder of a person, whose repository git finds itself.
    pub fn in_folder<A: AsRef<OsStr>>(
        &self,
        folder: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        Call { folder: Some(folder.to_owned()), ..self.call(arguments) }
    }
}

/// Returns the folders of the daemon's PATH that are absolute. Root leaves out those in which other
/// users can put a program.
fn safe_path() -> OsString {
    let is_root = rustix::process::geteuid().is_root();
    let is_roots = |folder: &Path| {
        let real = folder.canonicalize();
        let found = folder.join("git").metadata();
        real.is_ok_and(|real| ![&*real, folder].into_iter().any(is_changed_by_others))
            && found.map_or(true, |git| git.uid() == 0 && git.mode() & 0o022 == 0)
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

/// A call of git that has not begun.
#[must_use]
pub struct Call<'a> {
    git: &'a Git,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    folder: Option<PathBuf>,
    input: Vec<u8>,
    limit: Duration,
    /// The number of bytes after which the output is cut.
    cut_at: Option<u64>,
    /// The remote that it may talk to, with the token for it.
    remote: Option<Remote>,
    /// The user that it runs as, if that is not the daemon's own.
    run_as: Option<Owner>,
}

impl<'a> Call<'a> {
    pub fn variable(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name, value.as_ref().to_owned()));
        self
    }

    /// Sets what the call reads from its standard input.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Lets the call talk to a remote. It reads nothing from its standard input then.
    pub fn with_remote(mut self, remote: &Remote) -> Self {
        self.remote = Some(remote.clone());
        self
    }

    /// Lets the call reach an address that needs no token. A transfer that stands still is ended.
    pub fn over_network(self, url: &str) -> Self {
        let scheme = if url.starts_with("http://") { "http" } else { "https" };
        let call = self
            .variable("GIT_ALLOW_PROTOCOL", scheme)
            .variable("GIT_HTTP_LOW_SPEED_LIMIT", "1000")
            .variable("GIT_HTTP_LOW_SPEED_TIME", "60");
        network_variables().fold(call, |call, (name, value)| call.variable(name, value))
    }

    /// Runs the call as another user with all groups of that user, or as the daemon's own user if
    /// there is no other one. Another user controls the process then, so that its answer is not to
    /// be trusted.
    pub(super) const fn run_as(mut self, user: Option<Owner>) -> Self {
        self.run_as = user;
        self
    }

    /// Gives the call the time that a transfer of many objects needs.
    pub const fn long(mut self) -> Self {
        self.limit = LONG;
        self
    }

    /// Cuts the output after this number of bytes, and ends the call then.
    pub const fn cut_at(mut self, n_bytes: u64) -> Self {
        self.cut_at = Some(n_bytes);
        self
    }

    /// Runs the call. When the future is dropped, the processes of the call are killed.
    ///
    /// # Errors
    /// Each error, also for an exit code other than 0.
    pub async fn run(self) -> Result<Vec<u8>, GitError> {
        let command = self.name();
        let ended = self.end().await?;
        if ended.code == Some(0) {
            return Ok(ended.stdout);
        }
        let message = if ended.message.is_empty() {
            ended.code.map(|code| format!("exit code {code}")).unwrap_or_default()
        } else {
            ended.message
        };
        Err(GitError::Failed { command, message })
    }

    /// Runs the call and returns its output as text, without the newline at its end.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub async fn text(self) -> Result<String, GitError> {
        let stdout = self.run().await?;
        Ok(String::from_utf8_lossy(&stdout).trim_end_matches('\n').to_owned())
    }

    /// Runs the call and returns how it ended, also with an exit code other than 0. Only a call
    /// whose output is cut may have no exit code.
    ///
    /// # Errors
    /// It could not be run to its end.
    pub async fn end(self) -> Result<Ended, GitError> {
        let command = self.name();
        let limit = self.limit;
        let is_cut = self.cut_at.is_some();
        let Git { n_killed, .. } = self.git;
        match tokio::time::timeout(limit, self.finish()).await {
            Ok(Err(GitError::TooMuch { .. })) => Err(GitError::TooMuch { command }),
            Ok(Ok(Ended { code: None, .. })) if !is_cut => {
                n_killed.fetch_add(1, Ordering::Relaxed);
                Err(GitError::Killed { command })
            }
            Ok(ended) => ended,
            Err(_) => Err(GitError::TimedOut { command, limit }),
        }
    }

    /// Returns the most processor time of the process. Its threads can use two processors at once.
    fn processor_time(&self) -> Duration {
        SHORT.max(self.limit * 2)
    }

    /// The subcommand, for messages.
    fn name(&self) -> String {
        let is_name = |argument: &&OsString| {
            let argument = argument.to_string_lossy();
            !argument.starts_with('-') && !argument.contains('=')
        };
        let name = self.arguments.iter().find(is_name);
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Runs the call, and gives what it prints to the standard input of `receiver`. The two have
    /// one deadline: that of this call.
    ///
    /// # Errors
    /// The errors of [`Self::run`], of either call.
    pub(super) async fn send_to(self, receiver: Call<'_>) -> Result<(), GitError> {
        let command = self.name();
        let limit = self.limit;
        match tokio::time::timeout(limit, self.stream(receiver)).await {
            Ok(ended) => ended,
            Err(_) => Err(GitError::TimedOut { command, limit }),
        }
    }

    async fn stream(mut self, mut receiver: Call<'_>) -> Result<(), GitError> {
        let names = [self.name(), receiver.name()];
        let mut from = self.spawn(None).await?;
        let pipe = from.child.stdout.take().map(TryInto::try_into).transpose()?;
        let mut to = receiver.spawn(pipe).await?;
        let ((), said, printed, answered) = tokio::join!(
            from.give(self.input),
            read(from.child.stderr.take(), None),
            read(to.child.stdout.take(), None),
            read(to.child.stderr.take(), None),
        );
        printed?;
        let ends = [(from.end().await?, said?), (to.end().await?, answered?)];
        if ends.iter().any(|(code, _)| code.is_none()) {
            self.git.n_killed.fetch_add(1, Ordering::Relaxed);
        }
        // A sender is ended by a signal if its receiver has failed.
        let order = if ends[0].0.is_none() { [1, 0] } else { [0, 1] };
        for at in order {
            let (code, said) = &ends[at];
            if *code != Some(0) {
                let command = names[at].clone();
                let message = message(said);
                return Err(GitError::Failed { command, message });
            }
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Ended, GitError> {
        let mut running = self.spawn(None).await?;
        let input = match &self.remote {
            None => self.input,
            Some(Remote { user, token, .. }) => {
                format!("username={user}\npassword={}\n", token.reveal()).into_bytes()
            }
        };
        let cut_at = self.cut_at;
        let stdout = running.child.stdout.take();
        let stderr = running.child.stderr.take();
        let ((), stdout, said) =
            tokio::join!(running.give(input), read(stdout, cut_at), read(stderr, None));
        let code = running.end().await?;
        Ok(Ended { code, stdout: stdout?, message: message(&said?) })
    }

    /// Starts the process. Its standard input is `input`, or else a pipe.
    async fn spawn(&mut self, input: Option<Stdio>) -> Result<Running<'a>, GitError> {
        let mut command = Command::new(if self.remote.is_some() { "/bin/sh" } else { "git" });
        if self.remote.is_some() {
            command.args(WITH_CREDENTIAL);
        }
        command.env_clear();
        for option in OPTIONS {
            command.args(["-c", option]);
        }
        if let Some(remote) = &self.remote {
            for option in REMOTE_OPTIONS {
                command.args(["-c", option]);
            }
            let helper = format!("credential.{}.helper={CREDENTIAL_HELPER}", origin(&remote.url));
            command.args(["-c", &helper]);
        }
        command.args(&self.arguments);
        let Git { home, config, config_of_owners, path, n_killed, .. } = self.git;
        let config = if self.run_as.is_some() { config_of_owners } else { config };
        let fixed = [
            ("LC_ALL", OsStr::new("C")),
            ("HOME", home.as_os_str()),
            (super::strays::MARK, config.as_os_str()),
            ("GIT_CONFIG_NOSYSTEM", OsStr::new("1")),
            ("GIT_ATTR_NOSYSTEM", OsStr::new("1")),
            ("GIT_TERMINAL_PROMPT", OsStr::new("0")),
            ("GIT_ASKPASS", OsStr::new("/bin/false")),
            ("SSH_ASKPASS", OsStr::new("/bin/false")),
            ("GIT_EDITOR", OsStr::new("/bin/false")),
            ("GIT_PAGER", OsStr::new("cat")),
            ("GIT_NO_LAZY_FETCH", OsStr::new("1")),
            ("GIT_NO_REPLACE_OBJECTS", OsStr::new("1")),
            ("GIT_OPTIONAL_LOCKS", OsStr::new("0")),
            ("GIT_ALLOW_PROTOCOL", OsStr::new("file")),
        ];
        command.envs(fixed);
        if let Some(remote) = &self.remote {
            let scheme = if remote.url.starts_with("http://") { "http" } else { "https" };
            command.env("GIT_ALLOW_PROTOCOL", scheme);
            command.envs(network_variables());
        }
        command.env("PATH", path);
        command.envs(self.variables.drain(..));
        // A call never depends on the folder in which the daemon was started.
        let folder = self.folder.as_deref().unwrap_or(home);
        command.stdin(input.unwrap_or_else(Stdio::piped));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if let Some(owner) = self.run_as {
            let Groups { own, all } = owner.groups().await;
            // The user may not enter the folders of the daemon.
            let folder = self.folder.as_deref().unwrap_or(Path::new("/"));
            let user = (owner.uid, own, all.to_vec());
            let limits = (MAX_MEMORY, self.processor_time());
            confined::run_as(command.as_std_mut(), user, limits, folder)?;
        } else {
            command.current_dir(folder);
        }
        let child = command.spawn().map_err(|error| match (error.kind(), self.run_as) {
            (io::ErrorKind::NotFound, _) if folder.is_dir() => GitError::Missing,
            (io::ErrorKind::PermissionDenied, Some(owner)) => {
                let message = format!("user {} may not enter `{}`", owner.uid, folder.display());
                GitError::Failed { command: self.name(), message }
            }
            _ => GitError::Io(error),
        })?;
        let group = Group::of(&child, n_killed);
        if let Some(pid) = group.0.filter(|_| self.run_as.is_none()) {
            processes::limit(pid, MAX_MEMORY, self.processor_time());
        }
        Ok(Running { child, group })
    }
}

/// A process of git.
struct Running<'a> {
    child: Child,
    group: Group<'a>,
}

impl Running<'_> {
    /// Returns a future that writes the standard input. A call that ends without reading its input
    /// says why itself.
    fn give(&mut self, input: Vec<u8>) -> impl Future<Output = ()> + use<> {
        let stdin = self.child.stdin.take();
        async move {
            if let Some(mut stdin) = stdin {
                let _ = stdin.write_all(&input).await;
            }
        }
    }

    /// Waits for the end, and returns the exit code; `None` after a signal.
    async fn end(mut self) -> Result<Option<i32>, GitError> {
        let status = self.child.wait().await?;
        self.group.forget();
        Ok(status.code())
    }
}

/// Returns what git said, as far as it is kept.
fn message(said: &[u8]) -> String {
    let mut message = String::from_utf8_lossy(said).trim().to_owned();
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    if message.contains("Out of memory") {
        let limit = MAX_MEMORY >> 20;
        let _ = write!(message, " (a process of git may use {limit} MiB of memory)");
    }
    message
}

/// Returns the variables by which git finds the proxies and the certificates of this host.
fn network_variables() -> impl Iterator<Item = (&'static str, OsString)> {
    let proxies = PROXIES.map(|name| (name, name));
    let all = CERTIFICATES.into_iter().chain(proxies);
    all.filter_map(|(name, of_git)| Some((of_git, std::env::var_os(name)?)))
}

/// Returns the scheme and the host of an address. Only this host gets the token.
fn origin(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url[begin..].find('/').map_or(url.len(), |at| begin + at);
    &url[..end]
}

async fn read(
    pipe: Option<impl AsyncRead + Unpin>,
    cut_at: Option<u64>,
) -> Result<Vec<u8>, GitError> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(cut_at.unwrap_or(MAX_OUTPUT + 1)).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > MAX_OUTPUT {
        return Err(GitError::TooMuch { command: String::new() });
    }
    Ok(bytes)
}

/// The processes of a call. They are killed together if the call is dropped before its end, and are
/// counted then.
struct Group<'a>(Option<Pid>, &'a AtomicU64);

impl<'a> Group<'a> {
    fn of(child: &Child, n_killed: &'a AtomicU64) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())), n_killed)
    }

    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            self.1.fetch_add(1, Ordering::Relaxed);
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
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

    #[tokio::test]
    async fn a_call_that_hangs_ends_with_all_its_processes() {
        let root = tempfile::tempdir().unwrap();
        let git = Git::new(root.path());
        git.check().await.unwrap();
        // Without `GIT_DIR`, the alias runs a shell that starts a child of its own.
        let mark = root.path().join("alive");
        let script = format!("alias.hang=!(while :; do date > {}; done) & wait", mark.display());
        let call = git.call(["-c", &script, "hang"]);
        let hung = Call { limit: Duration::from_millis(300), ..call };
        assert!(matches!(hung.run().await, Err(GitError::TimedOut { .. })));
        // The last run of `date` may still be ending.
        let is_written = || async {
            let _ = std::fs::remove_file(&mark);
            tokio::time::sleep(Duration::from_millis(50)).await;
            mark.exists()
        };
        for _ in 0..100 {
            if !is_written().await {
                return;
            }
        }
        panic!("a process of the call goes on");
    }
}
