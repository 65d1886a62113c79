//! The full id of a task that is named by its full id or by its short id.
//!
//! A full id is always valid, also one that looks like a short id. A short id names the same task
//! for good, so it may be turned into the full id before the transaction that uses it.

use domain::id::{ProjectId, TaskId};
use domain::{ShortId, Task};
use store::rows::tasks;
use store::{Read, StoreError};

use super::Tasks;
use crate::ServiceError;

impl Tasks {
    /// Returns the full id of the task that a person names; `id` itself if there is no such task.
    pub async fn full_id(&self, id: TaskId) -> Result<TaskId, ServiceError> {
        if short_id_in(&id).is_none() {
            return Ok(id);
        }
        self.core.read(move |tx| Ok(full_id(tx, &id, |_| true)?)).await
    }

    /// Returns the full ids of several tasks, as [`Tasks::full_id`] does.
    pub async fn full_ids(
        &self,
        ids: impl IntoIterator<Item = TaskId> + Send,
    ) -> Result<Vec<TaskId>, ServiceError> {
        let ids: Vec<TaskId> = ids.into_iter().collect();
        if ids.iter().all(|id| short_id_in(id).is_none()) {
            return Ok(ids);
        }
        self.core
            .read(move |tx| {
                let mut found = Vec::with_capacity(ids.len());
                for id in &ids {
                    found.push(full_id(tx, id, |_| true)?);
                }
                Ok(found)
            })
            .await
    }
}

/// Returns the full id of the task of `project` that an agent names; `id` itself if there is no such
/// task in this project.
pub(crate) fn full_id_in(
    tx: &mut Read<'_>,
    project: &ProjectId,
    id: &TaskId,
) -> Result<TaskId, StoreError> {
    full_id(tx, id, |task| task.project == *project)
}

fn full_id(
    tx: &mut Read<'_>,
    id: &TaskId,
    is_visible: impl Fn(&Task) -> bool,
) -> Result<TaskId, StoreError> {
    let Some(short_id) = short_id_in(id) else { return Ok(id.clone()) };
    if tasks::get(tx, id)?.is_some() {
        return Ok(id.clone());
    }
    let found = tasks::find_short(tx, &short_id)?.filter(is_visible);
    Ok(found.map_or_else(|| id.clone(), |task| task.id))
}

/// Returns the short id that the text of an id is, if it is one.
pub(crate) fn short_id_in(id: &TaskId) -> Option<ShortId> {
    id.as_str().parse().ok()
}
