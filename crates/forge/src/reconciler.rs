//! Reads one of our items alone, and acts on the answer.

use std::sync::Arc;
use std::time::Duration;

use super::FoundItem;
use super::host_state::HostState;
use config::TaskStop;
use domain::forge::{Eligibility, ForgeItem, ItemFacts, ItemState, PendingWrite, Rules, StopCause};
use machine::crash_point::{self, CrashPoint};
use runtime::telemetry::ErrorChain;
use service::ServiceError;

/// The poll settings of a repository.
#[derive(Debug, Clone)]
pub(super) struct PollSettings {
    pub(super) poll_interval: Duration,
    pub(super) task_stop: TaskStop,
    pub(super) paused_task_expiry: Duration,
}

/// The effect of an answer about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reconciled {
    /// The answer was acted upon.
    Finally,
    /// There was no answer, or it is too early. The next poll asks again.
    AskAgain,
}

/// Judges items.
pub(super) struct Reconciler {
    pub(super) host_state: Arc<HostState>,
    pub(super) poll_settings: PollSettings,
}

impl Reconciler {
    /// Reads an item and acts on the answer. If the item has changed meanwhile, it is read again.
    /// Stops need a poll that is a check (`task_stop.check_interval`).
    pub(super) async fn reconcile(
        &self,
        rules: &Rules,
        item: ForgeItem,
        is_checked: bool,
    ) -> Result<Reconciled, String> {
        let Ok(forge) = self.host_state.forge() else {
            return Ok(Reconciled::AskAgain);
        };
        let revision = item.revision;
        let answer = self.host_state.find(&forge, &item).await;
        let service = &self.host_state.service;
        // The item is read from the store again, because it may have changed during the question.
        let item = service.forge_items.get(&item.id).await.map_err(|error| said(&error))?;
        // The answer may be older or newer than the change. The next poll decides.
        let Some(item) = item.filter(|item| item.revision == revision) else {
            return Ok(Reconciled::AskAgain);
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
                other => other.map(|_| Reconciled::AskAgain),
            },
            // The work on an item without an answer goes on.
            Err(error) => {
                tracing::debug!(item = %item.key, %error, "a forge item could not be looked at; its work goes on");
                Ok(Reconciled::AskAgain)
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
    ) -> Result<Reconciled, ServiceError> {
        let service = &self.host_state.service;
        if item.is_missing {
            service.forge_items.note_missing(&item.id, false).await?;
        }
        match rules.judge(facts, Some(&item.state)) {
            Eligibility::Eligible => {
                // Nothing begins while the pause file exists, nor in a dry run.
                if self.host_state.is_dry_run || service.are_starts_held() {
                    return Ok(Reconciled::AskAgain);
                }
                if matches!(item.state, ItemState::Paused { .. }) {
                    service.forge_items.resume(&item.id, Eligibility::Eligible).await?;
                    crash_point::reach(CrashPoint::ItemResumed);
                } else if rules.is_asked_again(facts, &item.state) && item.pending.is_empty() {
                    service.forge_items.retry(&item.id).await?;
                }
                Ok(Reconciled::Finally)
            }
            // Labels with a pending write of ours are not decisions of people.
            Eligibility::Not(StopCause::Unlabelled)
                if item.pending.iter().any(|write| matches!(write, PendingWrite::Label { .. })) =>
            {
                Ok(Reconciled::Finally)
            }
            Eligibility::Not(cause) => self.stop(item, cause, is_checked).await,
        }
    }

    async fn stop(
        &self,
        item: &ForgeItem,
        cause: StopCause,
        is_checked: bool,
    ) -> Result<Reconciled, ServiceError> {
        if !self.poll_settings.task_stop.enabled {
            return Ok(Reconciled::Finally);
        }
        if !is_checked {
            return Ok(Reconciled::AskAgain);
        }
        self.host_state.service.forge_items.stop(&item.id, cause).await?;
        crash_point::reach(CrashPoint::ItemStopWanted);
        Ok(Reconciled::Finally)
    }
}

/// Returns whether the forge decides about the item. Claims are checked by the outbox worker, and
/// ended items are not checked.
pub(super) const fn is_watched(item: &ForgeItem) -> bool {
    matches!(item.state, ItemState::Active(_) | ItemState::Pausing | ItemState::Paused { .. })
}

/// Returns the error in the form that is shown.
pub(super) fn said(error: &ServiceError) -> String {
    ErrorChain(error).to_string()
}
