//! `report_process_started`: a coordinator reports the process of a claimed launch.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::envelope::Coordinator;
use domain::instance::ShimIdentity;
use domain::plan::ProcessReport;
use domain::{LaunchId, Timestamp};
use service::{Service, ServiceError};

pub(crate) struct ReportProcessStarted;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The launch_id that should_start returned.
    #[schemars(with = "String")]
    launch_id: LaunchId,
    /// The process id of the agent on the machine of the coordinator.
    #[schemars(range(min = 1))]
    pid: i32,
    /// The time of its start (RFC 3339). Without it, the time of the call.
    #[serde(default)]
    #[schemars(with = "String")]
    started_at: Option<Timestamp>,
    /// The process id of the shim, from the lock file of the instance folder.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 1))]
    shim_pid: Option<i32>,
    /// The start time of the shim, from its lock file.
    #[serde(default)]
    #[schemars(with = "u64")]
    shim_start_ticks: Option<u64>,
    /// The boot id of the machine of the shim, from its lock file.
    #[serde(default)]
    #[schemars(with = "String")]
    shim_boot: Option<String>,
    /// The pid namespace of the shim, from its lock file.
    #[serde(default)]
    #[schemars(with = "u64")]
    shim_pid_namespace: Option<u64>,
}

impl Input {
    /// Returns the shim if all its fields are known. Without it, the server recognises no process
    /// as part of this launch.
    fn shim(&self) -> Option<ShimIdentity> {
        Some(ShimIdentity {
            pid: self.shim_pid?,
            start_ticks: self.shim_start_ticks?,
            boot_id: self.shim_boot.clone()?,
            pid_namespace: self.shim_pid_namespace?,
        })
    }
}

impl ToolSpec for ReportProcessStarted {
    const NAME: &'static str = "report_process_started";
    const TEXT: &'static str =
        "For coordinators: reports that the agent of a claimed launch has a process.";
    const EFFECT: Effect = Effect::ChangesOnce;
    type Who = Coordinator;
    type Input = Input;
    type Output = Done;

    async fn call(service: &Service, who: Coordinator, input: Input) -> Result<Done, ServiceError> {
        let launch = service.launches.launch_of(who.id.as_ref(), &input.launch_id).await?;
        let at = input.started_at.unwrap_or_else(|| service.time());
        service
            .launches
            .report_process(
                &launch.id,
                &[ProcessReport::Started { pid: input.pid, at, shim: input.shim() }],
            )
            .await?;
        Ok(Done::DONE)
    }
}
