//! Composition: what is made of what, in which order it starts, and in which it ends.
//!
//! The only module that names several front doors. Each start step that fails says what it was about; the end is a sequence in
//! one function, `shutdown`, and each of its steps has a deadline.

mod http;
mod identity;
mod lock;
mod notify;
mod signals;
mod socket;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use lock::InUse;
pub use signals::{Signal, Signals, unblock};

pub use crate::process::find_program;

use crate::config::manifest::{self, Manifest};
use crate::config::{AtShutdown, Config, ConfigError, Environment, Report, StoreUrl};
use crate::coordinator::{Coordinator, CoordinatorConfig, LocalControlPlane, Mode};
use crate::domain::pair::Backoff;
use crate::domain::plan::Limits;
use crate::domain::{CoordinatorId, Guidance};
use crate::mcp::{self, McpServer};
use crate::nudge::Nudge;
use crate::process::{self, ProcessConfig, ProcessTable};
use crate::provider::Providers;
use crate::rest::{self, RestState};
use crate::service::world::SystemWorld;
use crate::service::{ApplyError, EntryProblem, Service, Settings, Wanted};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;
use crate::telemetry::ErrorChain;

/// How a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As it was asked to.
    Clean,
    /// Asked twice: it went without waiting for anything.
    Hurried(Signal),
}

/// The manifest of the configuration names what isn't there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestProblems(pub Report);

/// Beyond the agents' own stop ladder: reading what their keepers wrote, telling the server.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// For calls and requests that are being answered when the serving ends.
const SERVING_DEADLINE: Duration = Duration::from_secs(5);
/// For spawns under way when the table of processes closes.
const LEAVING_DEADLINE: Duration = Duration::from_secs(5);
/// The same when nobody waits any longer.
const HURRIED_DEADLINE: Duration = Duration::from_secs(1);
/// For what was handed to the store.
const STORE_DEADLINE: Duration = Duration::from_secs(5);

/// Runs server and coordinator in one process until a signal ends it. `invocation` is how a person calls the command line for
/// this daemon.
///
/// # Errors
/// What kept it from starting.
pub async fn run(
    config: Config,
    environment: &Environment,
    invocation: &str,
    mut signals: Signals,
) -> anyhow::Result<Ending> {
    let has_agents = AtomicBool::new(false);
    let mut starting = std::pin::pin!(Daemon::start(&config, environment, invocation, &has_agents));
    let (started, early) = tokio::select! {
        daemon = &mut starting => (daemon?, None),
        signal = signals.next() => {
            if !has_agents.load(Ordering::Acquire) {
                // Nothing to wait for, and dropping the start is safe: a store commit is made or not.
                tracing::info!(signal = signal.as_str(), "stopped while starting");
                return Ok(Ending::Clean);
            }
            // Agents of an earlier daemon may be adopted by now; what becomes of them is a matter of policy.
            (starting.await?, Some(signal))
        }
    };
    let first = tokio::select! {
        biased;
        signal = next_or(&mut signals, early) => signal,
        () = started.broken.cancelled() => anyhow::bail!("a part of the daemon ended unexpectedly; see the log"),
    };
    let policy = match first {
        Signal::Terminate => config.shutdown.sigterm,
        Signal::Interrupt => config.shutdown.sigint,
    };
    notify::stopping();
    tracing::info!(
        signal = first.as_str(),
        agents = if policy == AtShutdown::Keep { "kept" } else { "stopped" },
        "stopping"
    );
    tokio::select! {
        () = shutdown(&started, policy, &config) => Ok(Ending::Clean),
        second = signals.next() => {
            tracing::warn!(signal = second.as_str(), "second signal: not waiting any longer");
            started.hurry().await;
            Ok(Ending::Hurried(second))
        }
    }
}

/// `early`, else the next signal.
async fn next_or(signals: &mut Signals, early: Option<Signal>) -> Signal {
    match early {
        Some(signal) => signal,
        None => signals.next().await,
    }
}

/// The parts of a running daemon.
struct Daemon {
    store: Arc<SqliteStore>,
    processes: ProcessTable,
    mode: watch::Sender<Mode>,
    coordinator: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    serving: CancellationToken,
    doors: tokio_util::task::TaskTracker,
    /// Cancelled when a part ends that must not.
    broken: CancellationToken,
    /// Held for the life of the daemon.
    _locks: [lock::RoleLock; 2],
}

impl Daemon {
    /// Sets `has_agents` before it takes over what lives.
    async fn start(
        config: &Config,
        environment: &Environment,
        invocation: &str,
        has_agents: &AtomicBool,
    ) -> anyhow::Result<Self> {
        // Before anything is made: a daemon that refuses to start leaves nothing behind.
        let manifest = config.manifest.as_deref().map(|path| manifest::load(path, environment)).transpose()?;
        let state_dir = &config.state_dir;
        identity::create_state_dir(state_dir)?;
        let lock = lock::RoleLock::take(&state_dir.join("server.lock")).await?;
        let StoreUrl::Sqlite(database) = &config.store;
        // A store has one daemon, wherever that keeps the rest of its state.
        let store_lock = lock::RoleLock::take(&database.with_added_extension("lock")).await?;
        let store = Arc::new(SqliteStore::open(database).await?);
        let coordinator_id: CoordinatorId = identity::coordinator_id(state_dir)?;
        let coordinator_token = identity::coordinator_token(state_dir)?;

        let nudge = Nudge::new();
        let backoff = Backoff { initial: config.backoff.initial, max: config.backoff.max };
        let settings = Settings {
            language: config.language,
            start_timeout: config.start.timeout,
            stop_timeout: config.stop.timeout,
            linger: config.run.linger,
            session_default: config.session.default_timeout,
            session_maximum: config.session.max_timeout,
            backoff,
            state_dir: state_dir.clone(),
            ticket_key: coordinator_token.derive("", "launch tickets"),
        };
        let service = Arc::new(Service::new(store.clone(), Arc::new(SystemWorld), settings, nudge.clone()));
        if let (Some(path), Some(manifest)) = (&config.manifest, &manifest) {
            apply_manifest(&service, path, manifest, invocation).await?;
        }

        let passkeys = config.agents.iter().map(|(agent, credentials)| (agent, &credentials.passkey));
        for unknown in service.learn_passkeys(passkeys).await? {
            tracing::info!(agent_id = %unknown, "the configuration has a passkey for an agent that does not exist (yet)");
        }

        let program = std::env::current_exe().context("could not find this program's own file")?;
        let process_config = ProcessConfig {
            state_dir: state_dir.clone(),
            shim_program: program.clone(),
            stop_timeout: config.stop.timeout,
            leak_grace: config.stop.leak_grace,
            max_file: config.output.max_file,
            files: u32::try_from(config.output.files).unwrap_or(u32::MAX),
        };
        // Before agents are adopted: an address that is taken is a reason not to start.
        let http = http::Door::open(&config.http, state_dir).await?;
        let http_address = http.as_ref().map(http::Door::address);
        has_agents.store(true, Ordering::Release);
        let (processes, adoption) = process::open(process_config, nudge.clone()).await?;
        tracing::info!(
            adopted = adoption.n_adopted,
            ended = adoption.n_ended,
            lost = adoption.n_lost,
            "took stock of the instances"
        );

        let mcp_listener = socket::bind(&config.mcp_socket)?;
        let control_listener = socket::bind(&config.control_socket)?;

        let serving = CancellationToken::new();
        let broken = CancellationToken::new();
        let doors = tokio_util::task::TaskTracker::new();
        let mcp_server = McpServer::new(service.clone(), config.coordinator_token.clone().unwrap_or(coordinator_token));
        let rest_state = RestState { service: service.clone(), http: http_address, closing: serving.clone() };
        if let Some(http) = http {
            let served = http.serve(&mcp_server, rest_state.clone(), config.http.allowed_hosts.clone());
            doors.spawn(watched(broken.clone(), serving.clone(), served));
        }
        doors.spawn(watched(
            broken.clone(),
            serving.clone(),
            mcp::socket::serve(mcp_listener, mcp_server, serving.clone()),
        ));
        let router = rest::router(rest_state);
        doors.spawn(watched(
            broken.clone(),
            serving.clone(),
            rest::serve_control(control_listener, router, serving.clone()),
        ));
        doors.spawn(watched(
            broken.clone(),
            serving.clone(),
            clean_up(service.clone(), config.session.cleanup_interval, serving.clone()),
        ));

        // Without their owners the rest would serve on as half a daemon.
        let (table, storage, serves) = (processes.clone(), store.clone(), serving.clone());
        doors.spawn(watched(broken.clone(), serving.clone(), async move {
            tokio::select! {
                () = serves.cancelled() => {}
                () = table.closed() => tracing::error!("the process table ended"),
                () = storage.closed() => tracing::error!("the store's writer ended"),
            }
        }));

        let (mode, mode_seen) = watch::channel(Mode::Running);
        let coordinator = Coordinator::new(
            CoordinatorConfig {
                id: coordinator_id.clone(),
                polling_interval: config.polling_interval,
                limits: Limits { max_concurrent: config.max_concurrent, backoff, linger: config.run.linger },
                providers: Providers {
                    entries: config.providers.clone(),
                    guidance: Guidance::new(config.language),
                    environment: environment.variables().collect(),
                    mcp_socket: config.mcp_socket.clone(),
                    mcp_url: http_address.map(http::mcp_url),
                    program,
                },
            },
            LocalControlPlane::new(service, coordinator_id),
            processes.clone(),
            nudge.listen(),
            mode_seen,
        );
        let coordinator = tokio::spawn(watched(broken.clone(), serving.clone(), coordinator.run()));
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), state_dir = %state_dir.display(),
            mcp_socket = %config.mcp_socket.display(), http = http_address.map(tracing::field::display), "ready"
        );
        notify::ready();
        Ok(Self {
            store,
            processes,
            mode,
            coordinator: tokio::sync::Mutex::new(Some(coordinator)),
            serving,
            doors,
            broken,
            _locks: [lock, store_lock],
        })
    }

    /// Tells the keepers to end their agents without patience, and waits for nothing else.
    async fn hurry(&self) {
        if *self.mode.borrow() != Mode::LeavingAgents {
            self.mode.send_replace(Mode::StoppingAgentsNow);
            for instance in self.processes.instances().iter().filter(|instance| instance.is_live()) {
                let reason = crate::domain::StopReason::Shutdown;
                let _ = self.processes.request_stop(&instance.launch, reason, Some(Duration::ZERO)).await;
            }
            // A spawn under way is told when it is done.
            let _ = tokio::time::timeout(HURRIED_DEADLINE, self.processes.clone().leave()).await;
        }
    }
}

/// The end, in its order: start nothing more and end the agents while the server still answers them, stop serving, close the
/// store. A step that isn't done by its deadline is left behind.
async fn shutdown(daemon: &Daemon, policy: AtShutdown, config: &Config) {
    let (mode, deadline) = match policy {
        AtShutdown::Keep => (Mode::LeavingAgents, STOP_MARGIN),
        AtShutdown::Stop => (Mode::StoppingAgents, config.stop.timeout + config.stop.leak_grace + STOP_MARGIN),
    };
    daemon.mode.send_replace(mode);
    if let Some(coordinator) = daemon.coordinator.lock().await.as_mut() {
        within(deadline, "the agents", coordinator).await;
    }
    daemon.serving.cancel();
    daemon.doors.close();
    within(SERVING_DEADLINE, "the open connections", daemon.doors.wait()).await;
    within(LEAVING_DEADLINE, "the starts under way", daemon.processes.clone().leave()).await;
    within(STORE_DEADLINE, "the store", daemon.store.close()).await;
    tracing::info!("stopped");
}

async fn within<F: Future>(deadline: Duration, what: &str, step: F) {
    if tokio::time::timeout(deadline, step).await.is_err() {
        tracing::error!(
            what,
            deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            "still not finished; going on without it"
        );
    }
}

/// A part of the daemon. If it ends while the daemon serves, the daemon is broken: better a restart than half a daemon.
async fn watched(broken: CancellationToken, serving: CancellationToken, part: impl Future<Output = ()>) {
    // Also when the part panics.
    let _on_end = OnEnd { broken, serving };
    part.await;
}

struct OnEnd {
    broken: CancellationToken,
    serving: CancellationToken,
}

impl Drop for OnEnd {
    fn drop(&mut self) {
        if !self.serving.is_cancelled() {
            self.broken.cancel();
        }
    }
}

async fn clean_up(service: Arc<Service>, interval: Duration, cancel: CancellationToken) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = service.cleanup().await {
            tracing::warn!(error = %ErrorChain(&error), "could not clean up; will try again");
        }
    }
}

async fn apply_manifest(service: &Service, path: &Path, manifest: &Manifest, invocation: &str) -> anyhow::Result<()> {
    let applied = match service.apply(&Wanted::from(manifest)).await {
        Ok(applied) => applied,
        Err(ApplyError::Problems(problems)) => {
            let located = problems.into_iter().map(|problem| (locate(manifest, &problem), problem.message));
            return Err(ManifestProblems(manifest.report(located)).into());
        }
        Err(ApplyError::Service(error)) => return Err(error).context("could not apply the manifest"),
    };
    let n_changed = applied.iter().filter(|entry| entry.what != crate::service::AppliedAs::Unchanged).count();
    tracing::info!(manifest = %path.display(), n_entries = applied.len(), n_changed, "manifest applied");
    say_what_is_left(service, manifest, invocation).await
}

/// A manifest whose tasks are all finished starts nothing; say so, and how to go on.
async fn say_what_is_left(service: &Service, manifest: &Manifest, invocation: &str) -> anyhow::Result<()> {
    let mut open = 0;
    for task in &manifest.tasks {
        open += usize::from(service.task(&task.id.value).await?.task.status.is_open());
    }
    if let (Some(last), 0) = (manifest.tasks.last(), open) {
        let assignee = last.assignee.as_ref().map_or("AGENT", |assignee| assignee.value.as_str());
        tracing::info!(
            task_id = %last.id.value, status = "done",
            next = format!(
                "{invocation} task add --project {} --assignee {assignee} --status in_progress --title '…'",
                last.project.value
            ),
            "every task of the manifest is done; give the next one"
        );
    }
    Ok(())
}

/// The place of a problem in the file.
pub fn locate(manifest: &Manifest, problem: &EntryProblem) -> manifest::Location {
    manifest.locate(problem.section, &problem.id, problem.field)
}

/// Whether an error is about the configuration, so that the exit code says so.
pub fn is_about_configuration(error: &anyhow::Error) -> bool {
    error.is::<ConfigError>() || error.is::<ManifestProblems>()
}
