//! Reads the configuration again while the daemon runs: on SIGHUP, on request, and when a file has
//! changed.
//!
//! A valid configuration is applied as far as possible; an invalid one changes nothing. Steps that
//! may be refused come first: once one setting is in use, all are. [`config::diff`] decides
//! when a setting applies.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::isolation::{self, UserProblem};
use super::notify::ServiceManager;
use super::secrets::secrets;
use super::watched_files::WatchedFiles;
use super::{Daemon, ManifestProblems};
use config::{self, Config, ConfigError, Environment, Live, Loaded};
use domain::configuration::{ConfigurationState, Reloaded};
use runtime::clock;
use runtime::nudge::{Wakeups, sleep_until};
use runtime::peer;
use runtime::telemetry::{ErrorChain, LogHandle};
use service::world::{SystemWorld, World};
use supervisor::coordinator::LoopObserver;
use web::{ConfigurationHandle, ReloadRefused, ReloadRequest};

/// The owner of the configuration.
pub(super) struct Reloader {
    live: Live,
    environment: Environment,
    invocation: String,
    log: LogHandle,
    hang_ups: Wakeups,
    requests: mpsc::Receiver<ReloadRequest>,
    files: WatchedFiles,
    /// The manifest that the last read file names, even if that file is not in use.
    manifest: Option<PathBuf>,
    configuration_state: watch::Sender<ConfigurationState>,
    manager: Arc<ServiceManager>,
}

impl Reloader {
    /// Makes the reloader and the handle that sends requests to it. It notices changes from now on.
    /// Must be called within a tokio runtime.
    pub(super) fn new(
        loaded: Loaded,
        environment: &Environment,
        invocation: &str,
        log: LogHandle,
        hang_ups: Wakeups,
        manager: Arc<ServiceManager>,
    ) -> (Self, ConfigurationHandle) {
        let world: &dyn World = &SystemWorld;
        let live = Live::new(loaded, world.now());
        let (handle, configuration_state, requests) =
            ConfigurationHandle::new(live.configuration_state().clone());
        let mut reloader = Self {
            manifest: live.in_use().general.manifest.clone(),
            live,
            environment: environment.clone(),
            invocation: invocation.to_owned(),
            log,
            hang_ups,
            requests,
            files: WatchedFiles::new(),
            configuration_state,
            manager,
        };
        reloader.files.follow(reloader.paths());
        (reloader, handle)
    }

    /// Returns the configuration in use.
    pub(super) fn in_use(&self) -> &Config {
        self.live.in_use()
    }

    /// Reads the configuration again whenever there is a reason. Not cancel-safe: a reload that is
    /// cancelled stays half-done, which is acceptable only if the daemon ends.
    pub(super) async fn attend(&mut self, daemon: &Daemon) -> Infallible {
        // A coordinator's loop shows that the daemon is alive. If there is none, this loop shows
        // it.
        let mut watch = daemon.supervisor.is_none().then(|| self.manager.watch());
        loop {
            let turn_at =
                watch.as_mut().and_then(LoopObserver::turned).map(|within| clock::now() + within);
            let (by, reply) = tokio::select! {
                biased;
                () = self.hang_ups.woken() => ("SIGHUP", None),
                Some(reply) = self.requests.recv() => ("command", Some(reply)),
                () = self.files.changed() => ("file", None),
                () = sleep_until(turn_at) => continue,
            };
            // The watch begins before the files are read, so that changes meanwhile are noticed.
            self.files.follow(self.paths());
            let began_at = clock::now();
            if by == "SIGHUP" {
                self.log.reopen_file();
            }
            self.manager.reloading();
            let outcome = self.reload(by, daemon).await;
            self.configuration_state.send_replace(self.live.configuration_state().clone());
            self.manager.reloaded(self.live.configuration_state());
            tracing::debug!(by, duration_ms = began_at.elapsed().as_millis(), "reload done");
            self.files.go_on_with(self.paths());
            if let Some(reply) = reply {
                // The caller may be gone.
                let _ = reply.send(outcome);
            }
        }
    }

    /// Returns the paths of the configuration and of the manifests that it names.
    fn paths(&self) -> Vec<PathBuf> {
        let manifests = self.live.in_use().general.manifest.iter().chain(&self.manifest);
        self.live.configuration_state().file.iter().chain(manifests).cloned().collect()
    }

    async fn reload(
        &mut self,
        by: &'static str,
        daemon: &Daemon,
    ) -> Result<Reloaded, ReloadRefused> {
        let world: &dyn World = &SystemWorld;
        let former = self.live.configuration_state().file.clone();
        let environment = self.environment.clone();
        // The file may be a pipe without a writer.
        let read = tokio::task::spawn_blocking(move || {
            config::load_again(former.as_deref(), &environment)
        });
        let carried_out = match read.await {
            Ok(Ok(loaded)) => {
                self.manifest.clone_from(&loaded.config.general.manifest);
                // The watch begins before the manifest is read, too.
                self.files.go_on_with(self.paths());
                self.carry_out(&loaded.config, daemon).await.map(|()| loaded)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(panic) => Err(panic.into()),
        };
        match carried_out {
            Ok(loaded) => {
                let was_rejected = self.live.configuration_state().rejected.is_some();
                let reloaded = self.live.take(loaded, world.now());
                log(by, &reloaded, was_rejected);
                Ok(reloaded)
            }
            Err(error) => {
                let (problem, refused) = refusal(&error);
                tracing::error!(
                    by,
                    problem,
                    "the configuration on disk is not used; the last good one stays in use"
                );
                self.live.reject(problem, world.now());
                Err(refused)
            }
        }
    }

    async fn carry_out(&self, new: &Config, daemon: &Daemon) -> anyhow::Result<()> {
        if daemon.supervisor.is_some() {
            // A problem with the users would keep the daemon from its next start.
            isolation::check_users(new)?;
        }
        let new = self.live.preview(new);
        // A user that was made again may have another id.
        peer::admit_agents_of(isolation::users(&new).values().map(|user| user.run_as.uid));
        if let Some(server) = &daemon.server {
            server.learn(&new, &self.environment, &self.invocation).await?;
        }
        self.log.set_level(&new.log.level)?;
        if let Some(server) = &daemon.server {
            server.reconfigure(&new, &self.environment);
        }
        if let Some(supervisor) = &daemon.supervisor {
            let secrets = match &daemon.server {
                Some(server) => server.secrets(&new),
                None => secrets(&new, None),
            };
            supervisor.reconfigure(&new, &secrets).await;
        }
        // This comes last, so that they start as they are configured now.
        if let Some(server) = &daemon.server {
            server.release_misconfigured().await;
        }
        Ok(())
    }
}

fn log(by: &'static str, reloaded: &Reloaded, was_rejected: bool) {
    let changes = if reloaded.is_news() { &reloaded.changes[..] } else { &[] };
    for change in changes {
        let (old, new) = match &change.values {
            Some([old, new]) => (Some(old.as_str()), Some(new.as_str())),
            None => (None, None),
        };
        tracing::info!(
            setting = change.setting,
            old,
            new,
            applies = change.applies.as_str(),
            "setting changed"
        );
    }
    let n_changes = changes.len();
    let n_waiting = reloaded.waiting.len();
    if n_changes > 0 || was_rejected {
        tracing::info!(by, n_changes, n_waiting_for_restart = n_waiting, "configuration reloaded");
    } else {
        tracing::info!(
            by,
            n_waiting_for_restart = n_waiting,
            "configuration read again: nothing is different"
        );
    }
}

/// Returns an error on one line for the log, and as the answer to the caller.
fn refusal(error: &anyhow::Error) -> (String, ReloadRefused) {
    let of_file =
        |line: String, report: String| (line, ReloadRefused { report, is_about_file: true });
    if let Some(ManifestProblems(report)) = error.downcast_ref() {
        return of_file(report.on_one_line(), report.to_string());
    }
    if let Some(problem) = error.downcast_ref::<UserProblem>() {
        return of_file(problem.to_string(), problem.to_string());
    }
    match error.downcast_ref::<ConfigError>() {
        Some(ConfigError::Invalid(report)) => of_file(report.on_one_line(), report.to_string()),
        Some(unreadable) => of_file(unreadable.on_one_line(), unreadable.on_one_line()),
        None => {
            let line = ErrorChain(error.as_ref()).to_string();
            (line.clone(), ReloadRefused { report: line, is_about_file: false })
        }
    }
}
