//! What becomes of items by what became of their tasks: looked at whenever one of these, or a launch, has changed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;

use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::settle::{Work, settle};
use crate::domain::forge::{ForgeItem, ItemState};
use crate::domain::id::ItemId;
use crate::domain::{Task, TaskStatus};
use crate::nudge::sleep_until;
use crate::store::{Commit, CommitError, Expect};
use crate::telemetry::ErrorChain;

use super::{Service, ServiceError};

/// After the store didn't answer.
const RETRY: Duration = Duration::from_secs(5);

impl Service {
    /// Settles items as long as it is polled. Cancel-safe: each commit is whole.
    pub async fn settle_forge_items(&self) -> Infallible {
        let work = &self.waiting.forge_work;
        let _interest = work.interest();
        let mut changes = work.nudge.listen();
        // Of everything first: what happened while nobody looked.
        let mut looks_at_all = true;
        // Those that wait for the end of an agent.
        let mut waiting: BTreeSet<ItemId> = BTreeSet::new();
        loop {
            // Before the look: what changes meanwhile is looked at next.
            let changed = work.take();
            let looked = async {
                let items = if looks_at_all {
                    self.store.open_forge_items().await?
                } else {
                    let mut items = Vec::new();
                    for task in &changed.tasks {
                        items.extend(
                            self.store.forge_item_of_task(task).await?.filter(ForgeItem::is_open),
                        );
                    }
                    if changed.has_launches {
                        for id in &waiting {
                            items.extend(self.store.forge_item(id).await?);
                        }
                    }
                    items
                };
                for item in items {
                    let id = item.id.clone();
                    if self.settle_item(item).await? {
                        waiting.insert(id);
                    } else {
                        waiting.remove(&id);
                    }
                }
                Ok::<(), ServiceError>(())
            };
            let failed = looked.await.err();
            looks_at_all = failed.is_some();
            let retry_at = failed.map(|error| {
                tracing::warn!(error = %ErrorChain(&error), "could not settle the items of forges; will try again");
                Instant::now() + RETRY
            });
            tokio::select! {
                () = changes.woken() => {}
                () = sleep_until(retry_at) => {}
            }
        }
    }

    /// Settles an item by its task and its launches. Whether it waits for the end of one of these.
    async fn settle_item(&self, item: ForgeItem) -> Result<bool, ServiceError> {
        if matches!(item.state, ItemState::Claiming { .. } | ItemState::Ended(_)) {
            return Ok(false);
        }
        let task = self.store.task(&item.task).await?;
        if is_as_it_was(&item, task.as_ref()) {
            return Ok(false);
        }
        let is_alive = !self.launches_on(&item).await?.is_empty();
        let last = self.store.executions_of_task(&item.task).await?.into_iter().next();
        let work = Work { task: task.as_ref(), is_alive, last: last.as_ref() };
        let Some(after) = settle(&item, work, self.forge_texts(), self.now()) else {
            return Ok(is_alive);
        };
        let expect =
            vec![Expect::TaskAt(item.task.clone(), task.as_ref().map_or(0, |task| task.revision))];
        let waits = is_alive && !matches!(after.state, ItemState::Ended(_));
        match self.commit(Commit { expect, changes: self.item_changes(Some(&item), after) }).await {
            Ok(()) => {
                crash_point::reach(CrashPoint::ItemSettled);
                Ok(waits)
            }
            // Somebody else changed it: another look.
            Err(CommitError::Outdated { .. } | CommitError::OpenLaunch { .. }) => {
                self.waiting.forge_work.again(&item.task);
                Ok(true)
            }
            Err(CommitError::Store(error)) => Err(error.into()),
        }
    }
}

/// Whether somebody works on it as before: most changes are of such.
fn is_as_it_was(item: &ForgeItem, task: Option<&Task>) -> bool {
    use crate::domain::forge::Standing;
    item.state == ItemState::Active(Standing::Processing)
        && task.is_some_and(|task| task.status == TaskStatus::InProgress)
}
