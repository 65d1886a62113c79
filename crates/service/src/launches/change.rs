//! The effects of a change of a launch, for all use cases. Its sessions and executions end with its
//! process, and its key remembers the result.

use std::time::Duration;

use domain::chat::after_end;
use domain::event::NewEvent;
use domain::launch::{LaunchEvent, StopReason, Verdict};
use domain::session::SessionEndReason;
use domain::spend::{Day, Register};
use domain::{Launch, LaunchId, LaunchState, Outcome, Purpose, Timestamp};
use machine::crash_point::{self, CrashPoint};
use runtime::telemetry::counters;
use store::StoreError;
use store::rows::{Transaction, executions, launch_spend, launches, start_histories, startable};

use super::{accounts, conversations};
use crate::chats::agents as chat;
use crate::core::Core;
use crate::sessions::notices;
use crate::{Heard, Inputs, ServiceError, checks};

impl Inputs {
    /// Applies these events to `before`. Events that cannot have happened change nothing.
    pub(crate) fn happen(
        &self,
        tx: &mut Transaction<'_>,
        before: &Launch,
        events: &[LaunchEvent],
    ) -> Result<(), StoreError> {
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
            Some(after) => self.advance(tx, before, after),
            None => Ok(()),
        }
    }

    /// Writes the changed launch, and ends its sessions and executions if it has ended. The end is
    /// logged and counted after the commit.
    fn advance(
        &self,
        tx: &mut Transaction<'_>,
        before: &Launch,
        mut after: Launch,
    ) -> Result<(), StoreError> {
        if after == *before {
            return Ok(());
        }
        let is_over = |launch: &Launch| {
            matches!(launch.state, LaunchState::Ending | LaunchState::Ended { .. })
        };
        // Before authentication there is no session and no work.
        if after.authenticated_at.is_some() && !is_over(before) && is_over(&after) {
            self.end_sessions(tx, &after.id, SessionEndReason::ProcessExited)?;
        }
        let read_up_to = chat::read_by_leaver(tx, before, &after)?;
        if let LaunchState::Ended { outcome, at } = after.state.clone() {
            notices::settle(tx, before)?;
            after.n_notices = 0;
            self.remember_end(tx, &after, &outcome, at, read_up_to.unwrap_or(0))?;
        } else if let Some(read_up_to) = read_up_to {
            start_histories::change(tx, &after.key, |record| record.answered(read_up_to))?;
        }
        if before.state.as_str() != after.state.as_str() {
            // A check does not use the account.
            if after.key.purpose != Purpose::Check {
                accounts::note_state(tx, &after, self.settings.parking)?;
            }
            tx.event(launches::event(&after, tx.now()));
        }
        if let (None, Some(at)) = (before.started_at, after.started_at) {
            let waited = at.since(before.claimed_at);
            tx.after_commit(move || counters::UNTIL_STARTED.observe(waited));
        }
        if before.is_open() && !after.is_open() {
            let launch = after.clone();
            let heard = self.heard.clone();
            tx.after_commit(move || heard.note_end(&launch));
        }
        if after.activity.usage != before.activity.usage {
            let day = self.heard.activities.register_of(&after.id).map(|newest| newest.day);
            let day = day.unwrap_or_else(|| Day::of(tx.now()));
            let report = Register { day, usage: after.activity.usage };
            launch_spend::raise(tx, &after.id, report)?;
        }
        launches::put(tx, &after)
    }

    /// Ends the work of a launch, and stores the result with its key.
    fn remember_end(
        &self,
        tx: &mut Transaction<'_>,
        launch: &Launch,
        outcome: &Outcome,
        at: Timestamp,
        read_up_to: i64,
    ) -> Result<(), StoreError> {
        if launch.authenticated_at.is_some() {
            for before in executions::list_of_launch(tx, &launch.id)? {
                let mut execution = before.clone();
                execution.ended_at = execution.ended_at.or(Some(at));
                execution.outcome = Some(outcome.clone());
                execution.failure = launch.activity.failure;
                executions::put(tx, Some(&before), &execution)?;
            }
        }
        let (before, leaves_work) = match launch.key.purpose {
            // One query has both.
            Purpose::Task if launch.task.is_none() || *outcome == Outcome::ExitedWithoutReport => {
                let facts = startable::of_key(tx, &launch.key)?;
                (facts.record, facts.waiting_since.is_some())
            }
            _ => (start_histories::get(tx, &launch.key)?, true),
        };
        let record = before.clone().answered(read_up_to);
        let limit = self.settings.start.failure_limit();
        let record = match launch.key.purpose {
            Purpose::Check => {
                checks::note_end(tx, self, launch, outcome, at)?;
                let verdict = launch.verdict(outcome, true);
                record.after_end(verdict, launch.claimed_at, at, limit)
            }
            Purpose::Task => {
                let verdict = launch.verdict(outcome, leaves_work);
                match conversations::note_end(tx, launch, outcome, at, verdict)? {
                    Some(verdict) => record.after_end(verdict, launch.claimed_at, at, limit),
                    None => record,
                }
            }
            Purpose::Chat => {
                let unread = chat::newest_unread_after(tx, &launch.key, record.read_up_to)?;
                after_end(record, launch, outcome, unread, at, limit)
            }
        };
        if record.suspended_since.is_some() && before.suspended_since.is_none() {
            tx.event(NewEvent::of_pair("pair.suspended", tx.now(), &record.key));
        }
        start_histories::write(tx, &before, &record).map(drop)
    }
}

impl Heard {
    /// Notes the end of a launch: its activity is in its row from now on, and it counts in the
    /// totals.
    fn note_end(&self, launch: &Launch) {
        self.activities.forget(&launch.id);
        self.totals.add(launch);
        log_end(launch);
    }
}

/// Applies `events` to a launch. An unknown launch changes nothing.
pub(crate) async fn happen(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    events: &[LaunchEvent],
) -> Result<(), ServiceError> {
    let id = id.clone();
    let events = events.to_vec();
    let inputs = heard.inputs(core);
    core.write(move |tx| match launches::get(tx, &id)? {
        Some(before) => Ok(inputs.happen(tx, &before, &events)?),
        None => Ok(()),
    })
    .await
}

/// Applies an event that asks for the end of a launch.
pub(crate) async fn want_end(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    event: LaunchEvent,
) -> Result<(), ServiceError> {
    happen(core, heard, id, &[event]).await?;
    crash_point::reach(CrashPoint::StopWanted);
    Ok(())
}

/// Marks a launch to be ended. The agent of an idle chat has `run.linger` to log out; all others are
/// stopped at once. The first reason wins. An ended or unknown launch stays as it is.
pub(crate) async fn want_stop(
    core: &Core,
    heard: &Heard,
    id: &LaunchId,
    reason: StopReason,
) -> Result<(), ServiceError> {
    let exit_grace = match reason {
        StopReason::ChatIdle => core.settings().run.linger,
        _ => Duration::ZERO,
    };
    let event = LaunchEvent::StopWanted { reason, at: core.now(), exit_grace };
    want_end(core, heard, id, event).await
}

/// Logs the end of a launch in one line, and counts it.
fn log_end(launch: &Launch) {
    let LaunchState::Ended { outcome, at } = &launch.state else {
        return;
    };
    counters::ENDS.add(outcome.as_str());
    let duration_ms = domain::time::millis(at.since(launch.claimed_at));
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
    // The client of an agent that no coordinator keeps made the call that ended it.
    let ends_itself = matches!(
        outcome,
        Outcome::Completed | Outcome::Blocked | Outcome::Failed | Outcome::ExitedWithoutReport
    );
    // A failure that keeps the pair from starting is a warning for operators.
    match launch.verdict(outcome, true) {
        Verdict::Fine => log!(info),
        _ if !launch.is_kept() && ends_itself => log!(info),
        Verdict::Failure | Verdict::AccountFailed | Verdict::Misconfigured => log!(warn),
    }
}
