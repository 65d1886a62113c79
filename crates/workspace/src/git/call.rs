//! One call of git: its options, its user, its limits and its end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::{Git, GitError, MAX_OUTPUT};
use crate::rights::{Groups, Owner};
use crate::strays::MARK;
use domain::workspace::Remote;
use machine::sys::confined::{self, ProcessLimits, UserIds};
use machine::sys::processes;

/// The time for a call that neither transfers objects nor writes many files.
const SHORT: Duration = Duration::from_mins(1);
/// The most bytes of error messages that are read. A process of another user may print any number.
const MAX_SAID: u64 = 1024 * 1024;
/// The most bytes of an error message that are kept.
const MAX_MESSAGE: usize = 4 * 1024;

/// The options in place of which a call with the settings of a person heeds these.
const OF_PERSON: [&str; 2] = ["core.hooksPath=", "commit.gpgSign="];
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

/// Turns off git's check of who owns a repository. Git of root runs without it, because such a call
/// concerns only files of root. Another user gets nothing by it that this user could not read.
const TRUSTING: &str = "safe.directory=*";
/// The home of a call as another user, who may not enter the daemon's folders. Git says nothing
/// about one that does not exist.
const NO_HOME: &str = "/nonexistent";

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

/// The variables that name the authorities of certificates, for the client of the forge and for
/// git.
const CERTIFICATES: [(&str, &str); 2] =
    [("SSL_CERT_FILE", "GIT_SSL_CAINFO"), ("SSL_CERT_DIR", "GIT_SSL_CAPATH")];

/// The end of a call.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub message: String,
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
    /// It obeys all settings of a person, whose home this is, also those of [`OF_PERSON`].
    of_person: Option<PathBuf>,
}

impl<'a> Call<'a> {
    /// Begins a call that uses no repository.
    pub(super) const fn new(git: &'a Git, arguments: Vec<OsString>) -> Self {
        Self {
            git,
            arguments,
            variables: Vec::new(),
            folder: None,
            input: Vec::new(),
            limit: SHORT,
            cut_at: None,
            remote: None,
            run_as: None,
            of_person: None,
        }
    }

    /// Sets the folder in which the call runs.
    pub(super) fn in_folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

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
    pub(crate) const fn run_as(mut self, user: Option<Owner>) -> Self {
        self.run_as = user;
        self
    }

    /// Lets the call read all settings of a person, whose home folder this is. Only for a call that
    /// runs no hook, or nothing but the signing program: the settings may name both.
    pub(crate) fn with_settings_of(mut self, home: PathBuf) -> Self {
        self.of_person = Some(home);
        self
    }

    /// Gives the call this time.
    pub const fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Gives the call the time that a transfer of many objects needs.
    pub const fn long(mut self) -> Self {
        self.limit = self.git.limits.git_time;
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
    /// one deadline: that of this call. Returns what the receiver prints.
    ///
    /// # Errors
    /// The errors of [`Self::run`], of either call.
    pub(crate) async fn send_to(self, receiver: Call<'_>) -> Result<Vec<u8>, GitError> {
        let command = self.name();
        let limit = self.limit;
        let receiver = Call { limit, ..receiver };
        match tokio::time::timeout(limit, self.stream(receiver)).await {
            Ok(ended) => ended,
            Err(_) => Err(GitError::TimedOut { command, limit }),
        }
    }

    async fn stream(mut self, mut receiver: Call<'_>) -> Result<Vec<u8>, GitError> {
        let names = [self.name(), receiver.name()];
        let mut from = self.spawn(None).await?;
        let pipe = from.child.stdout.take().map(TryInto::try_into).transpose()?;
        let mut to = receiver.spawn(pipe).await?;
        let ((), said, printed, answered) = tokio::join!(
            from.give(self.input),
            read(from.child.stderr.take(), MAX_SAID),
            read(to.child.stdout.take(), MAX_OUTPUT),
            read(to.child.stderr.take(), MAX_SAID),
        );
        let from = from.end().await?;
        let to = to.end().await?;
        if from.code().is_none() || to.code().is_none() {
            self.git.n_killed.fetch_add(1, Ordering::Relaxed);
        }
        let [sender, receiver] = names;
        let memory = self.git.limits.git_memory;
        let sent = succeeded(from, sender, &said?, memory);
        let taken = succeeded(to, receiver, &answered?, memory);
        // This signal ends a sender whose receiver has failed.
        let is_cut = from.signal() == Some(Signal::PIPE.as_raw());
        if is_cut { taken.and(sent) } else { sent.and(taken) }?;
        printed
    }

    async fn finish(mut self) -> Result<Ended, GitError> {
        let command = self.name();
        let mut running = self.spawn(None).await?;
        let input = match &self.remote {
            None => self.input,
            Some(Remote { user, token, .. }) => {
                format!("username={user}\npassword={}\n", token.reveal()).into_bytes()
            }
        };
        let most = self.cut_at.unwrap_or(MAX_OUTPUT + 1);
        let stdout = running.child.stdout.take();
        let stderr = running.child.stderr.take();
        let ((), stdout, said) =
            tokio::join!(running.give(input), read(stdout, most), read(stderr, MAX_SAID));
        let code = running.end().await?.code();
        let said = said?;
        if code != Some(0) {
            check_memory(&said, &command, self.git.limits.git_memory)?;
        }
        Ok(Ended { code, stdout: stdout?, message: message(&said) })
    }

    /// Starts the process. Its standard input is `input`, or else a pipe.
    async fn spawn(&mut self, input: Option<Stdio>) -> Result<Running<'a>, GitError> {
        let program = if self.remote.is_some() { "/bin/sh".into() } else { self.git.program() };
        let mut command = Command::new(program);
        if self.remote.is_some() {
            command.args(WITH_CREDENTIAL);
        }
        command.env_clear();
        let is_theirs = |option: &str| OF_PERSON.iter().any(|name| option.starts_with(name));
        let is_kept = |option: &&str| self.of_person.is_none() || !is_theirs(option);
        for option in OPTIONS.into_iter().filter(is_kept) {
            command.args(["-c", option]);
        }
        let is_root = self.run_as.map_or_else(|| geteuid().is_root(), |owner| owner == Owner::ROOT);
        if !is_root {
            command.args(["-c", TRUSTING]);
        }
        if let Some(remote) = &self.remote {
            for option in REMOTE_OPTIONS {
                command.args(["-c", option]);
            }
            let helper = format!("credential.{}.helper={CREDENTIAL_HELPER}", origin(&remote.url));
            command.args(["-c", &helper]);
        }
        command.args(&self.arguments);
        let Git { home, config, path, limits, n_killed, .. } = self.git;
        let own_home = if self.run_as.is_some() { Path::new(NO_HOME) } else { home };
        let fixed = [
            ("LC_ALL", OsStr::new("C")),
            ("HOME", own_home.as_os_str()),
            (MARK, config.as_os_str()),
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
        if let Some(home) = &self.of_person {
            command.env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "0").env_remove(MARK);
        }
        // A call never depends on the folder in which the daemon was started.
        let folder = self.folder.as_deref().unwrap_or(home);
        command.stdin(input.unwrap_or_else(Stdio::piped));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if let Some(owner) = self.run_as {
            let Groups { own, all } = owner.groups().await;
            // The user may not enter the folders of the daemon.
            let folder = self.folder.as_deref().unwrap_or(Path::new("/"));
            let user = UserIds { uid: owner.uid, gid: own, groups: all.to_vec() };
            let processor_time = self.processor_time();
            let most = ProcessLimits { memory: limits.git_memory, processor_time };
            confined::run_as(command.as_std_mut(), user, &most, folder)?;
        } else {
            command.current_dir(folder);
        }
        let child = command.spawn().map_err(|error| match (error.kind(), self.run_as) {
            (io::ErrorKind::NotFound, _) if folder.is_dir() => GitError::Missing,
            (io::ErrorKind::PermissionDenied, Some(owner)) => {
                let folder = folder.display();
                let message = format!("cannot run as the user with id {} in `{folder}`", owner.uid);
                GitError::Failed { command: self.name(), message }
            }
            _ => GitError::Io(error),
        })?;
        let group = Group::of(&child, n_killed);
        if let Some(pid) = group.0.filter(|_| self.run_as.is_none()) {
            processes::limit(pid, limits.git_memory, self.processor_time());
        }
        Ok(Running { child, group, command: self.name(), limit: self.processor_time() })
    }
}

/// A process of git.
struct Running<'a> {
    child: Child,
    group: Group<'a>,
    command: String,
    /// Its processor time.
    limit: Duration,
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

    /// Waits for the end.
    ///
    /// # Errors
    /// `TooSlow` if the process has used all of its processor time.
    async fn end(mut self) -> Result<ExitStatus, GitError> {
        let status = self.child.wait().await?;
        self.group.forget();
        if status.signal() == Some(Signal::XCPU.as_raw()) {
            return Err(GitError::TooSlow { command: self.command, limit: self.limit });
        }
        Ok(status)
    }
}

/// Returns the error of a call that did not succeed. `memory` is its limit, in bytes.
fn succeeded(
    status: ExitStatus,
    command: String,
    said: &[u8],
    memory: u64,
) -> Result<(), GitError> {
    match status.code() {
        Some(0) => Ok(()),
        Some(_) => {
            check_memory(said, &command, memory)?;
            Err(GitError::Failed { command, message: message(said) })
        }
        None => Err(GitError::Killed { command }),
    }
}

/// Checks that a call did not fail because it needed more than so many bytes of memory. Only a line
/// that git begins itself says so: a path in a line may have the same words.
fn check_memory(said: &[u8], command: &str, memory: u64) -> Result<(), GitError> {
    let says_so = |line: &[u8]| line.starts_with(b"fatal: Out of memory");
    if said.split(|byte| *byte == b'\n').any(says_so) {
        return Err(GitError::TooLarge { command: command.to_owned(), n_mib: memory >> 20 });
    }
    Ok(())
}

/// Returns what git said, as far as it is kept.
fn message(said: &[u8]) -> String {
    let mut message = String::from_utf8_lossy(said).trim().to_owned();
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
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

/// Reads at most so many bytes. More than [`MAX_OUTPUT`] are an error.
async fn read(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Result<Vec<u8>, GitError> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > MAX_OUTPUT {
        return Err(GitError::TooMuch { command: String::new() });
    }
    Ok(bytes)
}

/// The processes of a call. They are killed together if the call is dropped before its end, and are
/// counted then.
pub(super) struct Group<'a>(Option<Pid>, &'a AtomicU64);

impl<'a> Group<'a> {
    pub(super) fn of(child: &Child, n_killed: &'a AtomicU64) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())), n_killed)
    }

    pub(super) fn forget(mut self) {
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
    use domain::workspace::GitLimits;

    #[test]
    fn the_limits_of_a_call_are_those_of_the_settings() {
        let mut git = Git::new(Path::new("/"));
        let few = Duration::from_mins(5);
        git.limits = GitLimits { git_time: few, git_memory: 256 << 20, ..git.limits };
        let call = git.call(["version"]);
        assert_eq!((call.limit, call.processor_time()), (SHORT, 2 * SHORT));
        let call = call.long();
        assert_eq!((call.limit, call.processor_time()), (few, 2 * few));
        let check = |said: &[u8]| check_memory(said, "add", git.limits.git_memory);
        let refused = check(b"warning: no\nfatal: Out of memory, malloc failed\n").unwrap_err();
        assert!(refused.is_beyond_limit() && refused.is_of_content());
        let said = refused.to_string();
        assert!(said.ends_with("256 MiB of memory (`workspace.limits.git_memory`)"), "{said}");
        check(b"fatal: cannot use 'Out of memory'\nhint: fatal: Out of memory\n").unwrap();
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
