//! `/launches`: past and running launches, and their output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use super::activity::ActivityBody;
use domain::instance::ExitHint;
use domain::{
    AgentId, Instance, Launch, LaunchId, Phase, ProjectId, Purpose, ShortId, TaskId, Timestamp,
};

/// A launch as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchBody {
    pub launch_id: LaunchId,
    pub agent_id: AgentId,
    pub project_id: ProjectId,
    pub purpose: Purpose,
    /// The `ai_type` of the agent. Only the server knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ai_type: String,
    /// `starting`, `running`, `stopping`, `ending`, `ended`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The short id of the task, such as `SHOP-12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_short_id: Option<ShortId>,
    /// The task that ordered its start; absent after the agent took a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    pub claimed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The detail of the outcome, or the reason why it is being stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Facts about the exit that the exit status does not contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_hints: Vec<ExitHint>,
    #[serde(flatten)]
    pub activity: ActivityBody,
}

/// The filter of the list of launches, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaunchQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// The greatest number of entries. The default is 100, and the maximum is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<LaunchId>,
}

/// The options for reading output.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutputQuery {
    /// Goes on until the launch has ended.
    #[serde(default)]
    pub follow: bool,
}

impl LaunchBody {
    /// Adds the short id of its task, if `short_ids` has it.
    pub fn add_short_id(&mut self, short_ids: &BTreeMap<TaskId, ShortId>) {
        self.task_short_id = self.task_id.as_ref().and_then(|task| short_ids.get(task).cloned());
    }
}

impl From<Launch> for LaunchBody {
    fn from(launch: Launch) -> Self {
        let (ended_at, outcome, reason) = match launch.as_ended() {
            Some((outcome, at)) => (Some(at), Some(outcome.as_str().to_owned()), outcome.reason()),
            None => (None, None, launch.stop_reason.map(|reason| reason.to_string())),
        };
        Self {
            state: launch.state.as_str().to_owned(),
            launch_id: launch.id,
            agent_id: launch.key.agent,
            project_id: launch.key.project,
            purpose: launch.key.purpose,
            ai_type: launch.ai_type,
            claimed_task_id: launch.claimed_task.filter(|_| launch.task.is_none()),
            task_id: launch.task,
            task_short_id: None,
            pid: launch.pid,
            claimed_at: launch.claimed_at,
            started_at: launch.started_at,
            authenticated_at: launch.authenticated_at,
            ended_at,
            outcome,
            reason,
            exit_code: launch.exit.exit_code,
            signal: launch.exit.signal,
            exit_hints: Vec::new(),
            activity: launch.activity.into(),
        }
    }
}

/// The header that marks an incomplete output.
pub const OUTPUT_IS: &str = "output-is";

/// The value of [`OUTPUT_IS`] for the end of an output on another host.
pub const TAIL: &str = "tail";

impl From<&Instance> for LaunchBody {
    fn from(instance: &Instance) -> Self {
        let (state, pid, started_at, ended_at, exit) = match &instance.phase {
            Phase::Starting => ("starting", None, None, None, None),
            Phase::Running { pid, started_at } => {
                ("running", Some(*pid), Some(*started_at), None, None)
            }
            Phase::Exited { pid, started_at, exit } => {
                ("ending", Some(*pid), Some(*started_at), None, Some(*exit))
            }
            Phase::Ended { pid, started_at, end, at, .. } => {
                ("ended", *pid, *started_at, Some(*at), end.exit())
            }
        };
        let exit = exit.unwrap_or_default();
        Self {
            launch_id: instance.launch.clone(),
            agent_id: instance.key.agent.clone(),
            project_id: instance.key.project.clone(),
            purpose: instance.key.purpose,
            ai_type: String::new(),
            state: if instance.stop.is_some() && state == "running" { "stopping" } else { state }
                .to_owned(),
            task_id: None,
            task_short_id: None,
            claimed_task_id: None,
            pid,
            // The record was made when the process was wanted. Only the server knows the moment of
            // the claim.
            claimed_at: started_at.unwrap_or_else(|| Timestamp::from_millis(0)),
            started_at,
            authenticated_at: None,
            ended_at,
            outcome: None,
            reason: instance.stop.map(|reason| reason.to_string()),
            exit_code: exit.exit_code,
            signal: exit.signal,
            exit_hints: Vec::new(),
            activity: ActivityBody::default(),
        }
    }
}
