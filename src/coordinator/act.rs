//! Carrying a plan out. No choices here: what fails is reported or done again by the next cycle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;

use super::Coordinator;
use super::control::{ClaimAnswer, ControlPlane};
use super::processes::ProcessLayer;
use crate::crash_point::{self, CrashPoint};
use crate::domain::launch::ProcessEnd;
use crate::domain::plan::{Action, ProcessReport};
use crate::domain::{InstanceKey, LaunchId};
use crate::process::StartRequest;
use crate::provider::LaunchRequest;
use crate::telemetry::ErrorChain;

/// Launches whose actions are carried out at the same time; the store groups their commits.
const N_AT_ONCE: usize = 64;
/// Added to the start deadline for the fuse, so that the word of a last-moment authentication reaches the keeper.
const FUSE_MARGIN: Duration = Duration::from_secs(2);

/// What came of a plan.
pub(super) struct Acted {
    pub(super) n_started: u64,
    /// Nothing has to be done again.
    pub(super) is_complete: bool,
    /// The server was told of ends, which may be forgotten when it knows them.
    pub(super) has_told_ends: bool,
}

/// The server didn't take it. It was logged, and the next cycle does it again.
struct NotDone;

impl<C: ControlPlane, P: ProcessLayer> Coordinator<C, P> {
    /// Does all of it, what concerns one launch in its order, starts last.
    pub(super) async fn act(&self, actions: Vec<Action>) -> Acted {
        let mut by_launch: BTreeMap<LaunchId, Vec<Action>> = BTreeMap::new();
        let mut starts = Vec::new();
        for action in actions {
            match action {
                Action::Start { key, ai_type: _, working_directory } => {
                    starts.push((key, working_directory));
                }
                Action::Report { ref launch, .. }
                | Action::Forget { ref launch }
                | Action::MarkAuthenticated { ref launch }
                | Action::WantStop { ref launch, .. }
                | Action::Stop { ref launch, .. } => {
                    by_launch.entry(launch.clone()).or_default().push(action);
                }
            }
        }
        let has_told_ends = by_launch.values().flatten().any(|action| {
            matches!(action, Action::Report { report: ProcessReport::Ended { .. }, .. })
        });
        let acted = Acted { n_started: 0, is_complete: true, has_told_ends };
        let acted = stream::iter(by_launch.into_values())
            .map(|actions| self.act_on_launch(actions))
            .buffer_unordered(N_AT_ONCE)
            .fold(acted, |acted, done| async move {
                Acted { is_complete: acted.is_complete && done.is_ok(), ..acted }
            })
            .await;
        stream::iter(starts)
            .map(|(key, working_directory)| self.start(key, working_directory))
            .buffer_unordered(N_AT_ONCE)
            .fold(acted, |acted, is_started| async move {
                Acted {
                    n_started: acted.n_started + u64::from(matches!(is_started, Ok(true))),
                    is_complete: acted.is_complete && is_started.is_ok(),
                    ..acted
                }
            })
            .await
    }

    /// One after the other: a reason comes before the end that it explains.
    async fn act_on_launch(&self, actions: Vec<Action>) -> Result<(), NotDone> {
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            let Action::Report { launch, report } = action else {
                self.take(action).await?;
                continue;
            };
            // What starts and ends before anybody looks is told in one go: one commit instead of two.
            let mut reports = vec![report];
            while let Some(Action::Report { report, .. }) =
                actions.next_if(|next| matches!(next, Action::Report { .. }))
            {
                reports.push(report);
            }
            self.report(&launch, &reports).await?;
        }
        Ok(())
    }

    async fn report(&self, launch: &LaunchId, reports: &[ProcessReport]) -> Result<(), NotDone> {
        let points = || reports.iter().map(crash_points);
        points().for_each(|(seen, _)| crash_point::reach(seen));
        if reports.iter().any(|report| matches!(report, ProcessReport::Ended { .. })) {
            self.tell_activity(launch).await;
        }
        if let Err(error) = self.control.report(launch, reports).await {
            tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not report; will report again");
            return Err(NotDone);
        }
        points().for_each(|(_, reported)| crash_point::reach(reported));
        Ok(())
    }

    async fn take(&self, action: Action) -> Result<(), NotDone> {
        match action {
            Action::WantStop { launch, reason } => {
                if let Err(error) = self.control.want_stop(&launch, reason).await {
                    tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not mark the stop; will try again");
                    return Err(NotDone);
                }
            }
            Action::Stop { launch, reason } => {
                self.processes.request_stop(&launch, reason, None).await;
            }
            Action::MarkAuthenticated { launch } => {
                self.processes.mark_authenticated(&launch).await;
            }
            Action::Forget { launch } => self.processes.forget(&launch).await,
            // By those who call this.
            Action::Report { .. } | Action::Start { .. } => {}
        }
        Ok(())
    }

    /// The last of what it printed, before its end: what comes after that is not kept. The end doesn't wait for a server that
    /// doesn't want to know.
    async fn tell_activity(&self, launch: &LaunchId) {
        let Some(activity) = self.ears.hear_out(launch).await else {
            return;
        };
        if let Err(error) = self.control.report_activity(launch, &activity).await {
            tracing::warn!(launch_id = %launch, error = %ErrorChain(&error), "could not report the activity");
        }
    }

    /// Whether nobody was told yet that this `ai_type` has no provider of its own.
    fn is_first_of(&self, ai_type: &str) -> bool {
        self.unknown_ai_types
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(ai_type.to_owned())
    }

    /// The claim, then the process. What fails after the claim is reported at once.
    async fn start(&self, key: InstanceKey, working_directory: PathBuf) -> Result<bool, NotDone> {
        // Before the claim is asked for: time lost on the way counts for the fuse.
        let asked_at = self.processes.boot_now();
        let claim = match self.control.claim(&key).await {
            Ok(claim) => claim,
            Err(error) => {
                tracing::warn!(
                    agent_id = %key.agent, project_id = %key.project, error = %ErrorChain(&error),
                    "could not claim the start; will try again"
                );
                return Err(NotDone);
            }
        };
        let ClaimAnswer::Claimed { launch, ai_type, start_timeout, ticket } = claim else {
            return Ok(false);
        };
        crash_point::reach(CrashPoint::Claimed);
        if self.processes.instances().iter().any(|instance| instance.launch == launch) {
            // It runs here: a server that grants it once more doesn't end it.
            tracing::warn!(launch_id = %launch, "the server granted a launch that has a process already");
            return Ok(false);
        }
        let request = LaunchRequest {
            launch: launch.clone(),
            key: key.clone(),
            ai_type: ai_type.clone(),
            working_directory,
            passkey: ticket,
        };
        let started = match self.config.providers.command(&request) {
            Err(error) => Err(error.to_string()),
            // Of this machine's folders a server elsewhere can't name one by where its coordinator happens to be.
            Ok(command) if !command.working_directory.is_absolute() => Err(format!(
                "working directory `{}` is not absolute",
                command.working_directory.display()
            )),
            Ok(command) => {
                // What is left until a deadline is anything, where a clock was set since it was named; nobody is given more than all.
                let most = self
                    .seen_last
                    .as_ref()
                    .and_then(|(_, limits)| limits.start_timeout)
                    .unwrap_or(Duration::MAX);
                let fuse = asked_at + start_timeout.min(most) + FUSE_MARGIN;
                let request =
                    StartRequest { launch: launch.clone(), key: key.clone(), command, fuse };
                self.processes.start(request).await.map_err(|error| ErrorChain(&error).to_string())
            }
        };
        match started {
            Ok(()) => {
                let (provider, _) = self.config.providers.find(&ai_type);
                if provider != ai_type && self.is_first_of(&ai_type) {
                    tracing::warn!(
                        ai_type,
                        provider,
                        "no provider of this name is configured; using another"
                    );
                }
                tracing::info!(
                    launch_id = %launch, agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose,
                    provider, "agent started"
                );
                Ok(true)
            }
            Err(reason) => {
                tracing::warn!(
                    launch_id = %launch, agent_id = %key.agent, project_id = %key.project, purpose = %key.purpose,
                    reason, "agent could not be started"
                );
                let end = ProcessEnd::StartFailed(reason);
                let report = ProcessReport::Ended { end, at: self.control.now() };
                self.report(&launch, &[report]).await.map(|()| false)
            }
        }
    }
}

/// The moments before and after a report.
const fn crash_points(report: &ProcessReport) -> (CrashPoint, CrashPoint) {
    match report {
        ProcessReport::Started { .. } => (CrashPoint::StartSeen, CrashPoint::StartReported),
        ProcessReport::Exited { .. } => (CrashPoint::ExitSeen, CrashPoint::ExitReported),
        ProcessReport::Ended { .. } => (CrashPoint::EndSeen, CrashPoint::EndReported),
    }
}
