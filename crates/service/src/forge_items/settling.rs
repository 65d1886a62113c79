//! Settles items by the results of their tasks. It checks all open items whenever a task or a launch
//! has changed.

use std::convert::Infallible;
use std::time::Duration;

use domain::forge::ForgeItem;
use domain::forge::settle::{Work, settle};
use domain::forge::texts::Texts;
use domain::task::Mover;
use domain::{TaskStatus, Timestamp};
use machine::crash_point::{self, CrashPoint};
use runtime::clock;
use runtime::nudge::sleep_until;
use runtime::telemetry::ErrorChain;
use store::rows::{events, executions, forge_items, tasks};
use store::{Read, StoreError};

use super::ForgeItems;
use super::{launches_on, put_item};
use crate::ServiceError;
use crate::waiting::SOON;
use crate::workspaces::is_in_use;

/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(5);

impl ForgeItems {
    /// Settles items as long as it is polled. Cancel-safe: each transaction is whole.
    pub async fn settle_all(&self) -> Infallible {
        let mut work = self.waiting.coordinators.listen();
        loop {
            let failed = self.settle_open().await.err();
            let retry_at = failed.map(|error| {
                tracing::warn!(error = %ErrorChain(&error), "could not settle the items of forges; will try again");
                clock::now() + RETRY
            });
            tokio::select! {
                () = work.woken() => {}
                () = sleep_until(retry_at) => {}
            }
            tokio::time::sleep(SOON).await;
        }
    }

    /// Settles the open items, each in a transaction. Most passes find none that changes, and do
    /// not use the only writer.
    async fn settle_open(&self) -> Result<(), ServiceError> {
        let texts = self.heard.inputs(&self.core).forge_texts();
        let now = self.core.now();
        let read = self.core.read(move |tx| {
            let mut due = Vec::new();
            for item in forge_items::list_open(tx)? {
                if settled(tx, &item, texts, now)?.is_some() {
                    due.push(item.id);
                }
            }
            Ok(due)
        });
        for id in read.await? {
            let write = self.core.write(move |tx| {
                let Some(item) = forge_items::get(tx, &id)? else { return Ok(false) };
                let now = tx.now();
                let after = settled(tx, &item, texts, now)?;
                if let Some(after) = &after {
                    put_item(tx, Some(&item), after)?;
                }
                Ok(after.is_some())
            });
            if write.await? {
                crash_point::reach(CrashPoint::ItemSettled);
            }
        }
        Ok(())
    }
}

/// Returns an item in its new state; `None` if nothing changes.
fn settled(
    tx: &mut Read<'_>,
    item: &ForgeItem,
    texts: Texts,
    now: Timestamp,
) -> Result<Option<ForgeItem>, StoreError> {
    let task = tasks::get(tx, &item.task)?;
    let last = executions::list_of_task(tx, &item.task)?.into_iter().next();
    let is_done = task.as_ref().is_some_and(|task| task.status == TaskStatus::Done);
    let mover = if is_done { events::mover_of_task(tx, &item.task)? } else { None };
    let is_by_hand = matches!(mover, Some(Mover::Person(_)));
    let work = |is_alive| Work { task: task.as_ref(), is_alive, last: last.as_ref(), is_by_hand };
    // Most items stay as they are whether or not an agent works on them, which is the slowest
    // question.
    if settle(item, work(false), texts, now).is_none() {
        return Ok(None);
    }
    // A result that goes to the forge must be kept first.
    let is_alive = !launches_on(tx, item)?.is_empty()
        || (item.publication.is_some() && is_in_use(tx, &item.task)?);
    Ok(settle(item, work(is_alive), texts, now))
}
