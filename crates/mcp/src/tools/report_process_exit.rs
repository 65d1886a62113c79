//! `report_process_exit`: a coordinator reports the end of the process of a launch.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::envelope::Coordinator;
use domain::launch::{ExitStatus, ProcessEnd};
use domain::plan::ProcessReport;
use domain::{AgentId, LaunchId, ProjectId, Refusal, Timestamp};
use service::{Service, ServiceError};

pub(crate) struct ReportProcessExit;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The launch_id that should_start returned. Without it, agent_id and project_id select the
    /// launch.
    #[serde(default)]
    #[schemars(with = "String")]
    launch_id: Option<LaunchId>,
    /// The agent, if launch_id is not known.
    #[serde(default)]
    #[schemars(with = "String")]
    agent_id: Option<AgentId>,
    /// The project, if launch_id is not known.
    #[serde(default)]
    #[schemars(with = "String")]
    project_id: Option<ProjectId>,
    /// The process id of the agent. It selects the launch if more than one fits.
    #[serde(default)]
    #[schemars(with = "i32")]
    pid: Option<i32>,
    /// exited: the agent has exited, and processes that it started may live. ended: none of its
    /// processes lives (the default). start_failed: there never was a process. fuse_burnt: the
    /// start deadline passed before the process started. lost: its end was not observed.
    #[serde(default)]
    outcome: ProcessOutcome,
    /// The exit code of the agent.
    #[serde(default)]
    #[schemars(with = "i32")]
    exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    #[schemars(with = "i32")]
    signal: Option<i32>,
    /// What failed, for start_failed.
    #[serde(default)]
    #[schemars(with = "String")]
    reason: Option<String>,
    /// The end of the agent's output, which the server shows. It keeps 64 KiB.
    #[serde(default)]
    #[schemars(with = "String")]
    output_tail: Option<String>,
    /// The time of its end (RFC 3339). Without it, the time of the call.
    #[serde(default)]
    #[schemars(with = "String")]
    ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessOutcome {
    Exited,
    #[default]
    Ended,
    StartFailed,
    FuseBurnt,
    Lost,
}

impl Input {
    fn report(self, now: Timestamp) -> ProcessReport {
        let exit = ExitStatus { exit_code: self.exit_code, signal: self.signal };
        let end = match self.outcome {
            ProcessOutcome::Exited => return ProcessReport::Exited { exit },
            ProcessOutcome::Ended => ProcessEnd::Exited(exit),
            ProcessOutcome::StartFailed => ProcessEnd::StartFailed(
                self.reason.unwrap_or_else(|| "the coordinator gave no reason".to_owned()),
            ),
            ProcessOutcome::FuseBurnt => ProcessEnd::StartDeadlinePassed,
            ProcessOutcome::Lost => ProcessEnd::Lost,
        };
        ProcessReport::Ended { end, at: self.ended_at.unwrap_or(now) }
    }
}

impl ToolSpec for ReportProcessExit {
    const NAME: &'static str = "report_process_exit";
    const TEXT: &'static str = "For coordinators: reports how the process of a launch ended. \
                                Ends that launch and no other.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = Coordinator;
    type Input = Input;
    type Output = Done;

    async fn call(service: &Service, who: Coordinator, input: Input) -> Result<Done, ServiceError> {
        let coordinator = who.id.as_ref();
        let launch = match (&input.launch_id, &input.agent_id, &input.project_id) {
            (Some(launch), _, _) => service.launches.launch_of(coordinator, launch).await?.id,
            (None, Some(agent), Some(project)) => {
                service.launches.find_to_report(agent, project, input.pid, coordinator).await?
            }
            (None, _, _) => {
                return Err(Refusal::Invalid(
                    "launch_id is missing, or agent_id and project_id are".to_owned(),
                )
                .into());
            }
        };
        if let Some(tail) = &input.output_tail {
            service.launches.keep_output_tail(&launch, tail).await?;
        }
        service.launches.report_process(&launch, &[input.report(service.time())]).await?;
        Ok(Done::DONE)
    }
}
