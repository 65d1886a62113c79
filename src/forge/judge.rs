//! Reads one of our items alone, and acts on the answer.

use std::sync::Arc;
use std::time::Duration;

use super::FoundItem;
use super::seat::Seat;
use crate::config::TaskStop;
use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::{Eligibility, ForgeItem, ItemFacts, ItemState, Owed, Rules, StopCause};
use crate::service::ServiceError;
use crate::telemetry::ErrorChain;

/// The polling habits for a repository.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    pub(super) poll_interval: Duration,
    pub(super) task_stop: TaskStop,
    pub(super) paused_task_expiry: Duration,
}

/// The effect of an answer about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// The answer was acted upon.
    Finally,
    /// There was no answer, or it is too early. The next poll asks again.
    AskAgain,
}

/// Judges items.
#[derive(Clone)]
pub(super) struct Judge {
    pub(super) seat: Arc<Seat>,
    pub(super) habits: Habits,
}

impl Judge {
    /// Reads an item and acts on the answer. If the item has changed meanwhile, it is read again.
    /// Stops need a poll that is a check (`task_stop.check_interval`).
    pub(super) async fn judge(
        &self,
        rules: &Rules,
        item: ForgeItem,
        is_checked: bool,
    ) -> Result<Judged, String> {
        let Ok(forge) = self.seat.forge() else {
            return Ok(Judged::AskAgain);
        };
        let revision = item.revision;
        let answer = self.seat.find(&*forge, &item).await;
        let service = &self.seat.service;
        // The item is read from the store again, because it may have changed during the question.
        let item = service.forge_items.get(&item.id).await.map_err(|error| said(&error))?;
        // The answer may be older or newer than the change. The next poll decides.
        let Some(item) = item.filter(|item| item.revision == revision) else {
            return Ok(Judged::AskAgain);
        };
        let done = match answer {
            Ok(FoundItem::Here(facts)) => self.act(rules, &item, &facts, is_checked).await,
            Ok(FoundItem::Moved(to)) => {
                tracing::info!(item = %item.key, to, "a forge item was moved");
                self.stop(&item, StopCause::Moved, is_checked).await
            }
            Ok(FoundItem::Gone) => match service.forge_items.note_missing(&item.id, true).await {
                // A single answer may be a mistake of the forge, or of the token.
                Ok(true) => self.stop(&item, StopCause::Gone, is_checked).await,
                other => other.map(|_| Judged::AskAgain),
            },
            // The work on an item without an answer goes on.
            Err(error) => {
                tracing::debug!(item = %item.key, %error, "a forge item could not be looked at; its work goes on");
                Ok(Judged::AskAgain)
            }
        };
        done.map_err(|error| said(&error))
    }

    async fn act(
        &self,
        rules: &Rules,
        item: &ForgeItem,
        facts: &ItemFacts,
        is_checked: bool,
    ) -> Result<Judged, ServiceError> {
        let service = &self.seat.service;
        if item.is_missing {
            service.forge_items.note_missing(&item.id, false).await?;
        }
        match rules.judge(facts, Some(&item.state)) {
            Eligibility::Eligible => {
                // Nothing begins while the pause file exists, nor in a dry run.
                if service.are_starts_held() || self.seat.is_dry_run {
                    return Ok(Judged::AskAgain);
                }
                if matches!(item.state, ItemState::Paused { .. }) {
                    service.forge_items.resume(&item.id, Eligibility::Eligible).await?;
                    crash_point::reach(CrashPoint::ItemResumed);
                } else if rules.is_asked_again(facts, &item.state) && item.owed.is_empty() {
                    service.forge_items.retry(&item.id).await?;
                }
                Ok(Judged::Finally)
            }
            // Labels with a pending write of ours are not decisions of people.
            Eligibility::Not(StopCause::Unlabelled)
                if item.owed.iter().any(|owed| matches!(owed, Owed::Label { .. })) =>
            {
                Ok(Judged::Finally)
            }
            Eligibility::Not(cause) => self.stop(item, cause, is_checked).await,
        }
    }

    async fn stop(
        &self,
        item: &ForgeItem,
        cause: StopCause,
        is_checked: bool,
    ) -> Result<Judged, ServiceError> {
        if !self.habits.task_stop.enabled {
            return Ok(Judged::Finally);
        }
        if !is_checked {
            return Ok(Judged::AskAgain);
        }
        self.seat.service.forge_items.stop(&item.id, cause).await?;
        crash_point::reach(CrashPoint::ItemStopWanted);
        Ok(Judged::Finally)
    }
}

/// Returns whether the forge decides about the item. Claims are checked by the performer, and ended
/// items are not checked.
pub(super) const fn is_watched(item: &ForgeItem) -> bool {
    matches!(item.state, ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. })
}

/// Returns the error in the form that is shown.
pub(super) fn said(error: &ServiceError) -> String {
    ErrorChain(error).to_string()
}
