//! Executions: the work of one launch on one task.

use crate::domain::event::NewEvent;
use crate::domain::id::ExecutionId;
use crate::domain::{Execution, LaunchId, TaskId, Usage};
use crate::store::{BoxError, Cells, Entity, HistoryFilter, Read, StoreError, Value};

use super::Transaction;

use super::filter::{Filter, pages_of_ids};
use super::{
    failure_values, key_values, outcome_values, read_failure, read_key, read_outcome, read_usage,
    usage_values,
};

impl Entity for Execution {
    const NAME: &'static str = "execution";
    const TABLE: &'static str = "executions";
    const COLUMNS: &'static str = "id, launch_id, task_id, agent_id, project_id, purpose, started_at, ended_at, \
        result, summary, next_steps, progress, findings, outcome, outcome_reason, input_tokens, output_tokens, \
        cache_read_tokens, cache_write_tokens, cost_usd_micros, turns, failure, failure_resets_at";

    fn read(cells: &mut Cells<'_>) -> Result<Self, BoxError> {
        Ok(Self {
            id: cells.get()?,
            launch: cells.get()?,
            task: cells.get()?,
            key: read_key(cells)?,
            started_at: cells.get()?,
            ended_at: cells.get()?,
            result: cells.get()?,
            summary: cells.get()?,
            next_steps: cells.get()?,
            progress: cells.get()?,
            findings: cells.get()?,
            outcome: read_outcome(cells)?,
            usage: read_usage(cells)?,
            failure: read_failure(cells)?,
            revision: cells.get()?,
        })
    }

    fn values(&self) -> Vec<Value<'_>> {
        let mut values = vec![(&self.id).into(), (&self.launch).into(), (&self.task).into()];
        values.extend(key_values(&self.key));
        values.extend([
            self.started_at.into(),
            self.ended_at.into(),
            self.result.into(),
            (&self.summary).into(),
            (&self.next_steps).into(),
            (&self.progress).into(),
            (&self.findings).into(),
        ]);
        values.extend(outcome_values(self.outcome.as_ref()));
        values.extend(usage_values(self.usage));
        values.extend(failure_values(self.failure));
        values
    }

    fn revision(&self) -> i64 {
        self.revision
    }
}

/// Returns the work on a task, the newest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Execution>, StoreError> {
    tx.list("WHERE task_id = ?1 ORDER BY started_at DESC, id DESC", &[task.into()])
}

/// Returns the work of a launch, the newest first.
pub fn list_of_launch(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Execution>, StoreError> {
    tx.list("WHERE launch_id = ?1 ORDER BY started_at DESC, id DESC", &[launch.into()])
}

/// Returns the work of these launches, the newest first.
pub fn list_of_launches(
    tx: &mut Read<'_>,
    launches: &[LaunchId],
) -> Result<Vec<Execution>, StoreError> {
    if launches.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.among("launch_id", launches);
    filter.list(tx, "ORDER BY started_at DESC, id DESC")
}

/// Returns the usage of the ended work on these tasks.
pub fn list_usage(tx: &mut Read<'_>, tasks: &[TaskId]) -> Result<Vec<(TaskId, Usage)>, StoreError> {
    let sql = "SELECT task_id, input_tokens, output_tokens, cache_read_tokens, \
        cache_write_tokens, cost_usd_micros, turns FROM executions";
    let mut found = Vec::new();
    for page in pages_of_ids(tasks) {
        let mut filter = Filter::default();
        filter.among("task_id", page);
        filter.also("ended_at IS NOT NULL");
        let read = |cells: &mut Cells<'_>| Ok((cells.get()?, read_usage(cells)?));
        found.extend(filter.rows(tx, "execution", sql, "", read)?);
    }
    Ok(found)
}

/// Returns executions of a filter, the newest first.
pub fn list(
    tx: &mut Read<'_>,
    wanted: &HistoryFilter<ExecutionId>,
) -> Result<Vec<Execution>, StoreError> {
    let mut filter = Filter::default();
    if let Some(task) = &wanted.task {
        filter.is("task_id", task);
    }
    filter.owner(wanted);
    if wanted.only_open {
        filter.also("ended_at IS NULL");
    }
    filter.newest(tx, "started_at", wanted.after.as_ref(), wanted.limit)
}

/// Writes an execution.
pub fn put(tx: &mut Transaction<'_>, execution: &Execution) -> Result<(), StoreError> {
    tx.replace(execution, &execution.id)?;
    let kind = match (execution.revision, execution.ended_at) {
        (0, _) => "execution.started",
        (_, None) => "execution.changed",
        (_, Some(_)) => "execution.ended",
    };
    let event = NewEvent {
        launch: Some(execution.launch.clone()),
        task: Some(execution.task.clone()),
        detail: execution.result.map(|result| result.as_str().to_owned()),
        ..NewEvent::of_pair(kind, tx.now(), &execution.key)
    };
    tx.row_event(event);
    Ok(())
}
