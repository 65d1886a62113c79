//! The coordinator's half of a daemon: the table of processes and the loop that keeps it as the server wants it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::parts::Parts;
use crate::config::{self, Config, Environment};
use crate::coordinator::{ControlPlane, Coordinator, CoordinatorConfig, Mode, RemoteControlPlane};
use crate::domain::plan::Limits;
use crate::domain::{CoordinatorId, Guidance, ServerAddress, StopReason};
use crate::nudge::Nudge;
use crate::process::{self, ProcessConfig, ProcessTable};
use crate::provider::Providers;
use crate::rest::CoordinatorLook;
use crate::service::CoordinatorStatus;
use crate::service::world::{SystemWorld, World};

/// The table and the loop.
pub(super) struct Supervisor {
    pub(super) processes: ProcessTable,
    mode: watch::Sender<Mode>,
    coordinator: Mutex<JoinHandle<()>>,
}

/// For the loop to end its agents, or to tell the server of their ends, before that is done without it.
const LOOPS_TURN: Duration = Duration::from_secs(3);
/// For spawns under way when nobody waits any longer.
const HURRIED_DEADLINE: Duration = Duration::from_secs(1);

/// Takes over what lives in the state directory. Each change of a process from then on wakes `nudge`.
pub(super) async fn adopt(config: &Config, nudge: Nudge) -> anyhow::Result<ProcessTable> {
    let process_config = ProcessConfig {
        state_dir: config.state_dir.clone(),
        shim_program: program()?,
        stop_timeout: config.stop.timeout,
        leak_grace: config.stop.leak_grace,
        max_file: config.output.max_file,
        files: u32::try_from(config.output.files).unwrap_or(u32::MAX),
    };
    let (processes, adoption) = process::open(process_config, nudge).await?;
    tracing::info!(
        adopted = adoption.n_adopted,
        ended = adoption.n_ended,
        lost = adoption.n_lost,
        "took stock of the instances"
    );
    Ok(processes)
}

fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("could not find this program's own file")
}

/// Where agents reach the server.
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

/// What the loop needs of the configuration.
pub(super) fn coordinator_config(
    config: &Config,
    environment: &Environment,
    id: CoordinatorId,
    server: ReachedAt,
) -> anyhow::Result<CoordinatorConfig> {
    Ok(CoordinatorConfig {
        id,
        polling_interval: config.polling_interval,
        limits: limits(config),
        providers: Providers {
            entries: config.providers.clone(),
            guidance: Guidance::new(config.language),
            environment: environment.variables().collect(),
            mcp_socket: server.socket,
            mcp_url: server.url,
            state_dir: config.state_dir.clone(),
            program: program()?,
        },
        state_dir: config.state_dir.clone(),
    })
}

/// The limits that a coordinator keeps.
pub(super) fn limits(config: &Config) -> Limits {
    let config::Limits { per_project, per_agent, per_provider, chat_reserve, min_free_disk, min_free_memory } =
        config.limits;
    let config::Run { linger, max_runtime, silence_timeout } = config.run;
    Limits {
        per_project,
        per_agent,
        per_provider,
        chat_reserve,
        max_runtime,
        silence_timeout,
        min_free_disk,
        min_free_memory,
        ..Limits::of(config.max_concurrent, linger)
    }
}

/// How a coordinator is looked at: its processes as they are now, the rest as of its last cycle.
pub(super) fn look(
    control: &RemoteControlPlane,
    processes: &ProcessTable,
    config: &Config,
    id: &CoordinatorId,
) -> Arc<dyn Fn() -> CoordinatorLook + Send + Sync> {
    let (said, link, processes) = (control.status(), control.link_state(), processes.clone());
    let (id, server, max_concurrent) = (id.clone(), config.server.to_string(), config.max_concurrent);
    Arc::new(move || {
        let said = said.borrow().clone();
        let world: &dyn World = &SystemWorld;
        let status = CoordinatorStatus {
            coordinator: id.clone(),
            at: world.now(),
            max_concurrent,
            instances: processes.instances().to_vec(),
            deferred: said.as_ref().map(|said| said.deferred.clone()).unwrap_or_default(),
            counters: said.map(|said| said.counters).unwrap_or_default(),
        };
        CoordinatorLook { status, server: server.clone(), problem: link.borrow().problem.clone() }
    })
}

impl Supervisor {
    /// Starts the loop. It is woken by `nudge`.
    pub(super) fn start(
        config: CoordinatorConfig,
        control: impl ControlPlane,
        processes: ProcessTable,
        nudge: &Nudge,
        parts: &Parts,
    ) -> Self {
        let (mode, mode_seen) = watch::channel(Mode::Running);
        let coordinator = Coordinator::new(config, control, processes.clone(), nudge.listen(), mode_seen);
        let coordinator = parts.spawn_apart(coordinator.run());
        // Without its owner the loop would run on as half a coordinator.
        let (table, serves) = (processes.clone(), parts.serving.clone());
        parts.spawn(async move {
            tokio::select! {
                () = serves.cancelled() => {}
                () = table.closed() => tracing::error!("the process table ended"),
            }
        });
        Self { processes, mode, coordinator: Mutex::new(coordinator) }
    }

    /// Starts nothing more, and returns when the agents are left to their keepers or have ended, as `mode` says.
    pub(super) async fn end(&self, mode: Mode) {
        self.mode.send_replace(mode);
        let mut coordinator = self.coordinator.lock().await;
        // A loop that broke has ended, too.
        if mode != Mode::StoppingAgents || tokio::time::timeout(LOOPS_TURN, &mut *coordinator).await.is_ok() {
            if !coordinator.is_finished() {
                let _ = (&mut *coordinator).await;
            }
            return;
        }
        // It waits for a server that hangs, or for patient agents: that these are told to end doesn't depend on it.
        self.stop_agents(None).await;
        tokio::select! {
            _ = &mut *coordinator => {}
            () = self.processes.until_idle() => {
                let _ = tokio::time::timeout(LOOPS_TURN, &mut *coordinator).await;
            }
        }
    }

    /// Tells the keepers of all that live to end their agents.
    pub(super) async fn stop_agents(&self, timeout: Option<Duration>) {
        for instance in self.processes.instances().iter().filter(|instance| instance.is_live()) {
            let _ = self.processes.request_stop(&instance.launch, StopReason::Shutdown, timeout).await;
        }
    }

    /// Returns when no spawn is under way; none begins any more.
    pub(super) async fn leave(&self) {
        self.processes.clone().leave().await;
    }

    /// Tells the keepers to end their agents without patience, and waits for nothing else.
    pub(super) async fn hurry(&self) {
        if *self.mode.borrow() == Mode::LeavingAgents {
            return;
        }
        self.mode.send_replace(Mode::StoppingAgentsNow);
        self.stop_agents(Some(Duration::ZERO)).await;
        // A spawn under way is told when it is done.
        let _ = tokio::time::timeout(HURRIED_DEADLINE, self.leave()).await;
    }
}
