//! Checks: the runs of the operator's commands on the work of tasks.

use crate::{Read, StoreError};
use domain::check::Check;
use domain::{LaunchId, TaskId};

use super::Transaction;
use super::record::entity;

entity! {
    Check in "checks" called "check" {
        id;
        task = "task_id";
        launch = "launch_id";
        round;
        name;
        commit = "commit_id";
        result;
        exit_code;
        duration = "duration_ms";
        output;
        started_at;
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
