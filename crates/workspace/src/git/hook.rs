//! Runs a hook of a person's repository, as a git of its owner would.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::call::Group;
use super::{Git, GitError};
use crate::rights::{Groups, Owner};
use crate::strays;
use domain::printable::lines;
use machine::sys::confined::{self, UserIds};
use machine::sys::user_names::login_variables;

/// The most bytes of a hook's output that are kept: the last ones.
const MAX_SAID: usize = 4 * 1024;
/// The time in which the output of an ended hook must have been read.
const REST: Duration = Duration::from_secs(1);

/// The number of hooks so far, so that the processes of each have a mark of their own.
static N_RUNS: AtomicU64 = AtomicU64::new(0);

/// A hook that is to run.
pub(crate) struct HookRun<'a> {
    pub(crate) program: &'a Path,
    pub(crate) argument: Option<PathBuf>,
    /// The folder in which it runs.
    pub(crate) folder: &'a Path,
    /// The user as whom it runs; `None` for the daemon's own.
    pub(crate) owner: Option<Owner>,
    /// The time after which it is ended with all its processes.
    pub(crate) limit: Duration,
}

impl Git {
    /// Runs a hook to its end, and ends the processes that it leaves. It has the environment of its
    /// user's login and no terminal. Returns the end of its output as an error if it fails.
    ///
    /// # Errors
    /// Its processes cannot be ended.
    pub(crate) async fn run_hook(&self, run: HookRun<'_>) -> Result<Result<(), String>, GitError> {
        let HookRun { program, argument, folder, owner, limit } = run;
        let uid = owner.map_or_else(|| rustix::process::geteuid().as_raw(), |owner| owner.uid);
        let login = tokio::task::spawn_blocking(move || login_variables(uid)).await;
        let n = N_RUNS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}#{n};", self.config.display());
        // A program without a line `#!` runs in `/bin/sh`, as with git: `execvp` does that.
        let mut command = Command::new(program);
        command.args(argument).env_clear().envs(login.unwrap_or_default());
        if let Some(home) = std::env::var_os("HOME").filter(|_| owner.is_none()) {
            command.env("HOME", home);
        }
        command.env("PATH", &self.path).env(strays::HOOK_MARK, &mark);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        let user = match owner {
            None => None,
            Some(owner) => {
                let Groups { own, all } = owner.groups().await;
                Some(UserIds { uid: owner.uid, gid: own, groups: all.to_vec() })
            }
        };
        confined::run_apart(command.as_std_mut(), user, folder)?;
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("it could not be run: {error}"))),
        };
        let group = Group::of(&child, &self.n_killed);
        let mut readers = JoinSet::new();
        readers.spawn(last_of(child.stdout.take()));
        readers.spawn(last_of(child.stderr.take()));
        let ended = tokio::time::timeout(limit, child.wait()).await;
        let group = if ended.is_ok() {
            group.forget();
            None
        } else {
            Some(group)
        };
        strays::end(strays::HOOK_MARK, &mark).await?;
        // The drop of the group kills the processes that have hidden their mark.
        drop(group);
        let reason = match ended {
            Ok(Ok(status)) if status.success() => return Ok(Ok(())),
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not end within {} s", limit.as_secs()),
        };
        let said = tokio::time::timeout(REST, readers.join_all()).await.unwrap_or_default();
        let said = String::from_utf8_lossy(&said.concat()).trim().to_owned();
        let begin = said.ceil_char_boundary(said.len().saturating_sub(MAX_SAID));
        let said = lines(&said[begin..]).into_owned();
        Ok(Err(if said.is_empty() { reason } else { format!("{said}\n({reason})") }))
    }
}

/// Reads a pipe to its end, and returns the last bytes.
async fn last_of(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut last = Vec::new();
    let Some(mut pipe) = pipe else { return last };
    while pipe.read_buf(&mut last).await.is_ok_and(|n| n > 0) {
        if last.len() > 2 * MAX_SAID {
            last.drain(..last.len() - MAX_SAID);
        }
    }
    last
}
