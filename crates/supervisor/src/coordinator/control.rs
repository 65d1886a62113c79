//! The server from the view of a coordinator. In one process with the server, it is a call of the
//! service; otherwise it is an MCP client.

use std::future::Future;

use domain::WorkspaceId;
use domain::conversation::Entry;
use domain::plan::ProcessReport;
use domain::workspace::{HookFacts, WorkspaceReport};
use domain::{Activity, Instance, InstanceKey, LaunchId, StopReason, Timestamp};
use machine::instance_dir::record::KeptReport;
use service::{Claim, CoordinatorStatus, ServerView};

/// The server cannot be asked, or did not understand.
#[derive(Debug, thiserror::Error)]
#[error("could not {action}")]
pub struct ControlError {
    /// The action that was tried.
    pub action: &'static str,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The end of the delivery of a report. It is not delivered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    Taken,
    /// The server refused it, and would refuse it again.
    Refused {
        /// The word that programs branch on.
        code: String,
        message: String,
    },
}

/// The calls of a coordinator to its server. Each call may be repeated, and may be dropped half-way
/// when the loop has to end.
pub trait ControlPlane: Send + Sync + 'static {
    /// Returns the server's time, as far as it is known.
    fn now(&self) -> Timestamp;

    /// Converts a time of this machine's clock to the server's clock.
    fn on_server(&self, here: Timestamp) -> Timestamp {
        here
    }

    /// Returns whether wake-ups announce changes of the server; otherwise only polls find them.
    fn announces(&self) -> bool {
        true
    }

    /// Returns what the server wants. `instances` are the processes of this machine: a server that
    /// keeps no record of launches takes its launches from them.
    fn observe(
        &self,
        instances: &[Instance],
    ) -> impl Future<Output = Result<ServerView, ControlError>> + Send;

    /// Reserves the start of `key` for this coordinator. `entry` is the provider that would start
    /// it. Returns `None` if another coordinator has the start, or if it is no longer wanted.
    fn claim(
        &self,
        key: &InstanceKey,
        entry: &Entry,
    ) -> impl Future<Output = Result<Option<Claim>, ControlError>> + Send;

    /// Reports changes of a process, in their order. If a report fails half-way, all are reported
    /// once more.
    fn report(
        &self,
        launch: &LaunchId,
        reports: &[ProcessReport],
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Reports the activity that the output of an agent shows so far.
    fn report_activity(
        &self,
        launch: &LaunchId,
        activity: &Activity,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Delivers a report that had no answer. A refusal that may pass is an error, so that the report
    /// is delivered again.
    fn deliver_report(
        &self,
        _launch: &LaunchId,
        _report: &KeptReport,
    ) -> impl Future<Output = Result<Delivery, ControlError>> + Send {
        std::future::ready(Ok(Delivery::Taken))
    }

    /// Tells the server that the next launch of `key` needs a clone. A server that keeps no
    /// workspaces does nothing.
    fn want_workspace(
        &self,
        _key: &InstanceKey,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Returns the facts about a workspace that its hooks get; `None` if it is not known.
    fn hook_facts(
        &self,
        _id: &WorkspaceId,
    ) -> impl Future<Output = Result<Option<HookFacts>, ControlError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Reports the end of a step on a workspace.
    fn report_workspace(
        &self,
        _id: &WorkspaceId,
        _report: WorkspaceReport,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Marks a launch to be ended.
    fn want_stop(
        &self,
        launch: &LaunchId,
        reason: StopReason,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Reports the status of this coordinator, for all readers.
    fn report_status(
        &self,
        status: CoordinatorStatus,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;
}
