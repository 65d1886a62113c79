//! What a coordinator sees of the server and tells it. It knows no task: only wanted starts, wanted stops, its own processes.

use crate::crash_point::{self, CrashPoint};
use crate::domain::id::LaunchId;
use crate::domain::launch::{LaunchEvent, StopReason, Verdict};
use crate::domain::plan::ProcessReport;
use crate::domain::{Launch, LaunchState, PairFacts};
use crate::store::Commit;

use super::{CoordinatorStatus, Service, ServiceError};

/// The server's part of what a plan is made from.
#[derive(Debug, Clone)]
pub struct ServerView {
    pub startable: Vec<PairFacts>,
    /// All open launches, whoever keeps them.
    pub launches: Vec<Launch>,
}

impl Service {
    pub async fn view(&self) -> Result<ServerView, ServiceError> {
        Ok(ServerView { startable: self.store.startable().await?, launches: self.store.open_launches().await? })
    }

    /// Takes what a coordinator says of a process; old news and unknown launches change nothing.
    pub async fn report_process(&self, id: &LaunchId, report: &ProcessReport) -> Result<(), ServiceError> {
        let event = match report {
            ProcessReport::Started { pid, at } => LaunchEvent::ProcessStarted { pid: *pid, at: *at },
            ProcessReport::Exited { exit } => LaunchEvent::Exited { exit: *exit },
            ProcessReport::Ended { end, at } => LaunchEvent::ProcessEnded { end: end.clone(), at: *at },
        };
        let ended = self.happen(id, &event).await?;
        if let Some(launch) = ended {
            log_end(&launch);
        }
        Ok(())
    }

    /// Marks a launch to be ended; the first reason wins, an ended or unknown launch stays as it is.
    pub async fn want_stop(&self, id: &LaunchId, reason: StopReason) -> Result<(), ServiceError> {
        let ended = self.happen(id, &LaunchEvent::StopWanted { reason, at: self.now() }).await?;
        crash_point::reach(CrashPoint::StopWanted);
        if let Some(launch) = ended {
            log_end(&launch);
        }
        Ok(())
    }

    /// Lets `event` happen to a launch; the launch, if that ended it.
    pub(super) async fn happen(&self, id: &LaunchId, event: &LaunchEvent) -> Result<Option<Launch>, ServiceError> {
        self.transact(|| async move {
            let Some(before) = self.store.launch(id).await? else { return Ok((Commit::default(), None)) };
            let changes = self.changes_by(&before, event, self.now()).await?;
            let ended = before.is_open().then(|| before.on(event).ok()).flatten().filter(|after| !after.is_open());
            Ok((Commit { expect: Vec::new(), changes }, ended))
        })
        .await
    }

    /// Keeps the newest word of a coordinator for everyone who looks.
    pub fn report_status(&self, status: CoordinatorStatus) {
        self.coordinators.put(status);
    }
}

/// The one line that tells how a launch ended.
pub(super) fn log_end(launch: &Launch) {
    let LaunchState::Ended { outcome, at } = &launch.state else { return };
    let duration_ms = u64::try_from(at.since(launch.claimed_at).as_millis()).unwrap_or(u64::MAX);
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                launch_id = %launch.id, agent_id = %launch.key.agent, project_id = %launch.key.project,
                purpose = %launch.key.purpose, task_id = launch.task.as_ref().map(tracing::field::display),
                outcome = outcome.as_str(), reason = outcome.reason(), exit_code = launch.exit.exit_code,
                signal = launch.exit.signal, duration_ms, "launch ended"
            )
        };
    }
    // What holds a pair back is for an operator's eyes.
    match launch.verdict(outcome) {
        Verdict::Fine => log!(info),
        Verdict::Failure => log!(warn),
    }
}
