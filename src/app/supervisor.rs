//! The coordinator's half of a daemon: the table of processes, and the loop that keeps it as the
//! server wants.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::isolation;
use super::parts::Parts;
use super::programs::HOST;
use super::{identity, notify};
use config::{Config, Environment, Secrets};
use domain::plan::Limits;
use domain::retention::Retention;
use domain::stopwatch::{ClockReading, Steady};
use domain::{CoordinatorId, Guidance, ServerAddress, StopReason};
use machine::cgroup;
use runtime::clock;
use runtime::nudge::Nudge;
use runtime::telemetry::{ErrorChain, counters};
use service::CoordinatorStatus;
use service::world::{SystemWorld, World};
use supervisor::coordinator::{
    Coordinator, CoordinatorConfig, HookRunner, HookSettings, HostFiles, LocalControlPlane,
    LoopObserver, Mode, RemoteConfig, RemoteControlPlane,
};
use supervisor::process::{self, ProcessConfig, ProcessTable, TemporaryConfig};
use supervisor::provider::Providers;
use web::CoordinatorLook;
use workspace::{Checkouts, KeepPolicy};

/// The table and the loop.
pub(super) struct Supervisor {
    pub(super) processes: ProcessTable,
    identity: CoordinatorIdentity,
    configured: watch::Sender<CoordinatorConfig>,
    /// The control plane, if the server is remote.
    remote: Option<Arc<RemoteControlPlane>>,
    /// The hooks in clones, if the server is in this process.
    hooks: Option<Arc<HookRunner>>,
    nudge: Nudge,
    mode: watch::Sender<Mode>,
    /// The time for which the output of its agents is kept.
    retention: watch::Sender<Retention>,
    coordinator: Mutex<JoinHandle<()>>,
}

/// The loop's connection to the server.
pub(super) enum Control {
    /// With the clones of this host.
    Local(LocalControlPlane, Arc<Checkouts>),
    Remote(Arc<RemoteControlPlane>),
}

/// The time that the loop has to end its agents, or to report their ends to the server, before this
/// module continues without it.
const LOOPS_TURN: Duration = Duration::from_secs(3);
/// The pause between two searches for outputs that are too old.
const BETWEEN_LOOKS: Duration = Duration::from_mins(30);
/// The time that hooks have to end when the daemon ends.
const HOOKS_GRACE: Duration = Duration::from_millis(500);
/// The folder of the processes of hooks, in the state directory.
const HOOKS: &str = "hooks";
/// The deadline for spawns under way in a hurried end.
const HURRIED_DEADLINE: Duration = Duration::from_secs(1);

/// The properties of a coordinator that a reload of the configuration does not change.
#[derive(Clone)]
pub(super) struct CoordinatorIdentity {
    pub(super) id: CoordinatorId,
    pub(super) reached_at: ReachedAt,
    pub(super) means: HostFacts,
    /// The daemon's environment, from which agents may get variables.
    pub(super) environment: Environment,
}

/// The means of this process and its machine for agents, as found at the start.
#[derive(Clone)]
pub(super) struct HostFacts {
    /// The path of this program, found at the start: a program that is replaced later no longer has
    /// a file of its own.
    program: PathBuf,
    cgroups: Option<cgroup::Delegated>,
    /// The folders that may contain temporary files of launches.
    temporary: Vec<PathBuf>,
}

impl HostFacts {
    pub(super) fn find(config: &Config) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("could not find the file of this program")?;
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let temporary =
            [std::env::temp_dir(), PathBuf::from("/tmp")].into_iter().chain(runtime).collect();
        Ok(Self { program, cgroups: isolation::find_cgroups(config), temporary })
    }
}

/// Takes over the live agents of the state directory. Each later change of a process wakes `nudge`.
pub(super) async fn adopt(
    config: &Config,
    means: &HostFacts,
    nudge: Nudge,
) -> anyhow::Result<ProcessTable> {
    let (processes, adoption) = process::open(process_config(config, means), nudge).await?;
    tracing::info!(
        adopted = adoption.n_adopted,
        ended = adoption.n_ended,
        lost = adoption.n_lost,
        "checked the instances of earlier daemons"
    );
    Ok(processes)
}

/// Returns the part of the configuration that the table needs.
fn process_config(config: &Config, means: &HostFacts) -> ProcessConfig {
    ProcessConfig {
        state_dir: config.paths.state_dir.clone(),
        program: means.program.clone(),
        stop: config.stop.clone(),
        output: config.output.clone(),
        descriptors: isolation::descriptors(),
        cgroups: means.cgroups.clone(),
        temporary: TemporaryConfig {
            bases: means.temporary.clone(),
            is_for_others: config.providers.values().any(|provider| provider.run_as.is_some()),
        },
        limits: isolation::limits(config),
    }
}

/// The addresses at which agents reach the server.
#[derive(Clone)]
pub(super) struct ReachedAt {
    pub(super) socket: Option<PathBuf>,
    pub(super) url: Option<String>,
}

impl From<&ServerAddress> for ReachedAt {
    fn from(address: &ServerAddress) -> Self {
        match address {
            ServerAddress::Socket(path) => Self { socket: Some(path.clone()), url: None },
            ServerAddress::Url(url) => Self { socket: None, url: Some(url.clone()) },
        }
    }
}

impl CoordinatorIdentity {
    /// Returns the part of the configuration that the loop needs.
    fn coordinator_config(&self, config: &Config, secrets: &Secrets) -> CoordinatorConfig {
        CoordinatorConfig {
            id: self.id.clone(),
            polling_interval: config.general.polling_interval,
            limits: limits(config),
            providers: Providers {
                entries: config.providers.clone(),
                guidance: Guidance::new(config.general.language),
                environment: self
                    .environment
                    .variables()
                    .filter(|(name, _)| !notify::is_for_the_daemon(name))
                    .collect(),
                withheld: secrets.withheld(),
                withheld_variables: secrets.variables().clone(),
                redacted: secrets.redacted(),
                mcp_socket: self.reached_at.socket.clone(),
                mcp_url: self.reached_at.url.clone().filter(|_| config.http.agents),
                state_dir: config.paths.state_dir.clone(),
                program: self.means.program.clone(),
                users: isolation::users(config),
                users_files: isolation::users_files(config),
                host: HOST,
            },
            state_dir: config.paths.state_dir.clone(),
        }
    }

    /// Returns the settings for the hooks in clones.
    fn hook_settings(&self, config: &Config, secrets: &Secrets) -> HookSettings {
        let state_dir = config.paths.state_dir.join(HOOKS);
        HookSettings {
            hooks: config.hooks.clone(),
            backoff: config.backoff,
            providers: self.coordinator_config(config, secrets).providers,
            processes: ProcessConfig { state_dir, ..process_config(config, &self.means) },
        }
    }
}

/// Removes outputs that are too old, again and again. Cancel-safe: a removal that has begun is
/// completed.
async fn remove_old_outputs(mut retention: watch::Receiver<Retention>, state_dir: PathBuf) {
    let world: &dyn World = &SystemWorld;
    let began = clock::now();
    let moment = || ClockReading { wall: world.now(), steady: Steady::after(began.elapsed()) };
    let first = moment();
    loop {
        let kept = retention.borrow_and_update().clone();
        let folder = state_dir.clone();
        let now = moment().cautious(first);
        let removed =
            tokio::task::spawn_blocking(move || process::remove_old(&folder, &kept, now)).await;
        match removed {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(n)) => {
                counters::FORGOTTEN.add_many("output", n);
                tracing::info!(n_outputs = n, "removed old output of agents");
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "could not remove old output of agents; will try again");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(BETWEEN_LOOKS) => {}
            changed = retention.changed() => if changed.is_err() { std::future::pending::<()>().await },
        }
    }
}

/// Returns the settings that a coordinator needs for a remote server.
pub(super) fn remote_config(config: &Config, id: &CoordinatorId) -> RemoteConfig {
    RemoteConfig {
        server: config.paths.server.clone(),
        token: identity::token_for_server(config),
        coordinator: id.clone(),
        passkeys: config
            .agents
            .iter()
            .map(|(agent, known)| (agent.clone(), known.passkey.clone()))
            .collect(),
        start_timeout: config.start.timeout,
        backoff: config.backoff,
        limits: limits(config),
        state_dir: config.paths.state_dir.clone(),
        polling_interval: config.general.polling_interval,
        only_seed_steps: false,
    }
}

/// Returns the limits that a coordinator enforces.
pub(super) fn limits(config: &Config) -> Limits {
    Limits {
        start: config.limits,
        run: config.run,
        shared_at_once: config.workspace.shared_at_once,
        clone_wait: config.start.clone_wait,
        ..Limits::of(config.general.max_concurrent, config.run.linger)
    }
}

/// The parts of a supervisor that exist before its loop.
pub(super) struct SupervisorParts<'a> {
    pub(super) identity: CoordinatorIdentity,
    pub(super) control: Control,
    pub(super) processes: ProcessTable,
    /// Wakes the loop.
    pub(super) nudge: &'a Nudge,
}

impl Supervisor {
    /// Starts the loop.
    pub(super) fn start(
        of: SupervisorParts<'_>,
        config: &Config,
        secrets: &Secrets,
        loop_observer: impl LoopObserver,
        parts: &Parts,
    ) -> Self {
        let SupervisorParts { identity, control, processes, nudge } = of;
        let (mode, mode_seen) = watch::channel(Mode::Running);
        let configured = watch::Sender::new(identity.coordinator_config(config, secrets));
        let newest = configured.subscribe();
        let first = newest.borrow().clone();
        let table = processes.clone();
        let wakeups = nudge.listen();
        let mut hooks = None;
        let mut remote = None;
        let coordinator = match control {
            Control::Local(local, checkouts) => {
                let runner = Arc::new(HookRunner::new(identity.hook_settings(config, secrets)));
                hooks = Some(Arc::clone(&runner));
                let files = HostFiles {
                    checkouts,
                    policy: KeepPolicy {
                        ignored_max: config.workspace.ignored_max,
                        rebuildable: config.workspace.rebuildable.clone(),
                    },
                    hooks: runner,
                    takes_snapshots: config.workspace.snapshots,
                };
                let coordinator = Coordinator::new(first, local, table, wakeups, mode_seen)
                    .with_start_faults()
                    .with_files(files)
                    .configured_by(newest)
                    .observed_by(loop_observer);
                parts.spawn_apart(coordinator.run())
            }
            Control::Remote(server) => {
                remote = Some(Arc::clone(&server));
                let coordinator = Coordinator::new(first, server, table, wakeups, mode_seen)
                    .with_start_faults()
                    .configured_by(newest)
                    .observed_by(loop_observer);
                parts.spawn_apart(coordinator.run())
            }
        };
        // Without the table's owner, the loop would continue as half a coordinator.
        let table = processes.clone();
        let serves = parts.serving.clone();
        parts.spawn(async move {
            tokio::select! {
                () = serves.cancelled() => {}
                () = table.closed() => tracing::error!("the process table ended"),
            }
        });
        let retention = watch::Sender::new(config.retention.clone());
        let kept = retention.subscribe();
        let state_dir = config.paths.state_dir.clone();
        let serves = parts.serving.clone();
        parts.spawn(async move {
            serves.run_until_cancelled(remove_old_outputs(kept, state_dir)).await;
        });
        let coordinator = Mutex::new(coordinator);
        Self {
            processes,
            identity,
            configured,
            remote,
            hooks,
            nudge: nudge.clone(),
            mode,
            retention,
            coordinator,
        }
    }

    /// Uses these settings from the next cycle on, which begins at once.
    pub(super) async fn reconfigure(&self, config: &Config, secrets: &Secrets) {
        // If the table is gone, the daemon ends anyway.
        let _ = self.processes.reconfigure(process_config(config, &self.identity.means)).await;
        if let Some(remote) = &self.remote {
            remote.reconfigure(remote_config(config, &self.identity.id));
        }
        if let Some(hooks) = &self.hooks {
            hooks.reconfigure(self.identity.hook_settings(config, secrets)).await;
        }
        self.configured.send_replace(self.identity.coordinator_config(config, secrets));
        self.retention.send_replace(config.retention.clone());
        self.nudge.wake();
    }

    /// Returns a function that reads the coordinator's status if it has no server: its processes as
    /// they are now, the rest from its last cycle.
    pub(super) fn look(
        &self,
        control: &RemoteControlPlane,
    ) -> Arc<dyn Fn() -> CoordinatorLook + Send + Sync> {
        let said = control.status();
        let link = control.link_state();
        let processes = self.processes.clone();
        let id = self.identity.id.clone();
        let configured = self.configured.subscribe();
        let server = control.server().to_string();
        Arc::new(move || {
            let said = said.borrow().clone();
            let world: &dyn World = &SystemWorld;
            let status = CoordinatorStatus {
                coordinator: id.clone(),
                at: world.now(),
                limits: configured.borrow().limits,
                instances: processes.instances().to_vec(),
                deferred: said.as_ref().map(|said| said.deferred.clone()).unwrap_or_default(),
                crowds: said.as_ref().map(|said| said.crowds.clone()).unwrap_or_default(),
                failed_snapshots: Vec::new(),
                machine: said.as_ref().and_then(|said| said.machine.clone()),
                counters: said.map(|said| said.counters).unwrap_or_default(),
            };
            CoordinatorLook {
                status,
                server: server.clone(),
                problem: link.borrow().reason().cloned(),
            }
        })
    }

    /// Returns when its server has reported a later start of this coordinator.
    pub(super) async fn superseded(&self) {
        match &self.remote {
            Some(remote) => remote.superseded().await,
            None => std::future::pending().await,
        }
    }

    /// Starts no more agents. Returns when the agents are left to their shims or have ended,
    /// according to `mode`.
    pub(super) async fn end(&self, mode: Mode) {
        self.mode.send_replace(mode);
        let mut coordinator = self.coordinator.lock().await;
        // A loop that broke has ended, too.
        if mode != Mode::StoppingAgents
            || tokio::time::timeout(LOOPS_TURN, &mut *coordinator).await.is_ok()
        {
            if !coordinator.is_finished() {
                let _ = (&mut *coordinator).await;
            }
            return;
        }
        // The loop waits for a server that hangs, or for slow agents. The agents must be told to
        // end without it.
        self.stop_agents(None).await;
        tokio::select! {
            _ = &mut *coordinator => {}
            () = self.processes.until_idle() => {
                let _ = tokio::time::timeout(LOOPS_TURN, &mut *coordinator).await;
            }
        }
    }

    /// Tells the shims of all live instances to end their agents.
    pub(super) async fn stop_agents(&self, timeout: Option<Duration>) {
        for instance in self.processes.instances().iter().filter(|instance| instance.is_live()) {
            let _ =
                self.processes.request_stop(&instance.launch, StopReason::Shutdown, timeout).await;
        }
    }

    /// Returns when no spawn is under way. No new spawn begins. Hooks are ended.
    pub(super) async fn leave(&self) {
        let hooks = async {
            if let Some(hooks) = &self.hooks {
                hooks.end(HOOKS_GRACE).await;
            }
        };
        tokio::join!(hooks, self.processes.clone().leave());
    }

    /// Tells the shims to end their agents at once. It waits only for spawns under way, up to a
    /// deadline.
    pub(super) async fn hurry(&self) {
        if *self.mode.borrow() == Mode::LeavingAgents {
            return;
        }
        self.mode.send_replace(Mode::StoppingAgentsNow);
        self.stop_agents(Some(Duration::ZERO)).await;
        // The shim of a spawn under way is told when the spawn is done.
        let _ = tokio::time::timeout(HURRIED_DEADLINE, self.leave()).await;
    }
}
