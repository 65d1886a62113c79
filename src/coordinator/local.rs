//! The control plane of a coordinator in one process with its server.

use std::sync::Arc;

use super::control::{ClaimAnswer, ControlError, ControlPlane};
use crate::domain::plan::ProcessReport;
use crate::domain::{Activity, CoordinatorId, Instance, InstanceKey, LaunchId, StopReason, Timestamp};
use crate::service::{CoordinatorStatus, ServerView, Service, ServiceError};

/// Calls the service directly.
pub struct LocalControlPlane {
    service: Arc<Service>,
    id: CoordinatorId,
}

impl LocalControlPlane {
    pub fn new(service: Arc<Service>, id: CoordinatorId) -> Self {
        Self { service, id }
    }
}

fn failed(action: &'static str) -> impl FnOnce(ServiceError) -> ControlError {
    move |error| ControlError { action, source: error.into() }
}

impl ControlPlane for LocalControlPlane {
    fn now(&self) -> Timestamp {
        self.service.time()
    }

    async fn observe(&self, _: &[Instance]) -> Result<ServerView, ControlError> {
        self.service.view().await.map_err(failed("look at the server's state"))
    }

    async fn claim(&self, key: &InstanceKey) -> Result<ClaimAnswer, ControlError> {
        let answer = self.service.should_start(key, Some(&self.id)).await.map_err(failed("claim a start"))?;
        Ok(match answer.claim.and_then(|claim| claim.ticket.map(|ticket| (claim.launch, claim.ai_type, ticket))) {
            Some((launch, ai_type, ticket)) => {
                let start_timeout = self.service.settings().start_timeout;
                ClaimAnswer::Claimed { launch, ai_type, start_timeout, ticket }
            }
            None => ClaimAnswer::NotNow,
        })
    }

    async fn report(&self, launch: &LaunchId, report: &ProcessReport) -> Result<(), ControlError> {
        self.service.report_process(launch, report).await.map_err(failed("report a process"))
    }

    async fn report_activity(&self, launch: &LaunchId, activity: &Activity) -> Result<(), ControlError> {
        self.service.report_activity(launch, activity.clone()).await.map_err(failed("report an activity"))
    }

    async fn want_stop(&self, launch: &LaunchId, reason: StopReason) -> Result<(), ControlError> {
        self.service.want_stop(launch, reason).await.map_err(failed("mark a launch to be stopped"))
    }

    async fn report_status(&self, status: CoordinatorStatus) -> Result<(), ControlError> {
        self.service.report_own_status(status);
        Ok(())
    }
}
