//! The processes from the view of the loop: the table of `process`, or a simulation.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::process::{BootInstant, ProcessTable, StartError, StartRequest};
use domain::{Instance, LaunchId, StopReason};
use runtime::clock;
use runtime::telemetry::ErrorChain;

/// The calls of the loop to its processes. All of them may be repeated.
pub trait ProcessLayer: Send + Sync + 'static {
    /// Returns the newest state of all instances. Ended instances are listed until they are
    /// forgotten.
    fn instances(&self) -> Arc<[Instance]>;

    /// Returns the time on the clock of start deadlines.
    fn boot_now(&self) -> BootInstant;

    /// Returns the time on the clock that measures durations; it stands still while the machine
    /// sleeps.
    fn steady_now(&self) -> Instant;

    /// Starts an agent. Returns when the shim exists; its instance is in `instances` from then
    /// on.
    fn start(&self, request: StartRequest) -> impl Future<Output = Result<(), StartError>> + Send;

    /// Tells the shim to end the instance; the first reason wins. Without `timeout`, the
    /// configured one applies.
    fn request_stop(
        &self,
        launch: &LaunchId,
        reason: StopReason,
        timeout: Option<Duration>,
    ) -> impl Future<Output = ()> + Send;

    /// Tells the shim that its agent authenticated.
    fn mark_authenticated(&self, launch: &LaunchId) -> impl Future<Output = ()> + Send;

    /// Forgets an instance, because the server knows of its end.
    fn forget(&self, launch: &LaunchId) -> impl Future<Output = ()> + Send;
}

impl ProcessLayer for ProcessTable {
    fn instances(&self) -> Arc<[Instance]> {
        Self::instances(self)
    }

    fn boot_now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn steady_now(&self) -> Instant {
        clock::now()
    }

    async fn start(&self, request: StartRequest) -> Result<(), StartError> {
        Self::start(self, request).await
    }

    async fn request_stop(&self, launch: &LaunchId, reason: StopReason, timeout: Option<Duration>) {
        if let Err(error) = Self::request_stop(self, launch, reason, timeout).await {
            tracing::error!(launch_id = %launch, error = %ErrorChain(&error), "could not stop the agent");
        }
    }

    async fn mark_authenticated(&self, launch: &LaunchId) {
        if let Err(error) = Self::mark_authenticated(self, launch).await {
            tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not mark the agent as authenticated");
        }
    }

    async fn forget(&self, launch: &LaunchId) {
        if let Err(error) = Self::forget(self, launch).await {
            tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not move the instance folder");
        }
    }
}
