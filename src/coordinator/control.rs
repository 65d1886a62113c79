//! The server as a coordinator sees it. In one process with the server it is a call of the service; elsewhere an MCP client.

use std::future::Future;
use std::time::Duration;

use crate::domain::plan::ProcessReport;
use crate::domain::{Activity, Instance, InstanceKey, LaunchId, Secret, StopReason, Timestamp};
use crate::service::{CoordinatorStatus, ServerView};

/// The server can't be asked or didn't understand.
#[derive(Debug, thiserror::Error)]
#[error("could not {action}")]
pub struct ControlError {
    /// What was tried.
    pub action: &'static str,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The answer to a claim.
#[derive(Debug, Clone)]
pub enum ClaimAnswer {
    Claimed {
        launch: LaunchId,
        ai_type: String,
        /// How long the agent may take to authenticate, from the claim on.
        start_timeout: Duration,
        ticket: Secret,
    },
    /// Somebody else has it, or it isn't wanted any more.
    NotNow,
}

/// What a coordinator asks and tells. Each call may be repeated, and is given up half-way when the loop has to leave.
pub trait ControlPlane: Send + Sync + 'static {
    /// The server's time, as far as it is known.
    fn now(&self) -> Timestamp;

    /// A moment of this machine's clock on the server's.
    fn on_server(&self, here: Timestamp) -> Timestamp {
        here
    }

    /// Whether wake-ups announce what the server has to say; otherwise only polls find it.
    fn announces(&self) -> bool {
        true
    }

    /// What the server wants. `instances` are what runs here: a server that keeps no account of launches has it from them.
    fn observe(
        &self,
        instances: &[Instance],
    ) -> impl Future<Output = Result<ServerView, ControlError>> + Send;

    /// Reserves the start of `key` for this coordinator.
    fn claim(
        &self,
        key: &InstanceKey,
    ) -> impl Future<Output = Result<ClaimAnswer, ControlError>> + Send;

    /// Tells what became of a process, in its order. What fails half-way is told once more.
    fn report(
        &self,
        launch: &LaunchId,
        reports: &[ProcessReport],
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Tells what the output of an agent amounts to, so far.
    fn report_activity(
        &self,
        launch: &LaunchId,
        activity: &Activity,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Marks a launch to be ended.
    fn want_stop(
        &self,
        launch: &LaunchId,
        reason: StopReason,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Tells how things stand here, for everyone who looks.
    fn report_status(
        &self,
        status: CoordinatorStatus,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;
}
