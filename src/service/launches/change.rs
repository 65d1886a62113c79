//! What belongs to a change of a launch, whichever use case makes it: its sessions and executions end with its process, and
//! its key remembers how it went.

use crate::domain::chat::after_end;
use std::time::Duration;

use crate::crash_point::{self, CrashPoint};
use crate::domain::event::NewEvent;
use crate::domain::launch::{LaunchEvent, StopReason, Verdict};
use crate::domain::session::SessionEndReason;
use crate::domain::totals::of_ended;
use crate::domain::{Launch, LaunchId, LaunchState, Outcome, Purpose, Timestamp};
use crate::rows::{Transaction, executions, launches, pairs, startable};
use crate::store::StoreError;
use crate::telemetry::counters;

use super::accounts;
use crate::service::chats::agents as chat;
use crate::service::core::Core;
use crate::service::sessions::notices;
use crate::service::{Heard, Inputs, ServiceError};

impl Inputs {
    /// Makes of `before` what it is after these events, and returns it. Returns `None` if none of them can have happened.
    pub(in crate::service) fn happen(
        &self,
        tx: &mut Transaction<'_>,
        before: &Launch,
        events: &[LaunchEvent],
    ) -> Result<Option<Launch>, StoreError> {
        let mut after = None;
        for event in events {
            let launch = after.clone();
            let launch =
                launch.unwrap_or_else(|| self.heard.activities.with_newest(before.clone()));
            match launch.on(event) {
                Ok(launch) => after = Some(launch),
                Err(impossible) => {
                    tracing::debug!(launch_id = %before.id, reason = %impossible, "event ignored");
                }
            }
        }
        match after {
            Some(after) => self.advance(tx, before, after).map(Some),
            None => Ok(None),
        }
    }

    /// Writes what `before` has become, with what ends together with it, and returns it.
    fn advance(
        &self,
        tx: &mut Transaction<'_>,
        before: &Launch,
        mut after: Launch,
    ) -> Result<Launch, StoreError> {
        if after == *before {
            return Ok(after);
        }
        let is_over = |launch: &Launch| {
            matches!(launch.state, LaunchState::Ending | LaunchState::Ended { .. })
        };
        // Before the agent came in there is no session, and no work.
        if after.authenticated_at.is_some() && !is_over(before) && is_over(&after) {
            self.end_sessions(tx, &after.id, SessionEndReason::ProcessExited)?;
        }
        let read_up_to = chat::read_by_leaver(tx, before, &after)?;
        if let LaunchState::Ended { outcome, at } = after.state.clone() {
            notices::settle(tx, before)?;
            after.n_notices = 0;
            self.remember_end(tx, &after, &outcome, at, read_up_to.unwrap_or(0))?;
        } else if let Some(read_up_to) = read_up_to {
            let record = pairs::get(tx, &after.key)?;
            if record.read_up_to < read_up_to {
                pairs::put(tx, &record.answered(read_up_to))?;
            }
        }
        if before.state.as_str() != after.state.as_str() {
            accounts::note_state(tx, &after, self.settings.parking)?;
            tx.event(launches::event(&after, tx.now()));
            tx.count_ended(of_ended(&after));
        }
        launches::put(tx, &after)?;
        Ok(after)
    }

    /// Ends the work of a launch, and notes with its key how it went.
    fn remember_end(
        &self,
        tx: &mut Transaction<'_>,
        launch: &Launch,
        outcome: &Outcome,
        at: Timestamp,
        read_up_to: i64,
    ) -> Result<(), StoreError> {
        if launch.authenticated_at.is_some() {
            for mut execution in executions::list_of_launch(tx, &launch.id)? {
                execution.ended_at = execution.ended_at.or(Some(at));
                execution.outcome = Some(outcome.clone());
                (execution.usage, execution.failure) =
                    (launch.activity.usage, launch.activity.failure);
                executions::put(tx, &execution)?;
            }
        }
        let before = pairs::get(tx, &launch.key)?.answered(read_up_to);
        let was_suspended = before.suspended_since.is_some();
        let limit = self.settings.start_limit;
        let record = match launch.key.purpose {
            Purpose::Task => {
                let leaves_work = launch.task.is_some()
                    || startable::of_key(tx, &launch.key)?.waiting_since.is_some();
                let verdict = launch.verdict(outcome, leaves_work);
                before.after_end(verdict, launch.claimed_at, at, limit)
            }
            Purpose::Chat => {
                let unread = chat::newest_unread_after(tx, &launch.key, before.read_up_to)?;
                after_end(before, launch, outcome, unread, at, limit)
            }
        };
        if record.suspended_since.is_some() && !was_suspended {
            tx.event(NewEvent::of_pair("pair.suspended", tx.now(), &record.key));
        }
        pairs::put(tx, &record)
    }
}

/// Lets `events` happen to a launch, and logs its end if they ended it.
pub(in crate::service) async fn happen_logged(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    events: &[LaunchEvent],
) -> Result<(), ServiceError> {
    let ended = happen(core, heard, id, events).await?;
    ended.iter().for_each(log_end);
    Ok(())
}

/// Lets happen to a launch what is to end it.
pub(in crate::service) async fn want_end(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    event: LaunchEvent,
) -> Result<(), ServiceError> {
    let ended = happen(core, heard, id, &[event]).await?;
    crash_point::reach(CrashPoint::StopWanted);
    ended.iter().for_each(log_end);
    Ok(())
}

/// Marks a launch to be ended after `patience`, in which its agent may go by itself. The first reason wins; an ended or unknown
/// launch stays as it is.
pub(in crate::service) async fn want_stop(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    reason: StopReason,
    patience: Duration,
) -> Result<(), ServiceError> {
    let event = LaunchEvent::StopWanted { reason, at: core.now(), patience };
    want_end(core, heard, id, event).await
}

/// Lets `events` happen to a launch; the launch, if they ended it.
async fn happen(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    events: &[LaunchEvent],
) -> Result<Option<Launch>, ServiceError> {
    let (of, all, inputs) = (id.clone(), events.to_vec(), heard.inputs(core));
    let (ended, started_after) = core
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
        heard.activities.forget(id);
    }
    Ok(ended)
}

/// The one line that tells how a launch ended, and its count.
pub(in crate::service) fn log_end(launch: &Launch) {
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
