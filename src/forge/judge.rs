//! Asks for one of our items by itself, and does what the answer means.

use std::sync::Arc;
use std::time::Duration;

use super::FoundItem;
use super::seat::Seat;
use crate::config::TaskStop;
use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::{Eligibility, ForgeItem, ItemFacts, ItemState, Owed, Rules, StopCause};
use crate::service::ServiceError;
use crate::telemetry::ErrorChain;

/// How often and by what a repository is looked at.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    pub(super) poll_interval: Duration,
    pub(super) task_stop: TaskStop,
    pub(super) paused_task_expiry: Duration,
}

/// What an answer about an item was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    /// What it means is done.
    Finally,
    /// There was none, or its time hasn't come: the next look asks again.
    AskAgain,
}

/// Who judges.
#[derive(Clone)]
pub(super) struct Judge {
    pub(super) seat: Arc<Seat>,
    pub(super) habits: Habits,
}

impl Judge {
    /// Asks and acts. What counts is the item as it was asked for: one that has changed meanwhile is asked for again. Stops are for
    /// looks that are checks (`task_stop.check_interval`).
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
        // As it is now: it may have come further while the forge was asked.
        let item = service.forge_items.get(&item.id).await.map_err(|error| said(&error))?;
        // What the forge said of it is of before or after that; the next look tells.
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
                // Once may be a mistake of the forge, or of the token.
                Ok(true) => self.stop(&item, StopCause::Gone, is_checked).await,
                other => other.map(|_| Judged::AskAgain),
            },
            // Seed 002 §8.1: what can't be asked goes on.
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
                // Nothing is begun while the pause file is there, nor in a dry run.
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
            // Labels that we are about to set are no word of people.
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

/// Whether the forge has a say in it: what is being claimed is looked at by who claims it, and what is over is over.
pub(super) const fn is_watched(item: &ForgeItem) -> bool {
    matches!(item.state, ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. })
}

/// As it is shown.
pub(super) fn said(error: &ServiceError) -> String {
    ErrorChain(error).to_string()
}
