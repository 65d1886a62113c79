//! `/status`: an overview; `/health/live` and `/health/ready`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::openapi::{Api, about};
use crate::routes::forge::{ForgeBody, ForgeItemBody};
use crate::routes::launches::{LaunchBody, add_exit_hints};
use crate::routes::store::StoreBody;
use crate::routes::totals::TotalsBody;
use crate::{MissingProgram, Problem, Programs, RestState};
use domain::account::Parking;
use domain::activity::FailureClass;
use domain::configuration::ConfigurationState;
use domain::counters::Counters;
use domain::machine::Machine;
use domain::plan::Deferred;
use domain::plan::shared::{Crowd, FailedSnapshot};
use domain::start_history::StartReason;
use domain::{Account, Agent, Launch, LaunchState, ShortId, StartHistory, Task, TaskId};
use domain::{
    AgentId, CoordinatorId, Instance, InstanceKey, LaunchId, ProjectId, Purpose, SessionId,
    Timestamp,
};
use service::{CoordinatorStatus, CoordinatorView, StatusView};

/// The state of everything; `status --json` prints it in snake_case (C-32).
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusBody {
    pub version: String,
    pub health: String,
    pub at: Timestamp,
    /// True while starts are paused.
    pub paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Absent if the server does not listen for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpBody>,
    /// The relation of the configuration file to the configuration in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationState>,
    /// The database of the server. If it does not answer, launches are shown as their coordinators
    /// see them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreBody>,
    /// The server of a coordinator that runs without one in its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerBody>,
    pub limits: LimitsBody,
    /// The coordinators that start agents for this server.
    #[serde(default)]
    pub coordinators: Vec<CoordinatorBody>,
    /// When a coordinator that does not report its status, and so is not listed, last asked for
    /// anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted_coordinator_at: Option<Timestamp>,
    pub instances: Vec<InstanceBody>,
    pub deferred: Vec<DeferredBody>,
    /// Providers whose accounts failed, and wait.
    #[serde(default)]
    pub parked: Vec<ParkedBody>,
    /// Providers of agents whose programs are not installed on the only host that starts agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_installed: Vec<NotInstalledBody>,
    /// The pause file exists: no agent is started, and work of forges is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause_file: bool,
    /// The path of the pause file, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_file_path: Option<String>,
    /// The git work trees in which several agents work at once without clones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crowds: Vec<Crowd>,
    /// The projects whose last snapshot of their directory failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_snapshots: Vec<FailedSnapshot>,
    /// The forges that are watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forges: Vec<ForgeBody>,
    /// Their items for which there is something to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forge_items: Vec<ForgeItemBody>,
    /// Tasks that are to begin after a task that was cancelled. A person has to decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<StuckBody>,
    /// The projects with results of finished tasks about which a person has to decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_merge: Vec<ToMergeBody>,
    /// The last ones, the newest first.
    pub ended: Vec<LaunchBody>,
    pub counters: Counters,
    /// The totals of the server. A coordinator alone has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TotalsBody>,
}

/// The HTTP listener of the server.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HttpBody {
    pub address: SocketAddr,
}

/// The server as its coordinator sees it.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerBody {
    pub address: String,
    /// The error of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitsBody {
    pub max_concurrent: usize,
    pub running: usize,
}

/// A coordinator as its server sees it.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorBody {
    pub coordinator_id: CoordinatorId,
    /// The time of its last request.
    pub heard_at: Timestamp,
    /// True if that was recently.
    pub is_there: bool,
    pub max_concurrent: usize,
    pub running: usize,
    /// The machine that it is on, as of its last report. Small changes are not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

impl From<&CoordinatorView> for CoordinatorBody {
    fn from(view: &CoordinatorView) -> Self {
        let CoordinatorStatus { coordinator, limits, instances, machine, .. } = &view.status;
        Self {
            coordinator_id: coordinator.clone(),
            heard_at: view.heard_at,
            is_there: view.is_there,
            max_concurrent: limits.max_concurrent,
            running: instances.iter().filter(|instance| instance.is_live()).count(),
            machine: machine.clone(),
        }
    }
}

/// A launch that is open.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceBody {
    #[serde(flatten)]
    pub launch: LaunchBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Found alive when the daemon started.
    pub adopted: bool,
    /// The time at which a signal suspended the agent; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<Timestamp>,
    /// The time since which a process of it is known to survive SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkillable_since: Option<Timestamp>,
    /// The time of its last sign of life, if it has been silent for half of `run.silence_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// Its coordinator is not there. If it does not come back, only a stop with `force` ends the
    /// launch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_abandoned: bool,
}

/// A start that waits, or a pair that is held.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeferredBody {
    pub agent_id: AgentId,
    pub project_id: ProjectId,
    pub purpose: Purpose,
    pub reason: StartReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The figures behind the reason, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A task that is to begin after a task that was cancelled.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StuckBody {
    pub task_id: TaskId,
    pub short_id: ShortId,
    pub project_id: ProjectId,
    /// The cancelled task.
    pub after: TaskId,
    pub after_short_id: ShortId,
}

/// The results of finished tasks of a project that are not merged, and about which no person has
/// decided otherwise.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToMergeBody {
    pub project_id: ProjectId,
    pub n_results: u64,
}

impl From<(Task, Task)> for StuckBody {
    fn from((task, after): (Task, Task)) -> Self {
        Self {
            task_id: task.id,
            short_id: task.short_id,
            project_id: task.project,
            after: after.id,
            after_short_id: after.short_id,
        }
    }
}

/// A provider whose account is parked: none of its agents is started.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParkedBody {
    /// The `ai_type` of its agents.
    pub provider: String,
    /// `auth` or `quota`.
    pub reason: FailureClass,
    pub since: Timestamp,
    pub until: Timestamp,
    /// The number of failures in a row.
    pub n_failures: u32,
    /// The launch that tries whether it works again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_by: Option<LaunchId>,
    /// `until` was guessed, because the CLI named no end of the quota, or one that cannot be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guessed: bool,
}

/// A provider whose program is not installed: none of its agents can start.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotInstalledBody {
    /// The `ai_type` of its agents.
    pub provider: String,
    /// The program, as it was looked for.
    pub program: String,
    /// The advice for a person who installs it.
    pub remedy: String,
}

impl NotInstalledBody {
    /// Returns the missing programs of the providers of `agents`. There are none if another
    /// coordinator may start these agents on a host of its own.
    pub(crate) async fn all(
        programs: &Programs,
        agents: &[Agent],
        coordinators: &[CoordinatorBody],
    ) -> Vec<Self> {
        if coordinators.iter().filter(|each| each.is_there).count() > 1 {
            return Vec::new();
        }
        let shown = agents.iter().filter(|agent| !agent.is_archived());
        let providers: BTreeSet<String> = shown.map(|agent| agent.ai_type.clone()).collect();
        let missing = programs.find_missing(providers).await.into_iter();
        let body =
            |(provider, MissingProgram { program, remedy })| Self { provider, program, remedy };
        missing.map(body).collect()
    }
}

impl ParkedBody {
    /// Returns `None` for an account that works.
    pub(super) fn of(account: Account, parking: Parking) -> Option<Self> {
        let parked = account.parked?;
        Some(Self {
            guessed: parked.is_guessed(parking),
            provider: account.ai_type,
            reason: parked.class,
            since: parked.since,
            until: parked.until,
            n_failures: parked.n_failures,
            tried_by: parked.probe.map(|probe| probe.launch),
        })
    }
}

impl From<StatusView> for StatusBody {
    fn from(view: StatusView) -> Self {
        let processes: BTreeMap<LaunchId, &Instance> = view
            .coordinators
            .iter()
            .flat_map(|coordinator| &coordinator.status.instances)
            .map(|instance| (instance.launch.clone(), instance))
            .collect();
        let deferred: Vec<DeferredBody> =
            all_deferred(&view).into_iter().map(DeferredBody::from).collect();
        let held = view.held.iter().map(|record| DeferredBody {
            agent_id: record.key.agent.clone(),
            project_id: record.key.project.clone(),
            purpose: record.key.purpose,
            reason: StartReason::Held,
            until: None,
            detail: None,
        });
        // A person holds the pair for both purposes. One line is enough, and none is needed if
        // waiting work shows it already.
        let held: Vec<DeferredBody> = held
            .filter(|held| held.purpose == Purpose::Task || !is_held_for_tasks(&view.held, held))
            .filter(|held| !deferred.iter().any(|other| is_same_key(held, other)))
            .collect();
        let counters =
            view.coordinators.iter().fold(Counters::default(), |sum, coordinator| Counters {
                cycles: sum.cycles.saturating_add(coordinator.status.counters.cycles),
                starts: sum.starts.saturating_add(coordinator.status.counters.starts),
                adoptions: sum.adoptions.saturating_add(coordinator.status.counters.adoptions),
                leaked: sum.leaked.saturating_add(coordinator.status.counters.leaked),
                found_by_poll_only: sum
                    .found_by_poll_only
                    .saturating_add(coordinator.status.counters.found_by_poll_only),
            });
        let there = || view.coordinators.iter().filter(|coordinator| coordinator.is_there);
        let running = if view.has_rows {
            view.open.iter().filter(|launch| launch.is_kept()).count()
        } else {
            processes.values().filter(|instance| instance.is_live()).count()
        };
        let limits = LimitsBody {
            max_concurrent: there()
                .fold(0, |sum: usize, each| sum.saturating_add(each.status.limits.max_concurrent)),
            running,
        };
        let of_processes = processes.values().filter(|_| !view.has_rows);
        let of_processes = of_processes.map(|instance| InstanceBody::from(*instance));
        let mut instances: Vec<InstanceBody> = view
            .open
            .into_iter()
            .map(|launch| InstanceBody::of(processes.get(&launch.id), &view.abandoned, launch))
            .chain(of_processes)
            .collect();
        let mut ended: Vec<LaunchBody> = view.ended.into_iter().map(LaunchBody::from).collect();
        let running_launches = instances.iter_mut().map(|instance| &mut instance.launch);
        for launch in running_launches.chain(&mut ended) {
            launch.add_short_id(&view.short_ids);
        }
        let crowds = there().flat_map(|each| each.status.crowds.clone()).collect();
        let failed_snapshots =
            there().flat_map(|each| each.status.failed_snapshots.clone()).collect();
        let mut forge_items: Vec<ForgeItemBody> =
            view.forge_items.into_iter().map(ForgeItemBody::from).collect();
        for item in &mut forge_items {
            item.add_short_id(&view.short_ids);
        }
        let parked = view.parked.into_iter();
        let parked = parked.filter_map(|account| ParkedBody::of(account, view.parking));
        let to_merge = view.to_merge.into_iter();
        let to_merge =
            to_merge.map(|(project_id, n_results)| ToMergeBody { project_id, n_results });
        Self {
            crowds,
            failed_snapshots,
            to_merge: to_merge.collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            health: if view.has_rows { "ok" } else { "store_unavailable" }.to_owned(),
            at: view.at,
            paused: view.paused_since.is_some(),
            paused_since: view.paused_since,
            http: None,
            configuration: None,
            store: Some(StoreBody::of(&view.store, view.at)),
            server: None,
            limits,
            coordinators: view.coordinators.iter().map(CoordinatorBody::from).collect(),
            unlisted_coordinator_at: view.unlisted_coordinator_at,
            instances,
            deferred: deferred.into_iter().chain(held).collect(),
            parked: parked.collect(),
            not_installed: Vec::new(),
            pause_file: view.pause_file.is_some(),
            pause_file_path: view.pause_file,
            forges: view.forges.into_iter().map(ForgeBody::from).collect(),
            forge_items,
            stuck: view.stuck.into_iter().map(StuckBody::from).collect(),
            ended,
            counters,
            totals: Some(TotalsBody::from(&view.totals)),
        }
    }
}

/// Returns the waiting starts, each once, although several coordinators may report one. The report
/// of a coordinator without a passkey for the agent has the lowest rank.
fn all_deferred(view: &StatusView) -> Vec<&Deferred> {
    let mut all: Vec<&Deferred> = view
        .coordinators
        .iter()
        .filter(|each| each.is_there)
        .flat_map(|each| &each.status.deferred)
        .collect();
    all.sort_by_key(|deferred| deferred.reason == StartReason::NoPasskey);
    let mut seen: BTreeSet<&InstanceKey> = view.open.iter().map(|launch| &launch.key).collect();
    all.retain(|deferred| seen.insert(&deferred.key));
    all
}

impl From<&Deferred> for DeferredBody {
    fn from(deferred: &Deferred) -> Self {
        Self {
            agent_id: deferred.key.agent.clone(),
            project_id: deferred.key.project.clone(),
            purpose: deferred.key.purpose,
            reason: deferred.reason,
            until: deferred.until,
            detail: deferred.detail.clone(),
        }
    }
}

impl InstanceBody {
    fn of(process: Option<&&Instance>, abandoned: &BTreeSet<LaunchId>, launch: Launch) -> Self {
        let session = match &launch.state {
            LaunchState::Running { session } => Some(session.clone()),
            _ => None,
        };
        let condition = process.map(|process| process.condition).unwrap_or_default();
        Self {
            session,
            adopted: process.is_some_and(|process| process.adopted),
            suspended_since: condition.suspended_since,
            unkillable_since: condition.unkillable_since,
            silent_since: condition.silent_since,
            is_abandoned: abandoned.contains(&launch.id),
            launch: launch.into(),
        }
    }
}

fn is_held_for_tasks(held: &[StartHistory], other: &DeferredBody) -> bool {
    held.iter().any(|record| {
        record.key.purpose == Purpose::Task
            && record.key.agent == other.agent_id
            && record.key.project == other.project_id
    })
}

fn is_same_key(a: &DeferredBody, b: &DeferredBody) -> bool {
    a.agent_id == b.agent_id && a.project_id == b.project_id && a.purpose == b.purpose
}

pub(super) fn routes() -> Api {
    let text = "Everything at a glance";
    Api::new().get("/status", status, about(text).gives::<StatusBody>()).get(
        "/coordinator",
        status,
        about(text).gives::<StatusBody>(),
    )
}

pub(super) fn health() -> Api {
    Api::new()
        .get(
            "/health/live",
            live,
            about("Whether the server lives").gives_text("text/plain").for_everybody(),
        )
        .get(
            "/health/ready",
            ready,
            about("The readiness of the server").gives_text("text/plain").for_everybody(),
        )
}

async fn status(State(state): State<RestState>) -> Result<Json<StatusBody>, Problem> {
    let mut body = StatusBody::from(state.service.status().await?);
    add_exit_hints(&state, &mut body.ended).await;
    let http = state.http.map(|address| HttpBody { address });
    // Without rows, the agents are not known.
    let agents = match body.health.as_str() {
        "ok" => state.service.catalog.agents().await.unwrap_or_default(),
        _ => Vec::new(),
    };
    let not_installed = NotInstalledBody::all(&state.programs, &agents, &body.coordinators).await;
    Ok(Json(StatusBody {
        http,
        not_installed,
        configuration: Some(state.configuration.configuration_state()),
        ..body
    }))
}

async fn live() -> &'static str {
    "ok\n"
}

/// Checks whether the server would answer calls: its store answers, and it is not stopping.
async fn ready(State(state): State<RestState>) -> Result<&'static str, Problem> {
    if state.closing.is_cancelled() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the server is stopping",
        ));
    }
    state.service.check_store().await?;
    Ok("ok\n")
}
