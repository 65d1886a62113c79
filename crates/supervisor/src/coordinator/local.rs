//! The control plane of a coordinator that runs in one process with its server.

use std::sync::Arc;

use super::control::{ControlError, ControlPlane, Delivery};
use domain::conversation::Entry;
use domain::plan::ProcessReport;
use domain::session::Presenter;
use domain::workspace::{HookFacts, WorkspaceReport};
use domain::{
    Activity, CoordinatorId, Instance, InstanceKey, LaunchId, Purpose, Refusal, Secret, StopReason,
    Timestamp, WorkspaceId,
};
use machine::instance_dir::record::KeptReport;
use service::{Claim, CoordinatorStatus, Report, ServerView, Service, ServiceError};

/// Calls the service directly.
pub struct LocalControlPlane {
    service: Arc<Service>,
    id: CoordinatorId,
}

impl LocalControlPlane {
    pub fn new(service: Arc<Service>, id: CoordinatorId) -> Self {
        service.coordinators.keep_name(id.clone());
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
        self.service.coordinators.view().await.map_err(failed("look at the server's state"))
    }

    async fn claim(&self, key: &InstanceKey, entry: &Entry) -> Result<Option<Claim>, ControlError> {
        let answer = self
            .service
            .launches
            .should_start_in(key, Some(&self.id), entry)
            .await
            .map_err(failed("claim a start"))?;
        Ok(answer.claim)
    }

    async fn report(
        &self,
        launch: &LaunchId,
        reports: &[ProcessReport],
    ) -> Result<(), ControlError> {
        self.service
            .launches
            .report_process(launch, reports)
            .await
            .map_err(failed("report a process"))
    }

    async fn report_activity(
        &self,
        launch: &LaunchId,
        activity: &Activity,
    ) -> Result<(), ControlError> {
        self.service
            .launches
            .report_activity(launch, activity.clone())
            .await
            .map_err(failed("report an activity"))
    }

    async fn deliver_report(
        &self,
        launch: &LaunchId,
        kept: &KeptReport,
    ) -> Result<Delivery, ControlError> {
        let report = Report {
            result: kept.result,
            summary: kept.summary.as_deref(),
            next_steps: kept.next_steps.as_deref(),
        };
        let token = Secret::new(kept.session_token.as_str());
        let presenter = Presenter::on_socket(Some(launch));
        let delivered = async {
            let caller = self.service.sessions.identify_reporter(&token, presenter).await?;
            if caller.launch.key.purpose != Purpose::Task {
                return Err(ServiceError::from(Refusal::InvalidSession));
            }
            self.service.sessions.report(&caller, report).await
        };
        match delivered.await {
            Err(ServiceError::Refused(refusal)) if !refusal.is_passing() => {
                let code = refusal.code().to_owned();
                Ok(Delivery::Refused { code, message: refusal.to_string() })
            }
            delivered => delivered.map(|_| Delivery::Taken).map_err(failed("deliver a report")),
        }
    }

    async fn want_workspace(&self, key: &InstanceKey) -> Result<(), ControlError> {
        self.service.workspaces.want(key).await.map_err(failed("ask for a workspace"))
    }

    async fn hook_facts(&self, id: &WorkspaceId) -> Result<Option<HookFacts>, ControlError> {
        self.service.workspaces.hook_facts(id).await.map_err(failed("look up a workspace"))
    }

    async fn report_workspace(
        &self,
        id: &WorkspaceId,
        report: WorkspaceReport,
    ) -> Result<(), ControlError> {
        self.service
            .workspaces
            .report(id, report, &self.id)
            .await
            .map_err(failed("report a workspace"))
    }

    async fn want_stop(&self, launch: &LaunchId, reason: StopReason) -> Result<(), ControlError> {
        self.service
            .coordinators
            .want_stop(launch, reason)
            .await
            .map_err(failed("mark a launch to be stopped"))
    }

    async fn report_status(&self, status: CoordinatorStatus) -> Result<(), ControlError> {
        self.service.coordinators.report_own(status);
        Ok(())
    }
}
