//! The messages between a coordinator and its server: answers that it reads, and reports that it
//! sends.

use serde::Deserialize;
use serde_json::{Value, json};

use domain::instance::ShimIdentity;
use domain::launch::ProcessEnd;
use domain::plan::ProcessReport;
use domain::{Activity, AgentId, Attempt, CoordinatorId, LaunchId, ProjectId, Secret, Timestamp};

/// The answer of `should_start`. Servers of the older system send only the first two fields.
#[derive(Deserialize)]
pub(super) struct ShouldStart {
    should_start: bool,
    #[serde(default)]
    ai_type: Option<String>,
    #[serde(default)]
    launch_id: Option<LaunchId>,
    #[serde(default)]
    start_deadline: Option<Timestamp>,
    #[serde(default)]
    launch_ticket: Option<String>,
    /// Servers of earlier versions do not name the attempt.
    #[serde(flatten)]
    attempt: Attempt,
}

/// A start that the server granted.
#[derive(Debug, Clone)]
pub(super) struct Claimed {
    pub(super) ai_type: String,
    /// The launch; `None` if the server keeps no record of launches.
    pub(super) launch: Option<LaunchId>,
    /// The start deadline, on the server's clock.
    pub(super) deadline: Option<Timestamp>,
    pub(super) ticket: Option<Secret>,
    pub(super) attempt: Attempt,
}

impl ShouldStart {
    pub(super) fn claimed(self) -> Option<Claimed> {
        self.should_start.then(|| Claimed {
            ai_type: self.ai_type.unwrap_or_else(|| domain::agent::DEFAULT_AI_TYPE.to_owned()),
            launch: self.launch_id,
            deadline: self.start_deadline,
            ticket: self.launch_ticket.map(Secret::new),
            attempt: self.attempt,
        })
    }
}

/// The answer of `health_check`.
#[derive(Deserialize)]
pub(super) struct Health {
    pub(super) status: String,
    #[serde(default)]
    pub(super) timestamp: Option<Timestamp>,
}

/// The answer of `list_active_projects_with_agents`.
#[derive(Deserialize)]
pub(super) struct ActiveProjects {
    pub(super) projects: Vec<ActiveProject>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ActiveProject {
    pub(super) project_id: ProjectId,
    pub(super) working_directory: Option<std::path::PathBuf>,
    pub(super) agents: Vec<AgentId>,
}

/// Returns the tool that takes a report, and its arguments.
pub(super) fn report(
    coordinator: &CoordinatorId,
    launch: &LaunchId,
    report: &ProcessReport,
) -> (&'static str, Value) {
    let mut arguments = json!({ "coordinator_id": coordinator, "launch_id": launch });
    let tool = match report {
        ProcessReport::Started { pid, at, shim } => {
            arguments["pid"] = json!(pid);
            arguments["started_at"] = json!(at);
            if let Some(ShimIdentity { pid, start_ticks, boot_id, pid_namespace }) = shim {
                arguments["shim_pid"] = json!(pid);
                arguments["shim_start_ticks"] = json!(start_ticks);
                arguments["shim_boot"] = json!(boot_id);
                arguments["shim_pid_namespace"] = json!(pid_namespace);
            }
            "report_process_started"
        }
        ProcessReport::Exited { exit } => {
            arguments["outcome"] = "exited".into();
            arguments["exit_code"] = json!(exit.exit_code);
            arguments["signal"] = json!(exit.signal);
            "report_process_exit"
        }
        ProcessReport::Ended { end, at } => {
            arguments["ended_at"] = json!(at);
            arguments["outcome"] = match end {
                ProcessEnd::Exited(exit) => {
                    arguments["exit_code"] = json!(exit.exit_code);
                    arguments["signal"] = json!(exit.signal);
                    "ended".into()
                }
                ProcessEnd::StartFailed(reason) => {
                    arguments["reason"] = json!(reason);
                    "start_failed".into()
                }
                ProcessEnd::StartDeadlinePassed => "fuse_burnt".into(),
                ProcessEnd::Lost => "lost".into(),
            };
            "report_process_exit"
        }
    };
    (tool, arguments)
}

/// Returns the arguments of `report_activity`.
pub(super) fn activity(
    coordinator: &CoordinatorId,
    launch: &LaunchId,
    activity: &Activity,
) -> Value {
    let Activity { usage, progress, failure } = activity;
    json!({
        "coordinator_id": coordinator,
        "launch_id": launch,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cost_usd_micros": usage.cost_usd_micros,
        "turns": usage.turns,
        "estimated": usage.is_estimated,
        "progress": progress,
        "failure": failure.map(|failure| failure.class),
        "failure_resets_at": failure.and_then(|failure| failure.resets_at),
    })
}
