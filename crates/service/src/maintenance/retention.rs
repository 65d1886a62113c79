//! Deletes old rows in small transactions, so that other calls do not wait long for the store.
//! [`domain::retention`] decides which rows may go. The output of agents is on their host,
//! and their coordinator removes it.

use domain::event::EventSpan;
use domain::retention::{PastLaunch, Retention};
use domain::{Assignment, InstanceKey, Purpose, Timestamp};
use runtime::telemetry::counters;
use store::rows::{
    Transaction, events, forge_items, launch_retention, launches, messages, start_histories, tasks,
};
use store::{Read, StoreError};

use super::Maintenance;
use crate::ServiceError;

/// The number of launches that are checked together.
const PAGE: usize = 100;
/// The approximate number of launches that one pass deletes. The others wait for the next pass.
const MAX_LAUNCHES: u64 = 1_000;
/// The number of events in one transaction. Messages go for a whole chat at once, because they are
/// few.
const MAX_EVENTS: i64 = 2_000;

impl Maintenance {
    /// Deletes old rows that are not needed any more. Cancel-safe: each transaction is whole.
    pub(crate) async fn forget_the_past(&self) -> Result<(), ServiceError> {
        let n_launches = self.forget_launches().await? + self.forget_deleted().await?;
        let n_events = self.forget_events().await?;
        let n_chats = self.forget_messages().await?;
        let n_items = self.forget_forge_items().await?;
        if n_launches + n_events + n_chats + n_items > 0 {
            tracing::info!(n_launches, n_events, n_chats, n_items, "removed old records");
        }
        Ok(())
    }

    async fn forget_launches(&self) -> Result<u64, ServiceError> {
        let retention = self.core.settings().retention.clone();
        let now = self.clocks.now_by_age();
        let mut n_forgotten = 0;
        let mut after = None::<PastLaunch>;
        loop {
            let before = retention.history_before(now);
            let read = self
                .core
                .read(move |tx| Ok(launch_retention::launches(tx, before, after.as_ref(), PAGE)?));
            let page = read.await?;
            for past in page.iter().filter(|past| retention.lets_go(past, now)) {
                n_forgotten += u64::from(self.forget_launch(past.clone()).await?);
            }
            let is_last = page.len() < PAGE || n_forgotten >= MAX_LAUNCHES;
            after = page.into_iter().last();
            if is_last {
                counters::FORGOTTEN.add_many("launch", n_forgotten);
                return Ok(n_forgotten);
            }
        }
    }

    /// Deletes a launch, and returns whether it did. A launch stays until the next time if one of
    /// its tasks was changed at this moment: a reopened task keeps its memory.
    async fn forget_launch(&self, past: PastLaunch) -> Result<bool, ServiceError> {
        self.core
            .write(move |tx| {
                for work in &past.newest_of {
                    let task = tasks::get(tx, &work.task)?;
                    if task.map_or(0, |task| task.revision) != work.revision {
                        return Ok(false);
                    }
                }
                launches::forget(tx, &past.id)?;
                Ok(true)
            })
            .await
    }

    async fn forget_events(&self) -> Result<u64, ServiceError> {
        let retention = self.core.settings().retention.clone();
        let now = self.clocks.now_by_age();
        let before = retention.events_before(now);
        let read =
            self.core.read(move |tx| Ok((events::span(tx)?, events::last_before(tx, before)?)));
        let (span, last_old) = read.await?;
        let Some(up_to) = retention.events_up_to(span, last_old) else {
            return Ok(0);
        };
        let EventSpan { oldest, .. } = span;
        let mut gone = oldest - 1;
        while gone < up_to {
            gone = up_to.min(gone + MAX_EVENTS);
            self.core.write(move |tx| Ok(events::forget(tx, gone)?)).await?;
        }
        let n_forgotten = u64::try_from(up_to - oldest + 1).unwrap_or(0);
        counters::FORGOTTEN.add_many("event", n_forgotten);
        Ok(n_forgotten)
    }

    async fn forget_forge_items(&self) -> Result<u64, ServiceError> {
        let before = self.core.settings().retention.history_before(self.clocks.now_by_age());
        let read = self.core.read(move |tx| Ok(forge_items::list_ended_before(tx, before, PAGE)?));
        let past = read.await?;
        let n_forgotten = past.len() as u64;
        if !past.is_empty() {
            let forget = move |tx: &mut Transaction<'_>| {
                Ok(past.iter().try_for_each(|id| forge_items::forget(tx, id))?)
            };
            self.core.write(forget).await?;
            counters::FORGOTTEN.add_many("forge_item", n_forgotten);
        }
        Ok(n_forgotten)
    }

    async fn forget_messages(&self) -> Result<u64, ServiceError> {
        let retention = self.core.settings().retention.clone();
        let now = self.clocks.now_by_age();
        let Some(before) = retention.chats_before(now) else {
            return Ok(0);
        };
        let look = retention.clone();
        let read = self.core.read(move |tx| {
            let mut old = Vec::new();
            for chat in messages::list_chats(tx)? {
                if messages_up_to(tx, &chat, &look, before)?.is_some() {
                    old.push(chat);
                }
            }
            Ok(old)
        });
        let chats = read.await?;
        let n_chats = chats.len() as u64;
        for chat in chats {
            let retention = retention.clone();
            let forget = self.core.write(move |tx| {
                // A person may have begun to wait for the agent.
                if let Some(up_to) = messages_up_to(tx, &chat, &retention, before)? {
                    messages::forget(tx, &chat, up_to)?;
                }
                Ok(())
            });
            forget.await?;
        }
        counters::FORGOTTEN.add_many("chat", n_chats);
        Ok(n_chats)
    }
}

/// Returns the number up to which the messages of a chat from before `before` may go.
fn messages_up_to(
    tx: &mut Read<'_>,
    chat: &Assignment,
    retention: &Retention,
    before: Timestamp,
) -> Result<Option<i64>, StoreError> {
    let key = InstanceKey::new(chat.agent.clone(), chat.project.clone(), Purpose::Chat);
    let is_open = launches::is_open(tx, &key)?;
    let last_old = messages::last_before(tx, chat, before)?;
    let record = start_histories::get(tx, &key)?;
    Ok(retention.messages_up_to(&record, is_open, last_old))
}
