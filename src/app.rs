//! Composes the daemon: which parts it has, in which order they start, and in which order they end.
//!
//! This is the only module that names several listeners. A daemon is a server, a coordinator, or
//! both in one process ([`Role`]). Each start step that fails names its object. One function,
//! `shutdown`, contains the sequence of the end; each of its steps has a deadline.

mod http;
mod identity;
mod inherited;
mod isolation;
mod lock;
mod notify;
mod parts;
pub mod programs;
mod reload;
mod secrets;
mod server;
mod signals;
mod socket;
mod state_dir;
mod store;
mod supervisor;
mod watched_files;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::task::AbortOnDropHandle;

pub use http::kept_port;
pub use inherited::{Inherited, InheritedError};
pub use isolation::{UserProblem, check_users, give_agents_descriptors};
pub use lock::InUse;
pub use secrets::secrets;
pub use signals::{Signal, Signals, unblock};
pub use state_dir::{OpenStateDir, check_state_dir};
pub use store::{RestoreReport, back_up, copy_store, look_at_store, restore};

pub use ::store::backup::{BackupContents, IfExists};
pub use ::store::copy::{CopiedTable, Progress};
pub use ::supervisor::coordinator::{anywhere, find_unstartable, setting_of_path};
pub use ::supervisor::process::{SHIM_PROGRAM, find_program, program_of_shims};
pub use workspace::Upgrade;

use ::supervisor::coordinator::{LocalControlPlane, Mode, RemoteControlPlane};
use config::manifest::{self, Manifest};
use config::{AtShutdown, Config, ConfigError, Environment, Loaded, Report};
use domain::ServerAddress;
use machine::locks;
use notify::ServiceManager;
use parts::Parts;
use reload::Reloader;
use runtime::folder_watch::shared::SharedFolders;
use runtime::nudge::Nudge;
use runtime::peer;
use runtime::telemetry::{ErrorChain, LogHandle};
use server::Server;
use service::EntryProblem;
use service::world::SystemWorld;
use supervisor::{Control, CoordinatorIdentity, HostFacts, ReachedAt, Supervisor, SupervisorParts};
use web::{self, ConfigurationHandle, CoordinatorState};
use workspace::{Checkouts, HostSettings};

/// The role of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Server and coordinator in one process.
    Run,
    /// The server alone.
    Serve,
    /// The coordinator alone, for a remote server.
    Supervise,
}

impl Role {
    /// Returns the command that starts it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Serve => "serve",
            Self::Supervise => "supervise",
        }
    }
}

/// The way in which a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It ended as requested.
    Clean,
    /// A second signal came: it ended without waiting.
    Hurried(Signal),
    /// A later start of its coordinator elsewhere has taken its place.
    Superseded,
}

/// The manifest of the configuration has problems, such as names that do not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestProblems(pub Report);

/// Added to the agents' own stop sequence, for reading the records of their shims and telling the
/// server.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// The deadline for calls and requests that are being answered when the serving ends.
const SERVING_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline for spawns under way when the table of processes closes.
const LEAVING_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline for writes that were handed to the store.
const STORE_DEADLINE: Duration = Duration::from_secs(5);

/// Runs a daemon until a signal or a later start of its coordinator ends it. `invocation` is how a
/// person calls the command line for this daemon. The listeners of `inherited` are open already.
/// `log` is the running log, which a reload may change.
///
/// # Errors
/// Returns the reason why it could not start, or an error if a part of the daemon ended
/// unexpectedly.
#[allow(clippy::disallowed_methods, reason = "the handle aborts the task")]
pub async fn run(
    role: Role,
    loaded: Loaded,
    environment: &Environment,
    invocation: &str,
    inherited: Inherited,
    mut signals: Signals,
    log: LogHandle,
) -> anyhow::Result<Ending> {
    inherited.check(role, &loaded.config)?;
    if role != Role::Serve {
        isolation::check_users(&loaded.config)?;
    }
    peer::admit_agents_of(isolation::users(&loaded.config).values().map(|user| user.run_as.uid));
    let manager = ServiceManager::of(environment, std::process::id());
    let config = loaded.config.clone();
    let (mut reloader, handle) = Reloader::new(
        loaded,
        environment,
        invocation,
        log,
        signals.hang_ups(),
        Arc::clone(&manager),
    );
    let stage = Arc::new(StartStage::default());
    let mut starting = {
        let config = config.clone();
        let environment = environment.clone();
        let invocation = invocation.to_owned();
        let manager = Arc::clone(&manager);
        let stage = Arc::clone(&stage);
        // The start has a task of its own: a step that hangs must not keep this task from receiving
        // a signal.
        AbortOnDropHandle::new(tokio::spawn(async move {
            let config = &config;
            let environment = &environment;
            let invocation = invocation.as_str();
            let start = Start {
                role,
                config,
                environment,
                invocation,
                configuration: handle,
                manager: &manager,
            };
            start.daemon(inherited, &stage).await
        }))
    };
    let unexpected = "the start ended unexpectedly";
    let (started, early) = tokio::select! {
        daemon = &mut starting => (daemon.context(unexpected)??, None),
        signal = signals.next() => {
            if stage.give_up() {
                // There is nothing to wait for, and dropping the start is safe: a store commit is
                // made or not.
                tracing::info!(signal = signal.as_str(), "stopped while starting");
                return Ok(Ending::Clean);
            }
            // Agents of an earlier daemon may be adopted by now; the policy decides whether they
            // are stopped.
            tracing::info!(signal = signal.as_str(), "stopping when the start is finished");
            tokio::select! {
                finished = tokio::time::timeout(agents_timeout(&config), &mut starting) => {
                    let Ok(daemon) = finished else {
                        tracing::error!("the start did not finish; the agents are left to their shims");
                        return Ok(Ending::Clean);
                    };
                    (daemon.context(unexpected)??, Some(signal))
                }
                second = signals.next() => {
                    tracing::warn!(signal = second.as_str(), "received a second signal; not waiting any longer");
                    return Ok(Ending::Hurried(second));
                }
            }
        }
    };
    if early.is_none() {
        manager.ready();
    }
    // `None` means a later start.
    let cause = tokio::select! {
        biased;
        signal = next_or(&mut signals, early) => Some(signal),
        () = started.superseded() => None,
        () = started.parts.broken.cancelled() => anyhow::bail!("a part of the daemon ended unexpectedly; see the log"),
        never = reloader.attend(&started) => match never {},
    };
    // Later requests for a reload are told that the reloader has ended.
    let config = reloader.in_use().clone();
    drop(reloader);
    let policy = match cause {
        Some(Signal::Terminate) => config.shutdown.sigterm,
        Some(Signal::Interrupt) => config.shutdown.sigint,
        Some(Signal::Leave) => AtShutdown::Keep,
        // The later start takes the agents for lost and starts them again.
        None => AtShutdown::Stop,
    };
    manager.stopping();
    tracing::info!(
        signal = cause.map(Signal::as_str),
        agents = if policy == AtShutdown::Keep { "kept" } else { "stopped" },
        "stopping"
    );
    let end = async {
        if cause.is_none() {
            within(STOP_MARGIN, "giving way", started.give_way(&config)).await;
        }
        shutdown(&started, policy, &config).await;
    };
    tokio::select! {
        () = end => Ok(cause.map_or(Ending::Superseded, |_| Ending::Clean)),
        second = signals.next() => {
            tracing::warn!(signal = second.as_str(), "received a second signal; not waiting any longer");
            if let Some(supervisor) = &started.supervisor {
                supervisor.hurry().await;
            }
            Ok(Ending::Hurried(second))
        }
    }
}

/// The stage of a start. It decides the effect of a signal.
#[derive(Default)]
struct StartStage(Mutex<Reached>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Reached {
    #[default]
    Nothing,
    /// The start takes over the agents of an earlier daemon.
    Agents,
    /// A signal came first.
    GivenUp,
}

impl StartStage {
    /// Must be called before the first agent is taken over.
    fn begin_with_agents(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.reach(Reached::Agents), "the start was given up");
        Ok(())
    }

    /// Returns `false` if the start may have agents already.
    fn give_up(&self) -> bool {
        self.reach(Reached::GivenUp)
    }

    fn reach(&self, next: Reached) -> bool {
        let mut reached = locks::lock(&self.0);
        let is_first = *reached == Reached::Nothing;
        if is_first {
            *reached = next;
        }
        is_first
    }
}

/// Returns the longest time that a stop of all agents takes, their leftovers included.
fn agents_timeout(config: &Config) -> Duration {
    config.stop.timeout + config.stop.leak_grace + STOP_MARGIN
}

/// Returns `early`, or else the next signal.
async fn next_or(signals: &mut Signals, early: Option<Signal>) -> Signal {
    match early {
        Some(signal) => signal,
        None => signals.next().await,
    }
}

/// The parts of a running daemon.
struct Daemon {
    server: Option<Server>,
    supervisor: Option<Supervisor>,
    parts: Parts,
}

impl Daemon {
    /// Returns when the remote server has reported a later start of this coordinator.
    async fn superseded(&self) {
        match &self.supervisor {
            Some(supervisor) => supervisor.superseded().await,
            None => std::future::pending().await,
        }
    }

    /// Tells the agents to end, because another coordinator with this name takes them for lost.
    async fn give_way(&self, config: &Config) {
        tracing::error!(
            state_dir = %config.paths.state_dir.display(),
            "a later start of this coordinator works for the server: is one state directory a copy of the other? The agents here \
             end, and the next start here takes a coordinator id of its own; what stays open under the former one ends by \
             `stop AGENT PROJECT --force`"
        );
        // This comes first: a start after a crash must not replace the other coordinator in turn.
        if let Err(error) = identity::give_up_coordinator_id(&config.paths.state_dir) {
            tracing::error!(error = %ErrorChain(error.as_ref()), "could not give up the coordinator id; the next start here would replace the other coordinator");
        }
        if let Some(supervisor) = &self.supervisor {
            supervisor.stop_agents(None).await;
        }
    }
}

/// The inputs of a start.
struct Start<'a> {
    role: Role,
    config: &'a Config,
    environment: &'a Environment,
    invocation: &'a str,
    configuration: ConfigurationHandle,
    manager: &'a Arc<ServiceManager>,
}

impl Start<'_> {
    /// Starts the daemon. Tells `stage` before it takes over live agents.
    async fn daemon(self, inherited: Inherited, stage: &StartStage) -> anyhow::Result<Daemon> {
        let Self { role, config, environment, invocation, .. } = self;
        let is_own =
            config.paths.server == ServerAddress::Socket(config.paths.mcp_socket_path.clone());
        match role {
            Role::Run | Role::Serve if !is_own => {
                tracing::warn!(server = %config.paths.server, "ignored the setting `server`: only `supervise`, `call` and `mcp` use it");
            }
            Role::Supervise if config.paths.has_default_server() => {
                tracing::warn!(
                    server = %config.paths.server,
                    "`server` and `mcp_socket_path` name no other server; using the one with the \
                     same state_dir"
                );
            }
            Role::Run | Role::Serve | Role::Supervise => {}
        }
        let parts = Parts::default();
        let mut http_address = None;
        let (server, supervisor) = match role {
            Role::Run => {
                let nudge = Nudge::new();
                let root = config.workspace.root_in(&config.paths.state_dir);
                let checkouts = Arc::new(Checkouts::with_settings(HostSettings {
                    root,
                    is_root_configured: config.workspace.root.is_some(),
                    limits: config.git_limits,
                    keeper: isolation::find_keeper(),
                }));
                let own = Some(Arc::clone(&checkouts));
                let server =
                    Server::start(config, environment, invocation, nudge.clone(), own).await?;
                let id = identity::coordinator_id_with_server(&config.paths.state_dir)?;
                // Listeners come before the adoption of agents: an address in use is a reason not
                // to start.
                let listeners = Server::bind(config, inherited).await?;
                http_address = listeners.http_address();
                stage.begin_with_agents()?;
                let means = HostFacts::find(config)?;
                let processes = supervisor::adopt(config, &means, nudge.clone()).await?;
                let programs = programs::programs(server.providers.subscribe(), environment);
                server.serve(config, listeners, self.configuration, programs, &parts);
                let control = LocalControlPlane::new(server.service.clone(), id.clone());
                let control = Control::Local(control, checkouts);
                let url = http_address.map(http::mcp_url);
                let reached_at =
                    ReachedAt { socket: Some(config.paths.mcp_socket_path.clone()), url };
                let identity =
                    CoordinatorIdentity { id, reached_at, means, environment: environment.clone() };
                let watch = self.manager.watch();
                let secrets = server.secrets(config);
                let of = SupervisorParts { identity, control, processes, nudge: &nudge };
                let supervisor = Supervisor::start(of, config, &secrets, watch, &parts);
                (Some(server), Some(supervisor))
            }
            Role::Serve => {
                let server =
                    Server::start(config, environment, invocation, Nudge::new(), None).await?;
                let listeners = Server::bind(config, inherited).await?;
                http_address = listeners.http_address();
                // Its agents run on other machines.
                let programs = web::Programs::default();
                server.serve(config, listeners, self.configuration, programs, &parts);
                (Some(server), None)
            }
            Role::Supervise => (None, Some(self.supervise(stage, &parts).await?)),
        };
        tracing::info!(
            role = role.as_str(), version = env!("CARGO_PKG_VERSION"), pid = std::process::id(),
            state_dir = %config.paths.state_dir.display(),
            server = (role == Role::Supervise).then(|| tracing::field::display(&config.paths.server)),
            mcp_socket = (role != Role::Supervise).then(|| tracing::field::display(config.paths.mcp_socket_path.display())),
            http = http_address.map(tracing::field::display), "ready"
        );
        Ok(Daemon { server, supervisor, parts })
    }

    /// Starts a coordinator whose server may be away: it takes over its agents all the same.
    async fn supervise(self, stage: &StartStage, parts: &Parts) -> anyhow::Result<Supervisor> {
        let config = self.config;
        state_dir::create_state_dir(&config.paths.state_dir)?;
        // This check comes before any content of the directory is used.
        let id = identity::place_bound_coordinator_id(&config.paths.state_dir).await?;
        let nudge = Nudge::new();
        stage.begin_with_agents()?;
        let means = HostFacts::find(config)?;
        let processes = supervisor::adopt(config, &means, nudge.clone()).await?;
        let listener = socket::bind(&config.paths.coordinator_socket(), socket::For::Owner)?;
        if config.paths.server.is_exposed() {
            tracing::warn!(
                server = %config.paths.server,
                "tokens and passkeys travel to the server unencrypted; use https, or a tunnel"
            );
        }
        if config.agents.is_empty() {
            tracing::warn!(
                "the configuration has no passkeys (agents.ID.passkey): no agent will be started"
            );
        }
        let remote_config = supervisor::remote_config(config, &id);
        // This comes only now: a coordinator that finds its state directory in use must not replace
        // another one.
        let incarnation = identity::next_incarnation(&config.paths.state_dir);
        let control =
            Arc::new(RemoteControlPlane::new(remote_config, incarnation, Arc::new(SystemWorld)));
        let listening = Arc::clone(&control);
        let woken = nudge.clone();
        let serves = parts.serving.clone();
        parts.spawn(async move {
            tokio::select! {
                () = serves.cancelled() => {}
                () = listening.listen(&woken) => {}
            }
        });
        if matches!(config.paths.server, ServerAddress::Url(_)) && !config.http.agents {
            tracing::warn!(
                server = %config.paths.server,
                "`http.agents` is off, and agents here reach the server over HTTP only: none of them can call it"
            );
        }
        let reached_at = ReachedAt::from(&config.paths.server);
        let identity =
            CoordinatorIdentity { id, reached_at, means, environment: self.environment.clone() };
        let remote = Control::Remote(Arc::clone(&control));
        let watch = self.manager.watch();
        let secrets = secrets(config, None);
        let of = SupervisorParts { identity, control: remote, processes, nudge: &nudge };
        let supervisor = Supervisor::start(of, config, &secrets, watch, parts);
        let router = web::coordinator_router(CoordinatorState {
            look: supervisor.look(&control),
            configuration: self.configuration,
            state_dir: config.paths.state_dir.clone(),
            output_folders: SharedFolders::default(),
            closing: parts.serving.clone(),
        });
        parts.spawn(web::serve_control(listener, router, parts.serving.clone()));
        Ok(supervisor)
    }
}

/// Ends the daemon in a fixed order. First it starts no more agents, and ends the agents while the
/// server still answers them. Then it stops serving and closes the store. A step that misses its
/// deadline is abandoned.
async fn shutdown(daemon: &Daemon, policy: AtShutdown, config: &Config) {
    if let Some(supervisor) = &daemon.supervisor {
        let (mode, deadline) = match policy {
            AtShutdown::Keep => (Mode::LeavingAgents, STOP_MARGIN),
            AtShutdown::Stop => (Mode::StoppingAgents, agents_timeout(config)),
        };
        within(deadline, "the agents", supervisor.end(mode)).await;
        if policy == AtShutdown::Stop {
            // This includes agents that were being started when the others were told.
            supervisor.stop_agents(None).await;
        }
    }
    if let Some(server) = &daemon.server {
        server.service.end_waits();
    }
    within(SERVING_DEADLINE, "the open connections", daemon.parts.end()).await;
    if let Some(supervisor) = &daemon.supervisor {
        within(LEAVING_DEADLINE, "the starts under way", supervisor.leave()).await;
    }
    if let Some(server) = &daemon.server {
        within(STORE_DEADLINE, "the store", server.store.close()).await;
    }
    tracing::info!("stopped");
}

async fn within<F: Future>(deadline: Duration, what: &str, step: F) {
    if tokio::time::timeout(deadline, step).await.is_err() {
        tracing::error!(
            what,
            deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            "a step of the shutdown exceeded its deadline; continuing without it"
        );
    }
}

/// Returns the place of a problem in the file.
pub fn locate(manifest: &Manifest, problem: &EntryProblem) -> manifest::Location {
    manifest.locate(&problem.section(), problem.of.id(), problem.field)
}

/// Checks that git is there and new enough for the clones of tasks.
///
/// # Errors
/// The problem of git.
pub async fn check_git(config: &Config) -> anyhow::Result<()> {
    let root = config.workspace.root_in(&config.paths.state_dir);
    Ok(Checkouts::new(root).keep.check_git().await?)
}

/// Returns what the upgrade of projects from version 0.1.0 copies, and what it left to a person.
pub fn list_upgrades(config: &Config) -> Vec<Upgrade> {
    let settings = HostSettings::new(config.workspace.root_in(&config.paths.state_dir));
    let keeper = isolation::find_keeper();
    Checkouts::with_settings(HostSettings { keeper, ..settings }).keep.list_upgrades()
}

/// Returns whether an error concerns the configuration, including that of the service manager. The
/// exit code depends on it.
pub fn is_about_configuration(error: &anyhow::Error) -> bool {
    error.is::<ConfigError>()
        || error.is::<ManifestProblems>()
        || error.is::<InheritedError>()
        || error.is::<UserProblem>()
        || error.is::<OpenStateDir>()
}
