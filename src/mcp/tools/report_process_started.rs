//! `report_process_started`: a coordinator reports the process of a claimed launch.

use serde::Deserialize;

use super::{Done, Effect, ToolSpec};
use crate::domain::instance::ShimIdentity;
use crate::domain::plan::ProcessReport;
use crate::domain::{LaunchId, Timestamp};
use crate::mcp::envelope::Coordinator;
use crate::service::{Service, ServiceError};

pub(in crate::mcp) struct ReportProcessStarted;

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::mcp) struct Input {
    /// The launch, as should_start named it.
    #[schemars(with = "String")]
    launch_id: LaunchId,
    /// Process id of the agent on the coordinator's machine.
    #[schemars(range(min = 1))]
    pid: i32,
    /// When it started (RFC 3339); now without it.
    #[serde(default)]
    #[schemars(with = "String")]
    started_at: Option<Timestamp>,
    /// Process id of the shim that started the agent, as the lock file of its instance folder says.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 1))]
    shim_pid: Option<i32>,
    /// Start time of the shim, as its lock file says.
    #[serde(default)]
    #[schemars(with = "u64")]
    shim_start_ticks: Option<u64>,
    /// Boot of the machine in which the shim runs, as its lock file says.
    #[serde(default)]
    #[schemars(with = "String")]
    shim_boot: Option<String>,
    /// Pid namespace in which the shim runs, as its lock file says.
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
    const TEXT: &'static str = "For coordinators: the agent of a claimed launch has a process.";
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
