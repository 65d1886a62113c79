//! `/status`: an overview.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::forge::{ForgeBody, ForgeItemBody};
use super::launches::LaunchBody;
use super::store::StoreBody;
use super::totals::TotalsBody;
use domain::account::Parking;
use domain::activity::FailureClass;
use domain::configuration::ConfigurationState;
use domain::counters::Counters;
use domain::machine::Machine;
use domain::plan::Deferred;
use domain::plan::shared::{Crowd, FailedSnapshot};
use domain::start_history::StartReason;
use domain::{
    Account, AgentId, CoordinatorId, Instance, Launch, LaunchId, LaunchState, ProjectId, Purpose,
    SessionId, ShortId, Task, TaskId, Timestamp,
};

/// The state of everything; `status --json` prints it in snake_case (C-32).
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// The time of the last request of a coordinator that does not report its status. Such a
    /// coordinator is not listed.
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
    /// True if the pause file exists. Then no agent is started, and work of forges is paused.
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
    /// The launches that ended last, the newest first.
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

#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
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

/// A launch that is open.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceBody {
    #[serde(flatten)]
    pub launch: LaunchBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// True if the daemon found it alive when it started.
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
    /// True if its coordinator is not there. If it does not come back, only a stop with `force`
    /// ends the launch.
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
    /// True if `until` was guessed, because the CLI named no end of the quota, or an impossible
    /// one.
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

impl ParkedBody {
    /// Returns `None` for an account that works.
    pub fn of(account: Account, parking: Parking) -> Option<Self> {
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
    /// Describes a launch with its process, if a coordinator knows one.
    pub fn of(process: Option<&&Instance>, abandoned: &BTreeSet<LaunchId>, launch: Launch) -> Self {
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

impl From<&Instance> for InstanceBody {
    fn from(instance: &Instance) -> Self {
        Self {
            launch: instance.into(),
            session: None,
            adopted: instance.adopted,
            suspended_since: instance.condition.suspended_since,
            unkillable_since: instance.condition.unkillable_since,
            silent_since: instance.condition.silent_since,
            is_abandoned: false,
        }
    }
}
