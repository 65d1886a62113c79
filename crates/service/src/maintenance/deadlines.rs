//! Ends overdue launches: agents that go on after a notice of a change, and silent chats.
//!
//! Unlike the cleanup, this runs when it is due: the caller sleeps for the returned time, and
//! [`Service::deadlines`](crate::Service::deadlines) wakes it.

use std::time::Duration;

use domain::StopReason;
use domain::stopwatch::AtFirst;
use store::rows::{launches, notices};

use super::Maintenance;
use crate::ServiceError;
use crate::chats::silence;
use crate::clocks::{Look, Subject};
use crate::launches::change::want_stop;
use crate::sessions::next_action::PAUSE_BETWEEN_POLLS;

impl Maintenance {
    /// Asks for a stop of every launch that is overdue, and returns the time until the next can be.
    /// `None` means that only a new deadline can make one overdue.
    pub async fn end_overdue(&self) -> Result<Option<Duration>, ServiceError> {
        let began = self.clocks.moment();
        let mut next: Option<Duration> = None;
        let mut wait = |left: Duration| next = Some(next.map_or(left, |next| next.min(left)));
        for notice in self.core.read(|tx| Ok(notices::list_open(tx)?)).await? {
            let Some(since) = notice.waited_for_since() else {
                continue;
            };
            let subject = Subject::Notice(notice.id.clone(), since);
            let lasted = self.clocks.lasted(Look::Overdue, subject, since, AtFirst::Believe);
            let left = self.core.settings().notice.grace.saturating_sub(lasted);
            if left.is_zero() {
                tracing::warn!(
                    launch_id = %notice.launch, task_id = notice.task.as_ref().map(tracing::field::display),
                    reason = notice.action.as_str(), "agent ignored a notice until its deadline; stopping it"
                );
                want_stop(&self.core, &self.heard, &notice.launch, StopReason::NoticeIgnored)
                    .await?;
            } else {
                wait(left);
            }
        }
        for launch in self.core.read(|tx| Ok(launches::list_open(tx)?)).await? {
            let patience = self.time_to_ask_again();
            match silence::left(&self.core, &self.clocks, &launch, patience).await? {
                Some(left) if left.is_zero() => {
                    tracing::info!(launch_id = %launch.id, "a chat has been idle for too long; ending it");
                    want_stop(&self.core, &self.heard, &launch.id, StopReason::ChatIdle).await?;
                }
                Some(left) => wait(left),
                None => {}
            }
        }
        self.clocks.end_look(Look::Overdue, began);
        Ok(next)
    }

    /// Returns the time after the end of its chat that an agent without held calls needs to ask
    /// again and be told to log out.
    fn time_to_ask_again(&self) -> Duration {
        if self.core.settings().chat.poll_hold.is_zero() {
            2 * PAUSE_BETWEEN_POLLS
        } else {
            Duration::ZERO
        }
    }
}
