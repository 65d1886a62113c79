//! Carries out the steps on workspaces beside the loop, which never waits for git.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::control::ControlPlane;
use crate::crash_point::{self, CrashPoint};
use crate::domain::workspace::{Job, WorkspaceReport};
use crate::domain::{ProjectId, WorkspaceId};
use crate::locks::lock;
use crate::service::ClonePlace;
use crate::telemetry::ErrorChain;
use crate::workspace::{CheckoutError, Checkouts, KeepPolicy, Removal};

/// The number of steps at the same time.
const N_AT_ONCE: usize = 4;
/// The pause after a step that failed, before the plan may take it again.
const PAUSE: Duration = Duration::from_secs(10);
/// The pause before the disk space is measured again for a workspace that has no room.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(2);
/// The pause before a report is repeated that the server did not accept.
const REPORT_AGAIN: Duration = Duration::from_secs(1);

/// The steps under way. They end when this is dropped: the next daemon repeats them.
pub(super) struct WorkspaceJobs<C> {
    control: Arc<C>,
    host: Option<Host>,
    busy: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    ended: Arc<Notify>,
    places: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// The workspaces and snapshots of this host.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) checkouts: Arc<Checkouts>,
    pub(super) policy: Arc<KeepPolicy>,
}

impl Host {
    pub(super) fn new(checkouts: Arc<Checkouts>, policy: KeepPolicy) -> Self {
        Self { checkouts, policy: Arc::new(policy) }
    }
}

impl<C: ControlPlane> WorkspaceJobs<C> {
    pub(super) fn new(control: Arc<C>) -> Self {
        Self {
            control,
            host: None,
            busy: Arc::default(),
            ended: Arc::default(),
            places: Arc::new(Semaphore::new(N_AT_ONCE)),
            tasks: Mutex::default(),
        }
    }

    pub(super) fn serve_from(&mut self, checkouts: Arc<Checkouts>, policy: KeepPolicy) {
        self.host = Some(Host::new(checkouts, policy));
    }

    /// Returns the workspaces on which a step is under way, or has failed a moment ago.
    pub(super) fn busy(&self) -> BTreeSet<WorkspaceId> {
        lock(&self.busy).clone()
    }

    /// Returns when a step has ended. Cancel-safe.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Returns the folder that an agent gets, if its repository is there.
    ///
    /// # Errors
    /// The reason why an agent cannot start there.
    pub(super) fn directory(
        &self,
        project: &ProjectId,
        clone: &ClonePlace,
    ) -> Result<PathBuf, String> {
        let Some(Host { checkouts, .. }) = &self.host else {
            return Err("this coordinator keeps no workspaces".to_owned());
        };
        checkouts.check(project, &clone.id).map_err(|error| error.to_string())?;
        Ok(checkouts.directory(project, &clone.id, &clone.subdirectory))
    }

    /// Begins a step, unless one of the same workspace is under way.
    pub(super) fn begin(&self, job: Job) {
        let Some(host) = self.host.clone() else {
            return;
        };
        let id = job.workspace().clone();
        if !lock(&self.busy).insert(id.clone()) {
            return;
        }
        let control = Arc::clone(&self.control);
        let places = Arc::clone(&self.places);
        let done = Done { id, busy: Arc::clone(&self.busy), ended: Arc::clone(&self.ended) };
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            let (report, pause) = carry_out(&host, &job).await;
            while let Err(error) = control.report_workspace(&done.id, report.clone()).await {
                tracing::warn!(workspace_id = %done.id, error = %ErrorChain(&error), "could not report a workspace; will report again");
                tokio::time::sleep(REPORT_AGAIN).await;
            }
            crash_point::reach(CrashPoint::WorkspaceReported);
            tokio::time::sleep(pause).await;
        });
    }
}

/// Removes the workspace from those that are busy when its step has ended, also if it panicked.
struct Done {
    id: WorkspaceId,
    busy: Arc<Mutex<BTreeSet<WorkspaceId>>>,
    ended: Arc<Notify>,
}

impl Drop for Done {
    fn drop(&mut self) {
        lock(&self.busy).remove(&self.id);
        self.ended.notify_one();
    }
}

/// Carries out a step. Returns what the server is told, and the pause after it.
async fn carry_out(host: &Host, job: &Job) -> (WorkspaceReport, Duration) {
    let Host { checkouts, .. } = host;
    let step = match job {
        Job::Prepare { .. } => "prepare",
        Job::Keep(_) => "keep",
        Job::Publish(_) => "publish",
        Job::Forget(_) => "forget",
        Job::Remove(_) => "remove",
    };
    let mut done = take(host, job).await;
    let is_full = |error: &CheckoutError| checkouts.give_up_reserve(error);
    if !matches!(job, Job::Prepare { .. }) && done.as_ref().is_err_and(is_full) {
        tracing::warn!(
            workspace_id = %job.workspace(), step,
            "the disk is full; the space in reserve is used"
        );
        done = take(host, job).await;
    }
    let id = job.workspace();
    if let Err(error) = checkouts.measure_changed(job.project(), id).await {
        tracing::warn!(
            workspace_id = %id, error = %ErrorChain(&error),
            "could not measure the workspaces"
        );
    }
    match done {
        Ok(report @ WorkspaceReport::Failed { .. }) if matches!(job, Job::Publish(_)) => {
            tracing::debug!(workspace_id = %id, "the result could not be published");
            (report, PAUSE)
        }
        Ok(report @ WorkspaceReport::Failed { .. }) => {
            tracing::debug!(workspace_id = %id, "there is no disk space for the workspace");
            (report, NO_ROOM_PAUSE)
        }
        Ok(report) => {
            tracing::info!(workspace_id = %id, step, "the step on the workspace has ended");
            (report, Duration::ZERO)
        }
        Err(error) => {
            let reason = ErrorChain(&error).to_string();
            tracing::warn!(workspace_id = %id, step, error = %reason, "the step on the workspace failed");
            (failure(&error, reason), PAUSE)
        }
    }
}

async fn take(host: &Host, job: &Job) -> Result<WorkspaceReport, CheckoutError> {
    let Host { checkouts, policy } = host;
    let taken = match job {
        Job::Prepare { order, max_disk } => {
            // One that was made before its report was lost needs no more space.
            let is_made = checkouts.check(&order.project, &order.id).is_ok();
            if !is_made && !checkouts.has_room(*max_disk).await? {
                let reason = "`workspace.max_disk` is used up".to_owned();
                return Ok(WorkspaceReport::Failed { reason });
            }
            checkouts.prepare(order).await.map(WorkspaceReport::Prepared)
        }
        Job::Keep(order) => checkouts.keep(order, policy).await.map(WorkspaceReport::Kept),
        Job::Publish(order) => Ok(match checkouts.publish_branch(order).await {
            // Such a result stays with the coordinator, and its workspace can be used.
            Err(error) if error.needs_person() => {
                WorkspaceReport::Failed { reason: not_published(&error) }
            }
            published => WorkspaceReport::Published(published?),
        }),
        Job::Forget(order) => checkouts.forget(order).await.map(|()| WorkspaceReport::Forgotten),
        Job::Remove(order) => checkouts.remove(order, policy).await.map(|removal| match removal {
            Removal::Removed => WorkspaceReport::Removed,
            Removal::KeptAgain(content) => WorkspaceReport::Kept(content),
        }),
    };
    taken.map_err(|error| checkouts.name_full_disk(error))
}

fn not_published(error: &CheckoutError) -> String {
    format!("its result is in no branch of the project's repository yet: {}", ErrorChain(error))
}

fn failure(error: &CheckoutError, reason: String) -> WorkspaceReport {
    if error.needs_person() {
        WorkspaceReport::Broken { reason }
    } else {
        WorkspaceReport::Failed { reason }
    }
}
