//! Checks: the runs of the operator's commands on the work of tasks.

use std::time::Duration;

use crate::domain::check::Check;
use crate::domain::{LaunchId, TaskId};
use crate::store::{BoxError, Cells, Entity, Read, StoreError, Value};

use super::Transaction;

impl Entity for Check {
    const NAME: &'static str = "check";
    const TABLE: &'static str = "checks";
    const COLUMNS: &'static str = "id, task_id, launch_id, round, name, commit_id, result, exit_code, \
        duration_ms, output, started_at";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self {
            id: cells.get()?,
            task: cells.get()?,
            launch: cells.get()?,
            round: cells.get()?,
            name: cells.get()?,
            commit: cells.get()?,
            result: cells.get()?,
            exit_code: cells.get()?,
            duration: match cells.get::<Option<i64>>()? {
                Some(millis) => Some(Duration::from_millis(u64::try_from(millis)?)),
                None => None,
            },
            output: cells.get()?,
            started_at: cells.get()?,
            revision: cells.get()?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        vec![
            (&self.id).into(),
            (&self.task).into(),
            (&self.launch).into(),
            self.round.into(),
            (&self.name).into(),
            (&self.commit).into(),
            self.result.into(),
            self.exit_code.into(),
            self.duration.map(millis).into(),
            (&self.output).into(),
            self.started_at.into(),
        ]
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

/// Returns the checks of a task, the oldest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Check>, StoreError> {
    tx.list("WHERE task_id = ?1 ORDER BY started_at, id", &[task.into()])
}

/// Returns the check that a launch runs.
pub fn find_of_launch(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Option<Check>, StoreError> {
    tx.find("WHERE launch_id = ?1", &[launch.into()])
}

/// Writes a check.
pub fn put(tx: &mut Transaction<'_>, check: &Check) -> Result<(), StoreError> {
    tx.put(check).map(drop)
}
