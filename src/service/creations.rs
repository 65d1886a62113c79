//! How much each launch has created, for its limits. The rows of the store count: they are counted when a launch creates something
//! for the first time since this program began, and then in memory. A restart resets no limit.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::chat::Sender;
use crate::domain::creation::CreationLimits;
use crate::domain::event::Event;
use crate::domain::{Assignment, Launch, LaunchId, Refusal};
use crate::rows::{events, messages};
use crate::store::{MessageFilter, Read, StoreError};

use super::ServiceError;
use super::chats::agents::visible;
use super::core::Core;

/// The kind of the event that tells of a new task; one that an agent created names its launch.
pub(super) const TASK_CREATED: &str = "task.created";
/// Rows that are read at a time when they are counted.
const PAGE: usize = 1_000;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Creation {
    Task,
    Message,
}

/// The numbers of open launches.
#[derive(Debug, Default)]
pub(super) struct Creations(Mutex<HashMap<(LaunchId, Creation), usize>>);

impl Creations {
    pub(super) fn keep_only(&self, is_open: impl Fn(&LaunchId) -> bool) {
        self.lock().retain(|(launch, _), _| is_open(launch));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(LaunchId, Creation), usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts that were added for what is about to be written. Dropping it takes them back.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    creations: &'a Creations,
    key: (LaunchId, Creation),
    n_new: usize,
}

impl Reservation<'_> {
    /// It was written.
    pub(super) fn keep(mut self) {
        self.n_new = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(n_created) = self.creations.lock().get_mut(&self.key) {
            *n_created = n_created.saturating_sub(self.n_new);
        }
    }
}

impl Creations {
    /// Counts `n_new` more creations of `launch`, which calls at the same time see.
    ///
    /// # Errors
    /// `TooManyTasks`, `TooManyMessages`.
    pub(super) async fn reserve(
        &self,
        core: &Core,
        launch: &Launch,
        creation: Creation,
        n_new: usize,
    ) -> Result<Reservation<'_>, ServiceError> {
        let key = (launch.id.clone(), creation);
        let is_known = self.lock().contains_key(&key);
        let n_stored =
            if is_known { 0 } else { Self::count_stored(core, launch, creation).await? };
        let mut all = self.lock();
        // Another call may have counted meanwhile, and added its own.
        let n_created = all.entry(key.clone()).or_insert(n_stored);
        check(&core.settings().creation, creation, *n_created, n_new)?;
        *n_created += n_new;
        Ok(Reservation { creations: self, key, n_new })
    }

    async fn count_stored(
        core: &Core,
        launch: &Launch,
        creation: Creation,
    ) -> Result<usize, ServiceError> {
        let (mut n_stored, mut after) = (0, None);
        loop {
            let launch = launch.clone();
            let page = core.read(move |tx| Ok(count_page(tx, &launch, creation, after)?));
            let (n_created, next) = page.await?;
            n_stored += n_created;
            if next.is_none() {
                return Ok(n_stored);
            }
            after = next;
        }
    }
}

/// Counts what a launch created on the page of rows after the number `after`. The first page begins with its claim.
/// Returns the number of the last row, too, if more rows may follow.
fn count_page(
    tx: &mut Read<'_>,
    launch: &Launch,
    creation: Creation,
    after: Option<i64>,
) -> Result<(usize, Option<i64>), StoreError> {
    let (n_created, n_rows, last) = match creation {
        Creation::Task => {
            let after = match after {
                Some(after) => after,
                None => events::last_before(tx, launch.claimed_at)?,
            };
            let events = events::list(tx, after, PAGE)?;
            let is_ours = |event: &&Event| {
                event.kind == TASK_CREATED && event.launch.as_ref() == Some(&launch.id)
            };
            let n_created = events.iter().filter(is_ours).count();
            (n_created, events.len(), events.last().map(|event| event.seq))
        }
        Creation::Message => {
            let (project, agent) = (launch.key.project.clone(), launch.key.agent.clone());
            let chat = Assignment { project, agent };
            let after = match after {
                Some(after) => after,
                None => messages::last_before(tx, &chat, launch.claimed_at)?,
            };
            let (sender, after) = (Some(Sender::Agent), Some(after));
            let filter = MessageFilter { sender, after, ..visible(&launch.key, PAGE) };
            let messages = messages::list(tx, &filter)?;
            (messages.len(), messages.len(), messages.last().map(|message| message.seq))
        }
    };
    Ok((n_created, last.filter(|_| n_rows == PAGE)))
}

fn check(
    limits: &CreationLimits,
    creation: Creation,
    n_created: usize,
    n_new: usize,
) -> Result<(), Refusal> {
    match creation {
        Creation::Task => limits.check_tasks(n_created, n_new),
        Creation::Message => limits.check_messages(n_created),
    }
}
