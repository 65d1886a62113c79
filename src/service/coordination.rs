//! What a coordinator sees of the server and tells it. It knows no task: only wanted starts, wanted stops, its own processes.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::crash_point::{self, CrashPoint};
use crate::domain::id::{CoordinatorId, LaunchId};
use crate::domain::incarnation::{Heard, Incarnation, Incarnations};
use crate::domain::launch::{LaunchEvent, ProcessEnd, StopReason, Verdict};
use crate::domain::limits;
use crate::domain::plan::ProcessReport;
use crate::domain::printable;
use crate::domain::redact::Redactor;
use crate::domain::{Candidate, Launch, LaunchFacts, LaunchState, Refusal, Timestamp};
use crate::rows::{launches, output_tails};
use crate::telemetry::counters;

use super::{CoordinatorStatus, Service, ServiceError};

/// The server's part of what a plan is made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerView {
    /// The server's time, by which all of it was judged.
    pub at: Timestamp,
    /// How long an agent may stay after its report, in milliseconds: ladders are planned by it.
    #[serde(default)]
    pub linger_ms: Option<u64>,
    /// How long an agent may take to authenticate, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// How long an agent with a session may run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_maximum_ms: Option<u64>,
    /// Which run of the server this is: another one knows nothing of what was only said.
    #[serde(default)]
    pub run: String,
    pub startable: Vec<Candidate>,
    /// Open launches: all of the asking coordinator, perhaps others'.
    pub launches: Vec<LaunchFacts>,
}

impl ServerView {
    /// How long an agent may stay after its report, where the server says it.
    pub fn linger(&self) -> Option<Duration> {
        self.linger_ms.map(Duration::from_millis)
    }

    /// How long an agent may take to authenticate, where the server says it.
    pub fn start_timeout(&self) -> Option<Duration> {
        self.start_timeout_ms.map(Duration::from_millis)
    }

    /// How long an agent with a session may run, where the server says it.
    pub fn session_maximum(&self) -> Option<Duration> {
        self.session_maximum_ms.map(Duration::from_millis)
    }
}

/// A view, and a mark by which a later look is asked to wait for news.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    /// Opaque.
    pub seen: String,
    #[serde(flatten)]
    pub view: ServerView,
}

impl Service {
    /// Everything that may be started and all open launches, whoever keeps them.
    pub async fn view(&self) -> Result<ServerView, ServiceError> {
        let (at, backoff) = (self.core.now(), self.core.settings().backoff);
        let startable = self.core.store.startable().await?.into_iter();
        let startable =
            startable.filter_map(|facts| self.pause_file.apply(facts).candidate(backoff, at));
        let launches = self.core.store.open_launches().await?.into_iter().map(|launch| {
            let idle_ms = self.clocks.idle_for(&self.heard, &launch).and_then(millis);
            let is_shim_unknown = launch.pid.is_some() && !self.shims.is_reported(&launch.id);
            LaunchFacts { idle_ms, is_shim_unknown, ..LaunchFacts::from(launch) }
        });
        Ok(ServerView {
            at,
            linger_ms: millis(self.core.settings().linger),
            start_timeout_ms: millis(self.core.settings().start_timeout),
            session_maximum_ms: millis(self.core.settings().session_maximum),
            run: format!("{:x}", self.run),
            startable: startable.collect(),
            launches: launches.collect(),
        })
    }

    /// The view of one coordinator: what may be started, and its own launches. With the mark of an earlier view it returns
    /// when there may be news since, at the latest after `patience`; without one at once. Cancel-safe.
    ///
    /// # Errors
    /// `ServerStopping`, also for those who wait when the server is told to end.
    pub async fn wait_for_work(
        &self,
        coordinator: &CoordinatorId,
        seen: Option<&str>,
        patience: Duration,
    ) -> Result<Work, ServiceError> {
        limits::SEEN.take_optional(seen)?;
        let mut wakeups = self.waiting.coordinators.listen();
        if seen == Some(self.mark().as_str()) {
            tokio::select! {
                () = wakeups.woken() => {}
                () = self.ending.cancelled() => {}
                () = tokio::time::sleep(patience) => {}
            }
        }
        if self.ending.is_cancelled() {
            return Err(Refusal::ServerStopping.into());
        }
        // Before the look: what changes after it is news.
        let seen = self.mark();
        let mut view = self.view().await?;
        view.launches.retain(|launch| launch.coordinator.as_ref() == Some(coordinator));
        Ok(Work { seen, view })
    }

    /// Ends all waits for news; those who ask later aren't let wait either.
    pub fn end_waits(&self) {
        self.ending.cancel();
    }

    /// How far the news have come, in this run of the server.
    fn mark(&self) -> String {
        format!("{:x}.{}", self.run, self.waiting.coordinators.n_wakeups())
    }

    /// The launch that a coordinator elsewhere speaks of, which must be its own.
    ///
    /// # Errors
    /// `LaunchNotFound`, `NotYourLaunch`.
    pub async fn launch_of(
        &self,
        coordinator: Option<&CoordinatorId>,
        id: &LaunchId,
    ) -> Result<Launch, ServiceError> {
        let launch = self
            .core
            .store
            .launch(id)
            .await?
            .ok_or_else(|| Refusal::LaunchNotFound { launch: id.clone() })?;
        if launch.is_reported_by(coordinator) {
            Ok(launch)
        } else {
            Err(Refusal::NotYourLaunch { launch: id.clone() }.into())
        }
    }

    /// Takes what a coordinator says of a process, in its order and in one transaction; old news and unknown launches change nothing.
    pub async fn report_process(
        &self,
        id: &LaunchId,
        reports: &[ProcessReport],
    ) -> Result<(), ServiceError> {
        let event = |report: &ProcessReport| match report {
            // Nothing is reported before it happened: a clock that is ahead would hide failures from the back-off.
            ProcessReport::Started { pid, at, .. } => {
                LaunchEvent::ProcessStarted { pid: *pid, at: (*at).min(self.core.now()) }
            }
            ProcessReport::Exited { exit } => LaunchEvent::Exited { exit: *exit },
            ProcessReport::Ended { end, at } => {
                let end = match end {
                    ProcessEnd::StartFailed(reason) => ProcessEnd::StartFailed(
                        self.core.redacted(&limits::REASON.cut(reason)).into_owned(),
                    ),
                    other => other.clone(),
                };
                LaunchEvent::ProcessEnded { end, at: (*at).min(self.core.now()) }
            }
        };
        for report in reports {
            if let ProcessReport::Started { shim: Some(shim), .. } = report {
                self.note_shim(id, shim);
            }
        }
        let events: Vec<LaunchEvent> = reports.iter().map(event).collect();
        let ended = self.happen(id, &events).await?;
        if let Some(launch) = ended {
            log_end(&launch);
        }
        Ok(())
    }

    /// Keeps the end of what the agent of a launch printed, for launches whose output is elsewhere; at most 64 KiB of it. Not every
    /// coordinator takes out what is secret or acts on a terminal.
    pub async fn keep_output_tail(&self, id: &LaunchId, tail: &str) -> Result<(), ServiceError> {
        // It comes with the end, which comes after it.
        if self.core.store.launch(id).await?.is_none_or(|launch| !launch.is_open()) {
            return Ok(());
        }
        let from = tail.ceil_char_boundary(tail.len().saturating_sub(limits::MAX_OUTPUT_TAIL));
        let tail = printable::lines(&tail[from..]);
        let tail = Redactor::default().redact(tail.as_bytes());
        let tail = self.core.redacted(&String::from_utf8_lossy(&tail)).into_owned();
        let id = id.clone();
        self.core.write(move |tx| Ok(output_tails::put(tx, &id, &tail)?)).await
    }

    /// Marks a launch to be ended; the first reason wins, an ended or unknown launch stays as it is.
    pub async fn want_stop(&self, id: &LaunchId, reason: StopReason) -> Result<(), ServiceError> {
        self.want_stop_after(id, reason, Duration::ZERO).await
    }

    /// The same, with some patience before anything is done about it: the agent may go by itself.
    pub(super) async fn want_stop_after(
        &self,
        id: &LaunchId,
        reason: StopReason,
        patience: Duration,
    ) -> Result<(), ServiceError> {
        self.want_end(id, LaunchEvent::StopWanted { reason, at: self.core.now(), patience }).await
    }

    /// Lets happen to a launch what is to end it.
    pub(super) async fn want_end(
        &self,
        id: &LaunchId,
        event: LaunchEvent,
    ) -> Result<(), ServiceError> {
        let ended = self.happen(id, &[event]).await?;
        crash_point::reach(CrashPoint::StopWanted);
        if let Some(launch) = ended {
            log_end(&launch);
        }
        Ok(())
    }

    /// Lets `events` happen to a launch; the launch, if they ended it.
    pub(super) async fn happen(
        &self,
        id: &LaunchId,
        events: &[LaunchEvent],
    ) -> Result<Option<Launch>, ServiceError> {
        let (of, all, inputs) = (id.clone(), events.to_vec(), self.heard.inputs(&self.core));
        let (ended, started_after) = self
            .core
            .write(move |tx| {
                let Some(before) = launches::get(tx, &of)? else {
                    return Ok((None, None));
                };
                let Some(after) = inputs.happen(tx, &before, &all)? else {
                    return Ok((None, None));
                };
                let started_after = all.iter().find_map(|event| match event {
                    LaunchEvent::ProcessStarted { at, .. } if before.started_at.is_none() => {
                        Some(at.since(before.claimed_at))
                    }
                    _ => None,
                });
                Ok(((before.is_open() && !after.is_open()).then_some(after), started_after))
            })
            .await?;
        if let Some(started_after) = started_after {
            counters::UNTIL_STARTED.observe(started_after);
        }
        if ended.is_some() {
            self.heard.activities.forget(id);
        }
        Ok(ended)
    }

    /// Keeps the newest word of the coordinator in this process for everyone who looks.
    pub fn report_own_status(&self, status: CoordinatorStatus) {
        self.hear_status(status, true);
    }

    /// The same of a coordinator elsewhere.
    pub fn report_status(&self, status: CoordinatorStatus) {
        self.hear_status(status, false);
    }

    fn hear_status(&self, status: CoordinatorStatus, is_here: bool) {
        if self.coordinators.put(status, is_here) {
            self.waiting.reports.wake();
        }
    }

    /// Keeps the name of the coordinator that is in one process with this server from those elsewhere.
    pub fn keep_name(&self, own: CoordinatorId) {
        self.incarnations().reserve(own);
    }

    fn incarnations(&self) -> MutexGuard<'_, Incarnations> {
        self.incarnations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A coordinator is there: it asked for something, and said perhaps which start of it that is.
    ///
    /// # Errors
    /// `Superseded`, where a later start was heard.
    pub fn hear_coordinator(
        &self,
        coordinator: &CoordinatorId,
        incarnation: Option<Incarnation>,
    ) -> Result<(), Refusal> {
        if let Some(incarnation) = incarnation {
            // In memory: what was refused has ended, and what wasn't there to be refused is when both speak again.
            let heard = self.incarnations().hear(coordinator, incarnation, self.core.now());
            match heard {
                Heard::Latest => {}
                Heard::Successor => {
                    tracing::info!(coordinator_id = %coordinator, "a later start of a coordinator is there");
                    // One that goes on all the same may wait for news: it asks again, and hears of this.
                    self.waiting.coordinators.wake();
                }
                Heard::Superseded => {
                    return Err(Refusal::Superseded { coordinator: coordinator.clone() });
                }
            }
        }
        self.coordinators.heard_from(coordinator, self.core.now());
        Ok(())
    }

    /// Notes that a coordinator without an id asked for something.
    pub fn hear_unnamed_coordinator(&self) {
        self.coordinators.heard_from_unlisted(self.core.now());
    }
}

fn millis(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok()
}

/// The one line that tells how a launch ended, and its count.
pub(super) fn log_end(launch: &Launch) {
    let LaunchState::Ended { outcome, at } = &launch.state else {
        return;
    };
    counters::ENDS.add(outcome.as_str());
    let duration_ms = u64::try_from(at.since(launch.claimed_at).as_millis()).unwrap_or(u64::MAX);
    let failure = launch.activity.failure.map(|failure| failure.class.as_str());
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                launch_id = %launch.id, agent_id = %launch.key.agent, project_id = %launch.key.project,
                purpose = %launch.key.purpose, task_id = launch.task.as_ref().map(tracing::field::display),
                outcome = outcome.as_str(), reason = outcome.reason(), failure, exit_code = launch.exit.exit_code,
                signal = launch.exit.signal, duration_ms, "launch ended"
            )
        };
    }
    // What holds a pair back is for an operator's eyes.
    match launch.verdict(outcome, true) {
        Verdict::Fine => log!(info),
        Verdict::Failure | Verdict::AccountFailed | Verdict::Misconfigured => log!(warn),
    }
}
