//! Settles items by the results of their tasks. It checks an item whenever the item, its task or a
//! launch has changed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;

use crate::crash_point::{self, CrashPoint};
use crate::domain::forge::settle::{Work, settle};
use crate::domain::forge::texts::Texts;
use crate::domain::forge::{ForgeItem, ItemState};
use crate::domain::id::ItemId;
use crate::domain::{Task, TaskStatus, Timestamp};
use crate::nudge::sleep_until;
use crate::rows::{executions, forge_items, tasks};
use crate::store::{Read, StoreError};
use crate::telemetry::ErrorChain;

use super::ForgeItems;
use super::{launches_on, put_item};
use crate::service::ServiceError;

/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(5);

impl ForgeItems {
    /// Settles items as long as it is polled. Cancel-safe: each transaction is whole.
    pub async fn settle_all(&self) -> Infallible {
        let work = &self.waiting.forge_work;
        let _interest = work.interest();
        let mut changes = work.nudge.listen();
        // The first pass covers all items, because changes may have happened before.
        let mut looks_at_all = true;
        // The items that wait for the end of an agent.
        let mut waiting: BTreeSet<ItemId> = BTreeSet::new();
        loop {
            // The changes are taken before the pass, so later changes belong to the next pass.
            let changed = work.take();
            let looked = async {
                let before = waiting.clone();
                let items = self.core.read(move |tx| {
                    if looks_at_all {
                        return Ok(forge_items::list_open(tx)?);
                    }
                    let mut items = Vec::new();
                    for task in &changed.tasks {
                        let item = forge_items::find_of_task(tx, task)?;
                        items.extend(item.filter(ForgeItem::is_open));
                    }
                    for id in before.iter().filter(|_| changed.has_launches) {
                        items.extend(forge_items::get(tx, id)?);
                    }
                    Ok(items)
                });
                for ForgeItem { id, .. } in items.await? {
                    if self.settle_item(id.clone()).await? {
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

    /// Settles an item by its task and its launches. Returns whether it waits for the end of a
    /// launch.
    async fn settle_item(&self, id: ItemId) -> Result<bool, ServiceError> {
        let (inputs, now, wanted) = (self.heard.inputs(&self.core), self.core.now(), id.clone());
        let texts = inputs.forge_texts();
        // Most checks change nothing, and do not use the writer.
        let look = self.core.read(move |tx| Ok(look_at(tx, &wanted, texts, now)?)).await?;
        if look.change.is_none() {
            return Ok(look.waits);
        }
        let look = self
            .core
            .write(move |tx| {
                let now = tx.now();
                let look = look_at(tx, &id, texts, now)?;
                if let Some((before, after)) = &look.change {
                    put_item(tx, Some(before), after)?;
                }
                Ok(look)
            })
            .await?;
        if look.change.is_some() {
            crash_point::reach(CrashPoint::ItemSettled);
        }
        Ok(look.waits)
    }
}

/// The result of a look at an item.
struct Look {
    /// The item waits for the end of a launch.
    waits: bool,
    /// The item before and after the change.
    change: Option<(ForgeItem, ForgeItem)>,
}

fn look_at(
    tx: &mut Read<'_>,
    id: &ItemId,
    texts: Texts,
    now: Timestamp,
) -> Result<Look, StoreError> {
    let nothing = |waits| Look { waits, change: None };
    let is_settled =
        |item: &ForgeItem| matches!(item.state, ItemState::Claiming { .. } | ItemState::Ended(_));
    let Some(item) = forge_items::get(tx, id)?.filter(|item| !is_settled(item)) else {
        return Ok(nothing(false));
    };
    let task = tasks::get(tx, &item.task)?;
    if is_as_it_was(&item, task.as_ref()) {
        return Ok(nothing(false));
    }
    let is_alive = !launches_on(tx, &item)?.is_empty();
    let last = executions::list_of_task(tx, &item.task)?.into_iter().next();
    let work = Work { task: task.as_ref(), is_alive, last: last.as_ref() };
    let Some(after) = settle(&item, work, texts, now) else {
        return Ok(nothing(is_alive));
    };
    let waits = is_alive && !matches!(after.state, ItemState::Ended(_));
    Ok(Look { waits, change: Some((item, after)) })
}

/// Returns whether the work on it goes on as before. Most changes are of such items.
fn is_as_it_was(item: &ForgeItem, task: Option<&Task>) -> bool {
    use crate::domain::forge::Standing;
    item.state == ItemState::Active(Standing::Processing)
        && task.is_some_and(|task| task.status == TaskStatus::InProgress)
}
