//! What becomes of items by what became of their tasks: looked at whenever something has changed.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;

use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::settle::{Work, settle};
use crate::domain::forge::{ForgeItem, ItemState};
use crate::nudge::sleep_until;
use crate::store::{Commit, CommitError, Expect};
use crate::telemetry::ErrorChain;

use super::{Service, ServiceError};

/// Looks follow one another at this distance, however much changes.
const PACE: Duration = Duration::from_millis(100);
/// After the store didn't answer.
const RETRY: Duration = Duration::from_secs(5);

impl Service {
    /// Settles items as long as it is polled. Cancel-safe: each commit is whole.
    pub async fn settle_forge_items(&self) -> Infallible {
        let mut changes = self.waiting.coordinators.listen();
        let mut news = self.waiting.forges.listen();
        let mut retry_at = Some(Instant::now());
        loop {
            tokio::select! {
                () = changes.woken() => {}
                () = news.woken() => {}
                () = sleep_until(retry_at) => {}
            }
            retry_at = match self.settle_items().await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(error = %ErrorChain(&error), "could not settle the items of forges; will try again");
                    Some(Instant::now() + RETRY)
                }
            };
            tokio::time::sleep(PACE).await;
        }
    }

    /// Settles all open items by their tasks and launches. Repeating it changes nothing.
    pub async fn settle_items(&self) -> Result<(), ServiceError> {
        for item in self.store.open_forge_items().await? {
            if !matches!(item.state, ItemState::Claiming { .. } | ItemState::Ended(_)) {
                self.settle_item(item).await?;
            }
        }
        Ok(())
    }

    async fn settle_item(&self, item: ForgeItem) -> Result<(), ServiceError> {
        let task = self.store.task(&item.task).await?;
        let is_alive = !self.launches_on(&item).await?.is_empty();
        let last = self.store.executions_of_task(&item.task).await?.into_iter().next();
        let work = Work { task: task.as_ref(), is_alive, last: last.as_ref() };
        let Some(after) = settle(&item, work, self.forge_texts(), self.now()) else { return Ok(()) };
        let expect = vec![Expect::TaskAt(item.task.clone(), task.as_ref().map_or(0, |task| task.revision))];
        match self.commit(Commit { expect, changes: self.item_changes(Some(&item), after) }).await {
            Ok(()) => {
                crash_point::reach(CrashPoint::ItemSettled);
                Ok(())
            }
            // Somebody else changed it: that is news, and there is another look.
            Err(CommitError::Outdated { .. } | CommitError::OpenLaunch { .. }) => Ok(()),
            Err(CommitError::Store(error)) => Err(error.into()),
        }
    }
}
