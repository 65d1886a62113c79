//! The control plane of a coordinator with a remote server: an MCP client, over a socket of the
//! same machine or over HTTP.
//!
//! A server of this program is asked with `wait_for_work`, whose answer contains everything that a
//! plan needs. Any other server that offers three steps (`health_check`,
//! `list_active_projects_with_agents`, `should_start`; R-004-6) is asked with those ([`seed`]). A
//! server that is away, slow or garbled fails single calls, each within its timeout; nothing here
//! waits for it.

mod answers;
mod link;
mod seed;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::control::{ControlError, ControlPlane, Delivery};
use answers::Claimed;
use client::{CallError, McpClient};
use domain::conversation::Entry;
use domain::counters::Counters;
use domain::plan::{Limits, ProcessReport};
use domain::start_history::{Backoff, StartReason};
use domain::{
    Activity, AgentId, CoordinatorId, Incarnation, Instance, InstanceKey, LaunchId, Secret,
    ServerAddress, StopReason, Timestamp,
};
use link::{Link, LinkError};
use machine::instance_dir;
use machine::instance_dir::record::KeptReport;
use machine::locks::{self, lock};
use runtime::clock;
use runtime::nudge::Nudge;
use runtime::telemetry::ErrorChain;
use service::world::World;
use service::{Claim, CoordinatorStatus, ServerView, Work};

pub use link::Token;
use seed::SeedSteps;

/// The settings of the connection, and of the coordinator itself.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    pub server: ServerAddress,
    /// The token that it presents to the server.
    pub token: Token,
    pub coordinator: CoordinatorId,
    /// The passkeys of the agents that it starts. It does not start other agents.
    pub passkeys: BTreeMap<AgentId, Secret>,
    /// The start timeout for a server that names no deadline.
    pub start_timeout: Duration,
    /// The delays after failures, for a server that keeps no record of failures.
    pub backoff: Backoff,
    /// The limits of this host. The server is not asked about pairs that have no free slot.
    pub limits: Limits,
    /// The directory that contains the output of its agents.
    pub state_dir: PathBuf,
    /// The pause between two questions to a server that announces nothing.
    pub polling_interval: Duration,
    /// Uses the three steps (R-004-6) even with a server that offers more.
    pub only_seed_steps: bool,
}

/// The state of the connection to the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkState {
    /// The error of the last call; `None` while the server answers.
    pub problem: Option<String>,
    /// The reason why the server named no work when it was asked last; `None` if it did. A server
    /// that answers single calls may still refuse or withhold the work.
    pub without_work: Option<String>,
}

impl LinkState {
    /// Returns the reason why nothing can start, if there is one.
    pub fn reason(&self) -> Option<&String> {
        self.without_work.as_ref().or(self.problem.as_ref())
    }
}

/// A control plane that calls a remote server.
pub struct RemoteControlPlane {
    /// Replaced as a whole.
    config: RwLock<Arc<RemoteConfig>>,
    world: Arc<dyn World>,
    link: Link,
    seed: SeedSteps,
    /// The server's clock minus this machine's, in milliseconds, as last seen.
    clock_offset: AtomicI64,
    /// The last status of the coordinator.
    status: watch::Sender<Option<CoordinatorStatus>>,
    announces: Mutex<bool>,
}

const OBSERVE: &str = "ask the server for work";
const CLAIM: &str = "claim a start";
const REPORT: &str = "report a process";
const REPORT_ACTIVITY: &str = "report an activity";
const DELIVER: &str = "deliver a report";
/// The tool for a report that an agent has left, and the refusals of it that pass.
const DELIVERY: &str = "report_completed";
const PASSING: [&str; 4] = ["rate_limited", "server_stopping", "too_many_attempts", "unavailable"];
const WANT_STOP: &str = "tell the server about a stop";
const REPORT_STATUS: &str = "report the status";

const WAIT_FOR_WORK: &str = "wait_for_work";
const SHOULD_START: &str = "should_start";

/// The timeout for an answer that the server can give at once.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest end of an output that is sent with the report of an agent's end, in bytes.
const MAX_TAIL: u64 = 64 * 1024;
/// The time that the server may hold a question for news.
const HOLD: Duration = Duration::from_secs(25);
/// The pause between two questions for news.
const BREATH: Duration = Duration::from_millis(10);
/// The first and the longest pause between two attempts to listen to a server that is away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl RemoteControlPlane {
    /// Makes the control plane. `incarnation` identifies this start of the coordinator.
    pub fn new(config: RemoteConfig, incarnation: Incarnation, world: Arc<dyn World>) -> Self {
        Self {
            link: Link::new(config.server.clone(), config.token.clone(), incarnation),
            seed: SeedSteps::default(),
            clock_offset: AtomicI64::new(0),
            status: watch::Sender::new(None),
            announces: Mutex::new(false),
            config: RwLock::new(Arc::new(config)),
            world,
        }
    }

    fn config(&self) -> Arc<RemoteConfig> {
        Arc::clone(&locks::read(&self.config))
    }

    /// Uses this configuration from the next call on. A connection that was made with another token
    /// is made again. The address of the server does not change.
    pub fn reconfigure(&self, config: RemoteConfig) {
        self.link.set_token(config.token.clone());
        *locks::write(&self.config) = Arc::new(config);
    }

    /// Returns the address of the server.
    pub fn server(&self) -> &ServerAddress {
        self.link.server()
    }

    /// Returns the state of the connection now, and each later change.
    pub fn link_state(&self) -> watch::Receiver<LinkState> {
        self.link.state()
    }

    /// Returns when the server has reported a later start of this coordinator. The later start is
    /// responsible for the same agents, and only one of the two can be. Cancel-safe.
    pub async fn superseded(&self) {
        self.link.superseded().await;
    }

    /// Returns the last status of the coordinator, and each later one.
    pub fn status(&self) -> watch::Receiver<Option<CoordinatorStatus>> {
        self.status.subscribe()
    }

    /// Wakes `nudge` whenever the server has news, for as long as it is polled. Cancel-safe.
    pub async fn listen(&self, nudge: &Nudge) {
        let mut pause = FIRST_PAUSE;
        let mut seen: Option<String> = None;
        loop {
            let asked_at = clock::unpaused();
            match self.wait_for_news(seen.as_deref()).await {
                Ok(Some(news)) => {
                    pause = FIRST_PAUSE;
                    if seen.as_deref() != Some(news.as_str()) {
                        nudge.wake();
                        // A busy server has news without end; several close together count as one.
                        tokio::time::sleep(BREATH).await;
                    } else if asked_at.elapsed() < HOLD / 2 {
                        // The server does not hold the question.
                        tokio::time::sleep(LONGEST_PAUSE).await;
                    }
                    seen = Some(news);
                }
                // The server announces nothing, so the loop polls. A server that announces may
                // replace it later.
                Ok(None) => tokio::select! {
                    () = tokio::time::sleep(self.config().polling_interval) => {}
                    () = self.seed.has_more() => nudge.wake(),
                },
                Err(error) => {
                    tracing::debug!(error = %ErrorChain(&error), "could not listen to the server");
                    seen = None;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits for news since `seen` and returns the server's mark; `None` if the server does not
    /// offer this.
    async fn wait_for_news(&self, seen: Option<&str>) -> Result<Option<String>, LinkError> {
        let client = self.link.client().await?;
        let announces = self.asks_for_work(&client);
        *lock(&self.announces) = announces;
        if !announces {
            return Ok(None);
        }
        let mut arguments = json!({ "coordinator_id": self.config().coordinator, "timeout_seconds": HOLD.as_secs() });
        if let Some(seen) = seen {
            arguments["seen"] = seen.into();
        }
        let work: Work = self.link.call(&client, WAIT_FOR_WORK, arguments, HOLD + TIMEOUT).await?;
        Ok(Some(work.seen))
    }

    fn asks_for_work(&self, client: &McpClient) -> bool {
        !self.config().only_seed_steps && client.offers(WAIT_FOR_WORK)
    }

    async fn ask_for_work(&self, client: &Arc<McpClient>) -> Result<ServerView, LinkError> {
        let arguments = json!({ "coordinator_id": self.config().coordinator });
        let work: Work = self.link.call(client, WAIT_FOR_WORK, arguments, TIMEOUT).await?;
        let mut view = work.view;
        self.set_clock(view.at);
        let config = self.config();
        for candidate in &mut view.startable {
            if !config.passkeys.contains_key(&candidate.key.agent)
                && candidate.reason == StartReason::Ready
            {
                candidate.reason = StartReason::NoPasskey;
            }
        }
        Ok(view)
    }

    /// Calls `should_start`. Returns `None` if the answer is no.
    async fn ask_for_start(
        &self,
        client: &Arc<McpClient>,
        key: &InstanceKey,
    ) -> Result<Option<Claimed>, LinkError> {
        let arguments = json!({
            "agent_id": key.agent, "project_id": key.project, "purpose": key.purpose,
            "coordinator_id": self.config().coordinator
        });
        let answer: answers::ShouldStart =
            self.link.call(client, SHOULD_START, arguments, TIMEOUT).await?;
        Ok(answer.claimed())
    }

    /// Returns the claim that an answer of the server means; `None` if the agent would have neither
    /// a ticket nor a passkey. A server that names no deadline gets the configured time.
    fn granted(&self, key: &InstanceKey, claimed: Claimed) -> Option<Claim> {
        let Claimed { ai_type, launch, deadline, ticket, attempt } = claimed;
        let ticket = ticket.or_else(|| self.config().passkeys.get(&key.agent).cloned())?;
        let deadline = deadline.unwrap_or_else(|| self.now() + self.config().start_timeout);
        let launch = launch.unwrap_or_else(|| self.world.new_id(LaunchId::PREFIX));
        self.seed.note_claim(&launch, key, &ai_type);
        Some(Claim {
            launch,
            ai_type,
            deadline,
            ticket: Some(ticket),
            attempt,
            // A coordinator elsewhere has neither clones nor conversations.
            clone: None,
            check: None,
            conversation: None,
        })
    }

    /// Reports to the server, if it offers the tool. A refusal that would stay the same counts as
    /// done, for example because the server no longer knows the launch.
    async fn tell(
        &self,
        tool: &'static str,
        arguments: serde_json::Value,
    ) -> Result<(), LinkError> {
        let client = self.link.client().await?;
        if !client.offers(tool) {
            return Ok(());
        }
        match self.link.call::<serde_json::Value>(&client, tool, arguments, TIMEOUT).await {
            // The later start reports it from now on.
            Ok(_) | Err(LinkError::Superseded) => Ok(()),
            Err(LinkError::Call(CallError::Refused { code, message, .. })) if is_settled(&code) => {
                tracing::warn!(
                    tool,
                    code,
                    message,
                    "the server refused a report about a launch; it is not repeated"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the end of an output for the server to show. The output itself stays on this
    /// machine.
    async fn output_tail(&self, launch: &LaunchId) -> Option<String> {
        let state_dir = self.config().state_dir.clone();
        let launch = launch.clone();
        let read = move || {
            instance_dir::output_tail(&instance_dir::find(&state_dir, &launch)?, MAX_TAIL).ok()
        };
        tokio::task::spawn_blocking(read).await.ok()?
    }

    fn set_clock(&self, server: Timestamp) {
        let offset = server.as_millis().saturating_sub(self.world.now().as_millis());
        self.clock_offset.store(offset, Ordering::Relaxed);
    }

    fn on_server(&self, here: Timestamp) -> Timestamp {
        Timestamp::from_millis(
            here.as_millis().saturating_add(self.clock_offset.load(Ordering::Relaxed)),
        )
    }

    /// Returns the server's time, as far as it is known.
    fn now(&self) -> Timestamp {
        self.on_server(self.world.now())
    }
}

/// Returns whether a refusal stays the same for every repetition, so that there is nothing left to
/// report.
fn is_settled(code: &str) -> bool {
    matches!(code, "launch_not_found" | "not_your_launch" | "launch_ended" | "ambiguous_launch")
}

fn failed(action: &'static str) -> impl FnOnce(LinkError) -> ControlError {
    move |error| ControlError { action, source: error.into() }
}

impl ControlPlane for Arc<RemoteControlPlane> {
    fn now(&self) -> Timestamp {
        RemoteControlPlane::now(self)
    }

    fn on_server(&self, here: Timestamp) -> Timestamp {
        RemoteControlPlane::on_server(self, here)
    }

    fn announces(&self) -> bool {
        *lock(&self.announces)
    }

    async fn observe(&self, instances: &[Instance]) -> Result<ServerView, ControlError> {
        let observed = async {
            let client = self.link.client().await?;
            if self.asks_for_work(&client) {
                self.ask_for_work(&client).await
            } else {
                self.observe_by_seed_steps(&client, instances).await
            }
        };
        let observed = observed.await;
        self.link.note_observed(observed.as_ref().err());
        observed.map_err(failed(OBSERVE))
    }

    async fn claim(&self, key: &InstanceKey, _: &Entry) -> Result<Option<Claim>, ControlError> {
        let client = self.link.client().await.map_err(failed(CLAIM))?;
        let claimed = match self.seed.take_claim(key) {
            Some(claimed) => Some(claimed),
            None => self.ask_for_start(&client, key).await.map_err(failed(CLAIM))?,
        };
        Ok(claimed.and_then(|claimed| self.granted(key, claimed)))
    }

    async fn report(
        &self,
        launch: &LaunchId,
        reports: &[ProcessReport],
    ) -> Result<(), ControlError> {
        let client = self.link.client().await.map_err(failed(REPORT))?;
        for report in reports {
            if !self.asks_for_work(&client) {
                self.report_by_seed_steps(&client, launch, report).await.map_err(failed(REPORT))?;
                continue;
            }
            let (tool, mut arguments) = answers::report(&self.config().coordinator, launch, report);
            if let ProcessReport::Ended { .. } = report
                && let Some(tail) = self.output_tail(launch).await
            {
                arguments["output_tail"] = tail.into();
            }
            self.tell(tool, arguments).await.map_err(failed(REPORT))?;
        }
        Ok(())
    }

    async fn deliver_report(
        &self,
        _: &LaunchId,
        report: &KeptReport,
    ) -> Result<Delivery, ControlError> {
        let client = self.link.client().await.map_err(failed(DELIVER))?;
        let arguments = json!(report);
        let told = self.link.call::<serde_json::Value>(&client, DELIVERY, arguments, TIMEOUT).await;
        match told {
            Err(LinkError::Call(CallError::Refused { code, message, .. }))
                if !PASSING.contains(&code.as_str()) =>
            {
                Ok(Delivery::Refused { code, message })
            }
            told => told.map(|_| Delivery::Taken).map_err(failed(DELIVER)),
        }
    }

    async fn report_activity(
        &self,
        launch: &LaunchId,
        activity: &Activity,
    ) -> Result<(), ControlError> {
        let arguments = answers::activity(&self.config().coordinator, launch, activity);
        self.tell("report_activity", arguments).await.map_err(failed(REPORT_ACTIVITY))
    }

    async fn want_stop(&self, launch: &LaunchId, reason: StopReason) -> Result<(), ControlError> {
        let arguments = json!({
            "coordinator_id": self.config().coordinator, "launch_id": launch, "reason": reason
        });
        self.tell("report_process_stopping", arguments).await.map_err(failed(WANT_STOP))
    }

    async fn report_status(&self, status: CoordinatorStatus) -> Result<(), ControlError> {
        // The fields are named one by one, so that the compiler points here if a field is added.
        let Counters { cycles, starts, adoptions, found_by_poll_only, leaked } = status.counters;
        let arguments = json!({
            "coordinator_id": status.coordinator,
            "max_concurrent": status.limits.max_concurrent,
            "instances": status.instances,
            "deferred": status.deferred,
            "machine": status.machine,
            "counters": {
                "cycles": cycles, "starts": starts, "adoptions": adoptions, "found_by_poll_only": found_by_poll_only,
                "leaked": leaked,
            },
        });
        self.status.send_replace(Some(status));
        self.tell("report_status", arguments).await.map_err(failed(REPORT_STATUS))
    }
}
