//! The number of rows that each launch has created, for its limits.
//!
//! The rows of the store count. They are counted when a launch creates something for the first time
//! since this program began. After that, the number is in memory. A restart resets no limit.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::creation::CreationLimits;
use crate::domain::{Assignment, Launch, LaunchId, Refusal};
use crate::rows::{events, messages};
use crate::store::{Read, StoreError};

use super::ServiceError;
use super::core::Core;

/// The kind of the event of a new task. The event of a task that an agent created names its launch.
pub(super) const TASK_CREATED: &str = "task.created";

/// The kinds of rows that are counted.
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

/// Counts for rows that are about to be written. Dropping the reservation takes them back.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    creations: &'a Creations,
    key: (LaunchId, Creation),
    n_new: usize,
}

impl Reservation<'_> {
    /// Keeps the counts: the rows were written.
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
    /// Counts `n_new` more creations of `launch`. Concurrent calls see them.
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
        let n_stored = if is_known {
            0
        } else {
            let launch = launch.clone();
            core.read(move |tx| Ok(count_stored(tx, &launch, creation)?)).await?
        };
        let mut all = self.lock();
        // Another call may have counted and reserved in the meantime.
        let n_created = all.entry(key.clone()).or_insert(n_stored);
        check(&core.settings().creation, creation, *n_created, n_new)?;
        *n_created += n_new;
        Ok(Reservation { creations: self, key, n_new })
    }
}

/// Returns the number of rows that a launch has created since its claim.
fn count_stored(
    tx: &mut Read<'_>,
    launch: &Launch,
    creation: Creation,
) -> Result<usize, StoreError> {
    let n_stored = match creation {
        Creation::Task => {
            let after = events::last_before(tx, launch.claimed_at)?;
            events::count_of_launch(tx, &launch.id, TASK_CREATED, after)?
        }
        Creation::Message => {
            let (project, agent) = (launch.key.project.clone(), launch.key.agent.clone());
            let chat = Assignment { project, agent };
            let after = messages::last_before(tx, &chat, launch.claimed_at)?;
            messages::count_of_agent(tx, &chat, after)?
        }
    };
    Ok(usize::try_from(n_stored).unwrap_or(usize::MAX))
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
