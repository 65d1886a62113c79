//! The open panels of chats: those of the page, and the requests by which `chat` reads messages.
//! When the last panel closes, the chat ends after a short delay, because a reloaded page closes
//! its panel and opens it again.
//!
//! Only a chat that had a panel ends like this: a chat that a script opened by REST has none from
//! the beginning. The panels are in memory. After a restart of the server they come back by
//! themselves, and a chat without a panel ends by its silence.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use domain::Assignment;
use machine::locks::lock;
use runtime::clock;
use runtime::nudge::Nudge;
use runtime::telemetry::ErrorChain;

use super::{Chats, people};
use crate::Heard;
use crate::core::Core;

/// The time that a chat waits for a panel after the last one closed.
const RELOAD_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Attendances {
    tables: Mutex<BTreeMap<Assignment, Table>>,
    /// Wakes when a panel closes.
    pub(crate) departures: Nudge,
}

#[derive(Debug, Default)]
struct Table {
    n_open: usize,
    left_at: Option<Instant>,
}

impl Attendances {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Assignment, Table>> {
        lock(&self.tables)
    }

    /// Returns whether a panel is open at the chat.
    pub(crate) fn is_attended(&self, chat: &Assignment) -> bool {
        self.lock().get(chat).is_some_and(|table| table.n_open > 0)
    }

    /// Returns the time when the next chat without a panel ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.lock()
            .values()
            .filter_map(|table| table.left_at)
            .min()
            .map(|left_at| left_at + RELOAD_GRACE)
    }

    fn take_left(&self, now: Instant) -> Vec<Assignment> {
        let mut tables = self.lock();
        let is_over =
            |table: &Table| table.left_at.is_some_and(|left_at| left_at + RELOAD_GRACE <= now);
        let over = tables
            .iter()
            .filter(|(_, table)| is_over(table))
            .map(|(chat, _)| chat.clone())
            .collect();
        tables.retain(|_, table| !is_over(table));
        over
    }
}

/// An open panel. Dropping the value closes it.
pub struct Presence {
    attendances: Arc<Attendances>,
    chat: Assignment,
}

impl Chats {
    /// Counts a panel that is opened at a chat, until the value is dropped.
    pub fn attend(&self, chat: Assignment) -> Presence {
        let mut tables = self.attendances.lock();
        let table = tables.entry(chat.clone()).or_default();
        table.n_open += 1;
        table.left_at = None;
        Presence { attendances: Arc::clone(&self.attendances), chat }
    }
}

/// Ends the chats whose panels have been closed long enough.
pub(crate) async fn end_left(core: &Core, heard: &Heard, attendances: &Attendances) {
    for Assignment { agent, project } in attendances.take_left(clock::now()) {
        tracing::info!(agent_id = %agent, project_id = %project, "the last view of a chat was closed; ending the chat");
        if let Err(error) = people::end(core, heard, &agent, &project).await {
            tracing::warn!(error = %ErrorChain(&error), "could not end a chat; it will end after its idle timeout");
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let attendances = &self.attendances;
        if let Some(table) = attendances.lock().get_mut(&self.chat) {
            table.n_open = table.n_open.saturating_sub(1);
            if table.n_open == 0 {
                table.left_at = Some(clock::now());
            }
        }
        attendances.departures.wake();
    }
}
