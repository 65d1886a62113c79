//! Executions: the work of one launch on one task.

use crate::{HistoryFilter, Read, StoreError};
use domain::event::NewEvent;
use domain::id::ExecutionId;
use domain::{Execution, Failure, InstanceKey, LaunchId, Outcome, TaskId, Usage};

use super::Transaction;
use super::filter::Filter;
use super::record::entity;

entity! {
    Execution in "executions" called "execution" {
        id;
        launch = "launch_id";
        task = "task_id";
        key: InstanceKey;
        started_at;
        ended_at;
        result;
        summary;
        next_steps;
        progress;
        findings;
        outcome: Option<Outcome>;
        usage: Usage;
        failure: Option<Failure>;
    }
    with usage of "executions.launch_id" in usage;
}

/// Returns the work on a task, the newest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Execution>, StoreError> {
    tx.list("WHERE task_id = ?1 ORDER BY started_at DESC, id DESC", &[task.into()])
}

/// Returns the work of a launch, the newest first.
pub fn list_of_launch(tx: &mut Read<'_>, launch: &LaunchId) -> Result<Vec<Execution>, StoreError> {
    tx.list("WHERE executions.launch_id = ?1 ORDER BY started_at DESC, id DESC", &[launch.into()])
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
    filter.among("executions.launch_id", launches);
    filter.list(tx, "ORDER BY started_at DESC, id DESC")
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
    filter.owner("executions", wanted);
    if wanted.only_open {
        filter.also("ended_at IS NULL");
    }
    filter.newest(tx, "started_at", wanted.after.as_ref(), wanted.limit)
}

/// Writes an execution. `before` is the one that was read, if it is not new.
///
/// The report of an agent ends its work. The end of its launch adds the outcome and the usage. That
/// is a change and not another end. An agent that never asked for its task begins and ends the work
/// with its report.
pub fn put(
    tx: &mut Transaction<'_>,
    before: Option<&Execution>,
    execution: &Execution,
) -> Result<(), StoreError> {
    tx.replace(execution, &execution.id)?;
    let is_new = execution.revision == 0;
    let was_ended = before.is_some_and(|before| before.ended_at.is_some());
    let is_end = execution.ended_at.is_some() && !was_ended;
    for (kind, is_told) in [
        ("execution.started", is_new),
        ("execution.changed", !is_new && !is_end),
        ("execution.ended", is_end),
    ] {
        if is_told {
            let event = NewEvent {
                launch: Some(execution.launch.clone()),
                task: Some(execution.task.clone()),
                detail: execution.result.map(|result| result.as_str().to_owned()),
                ..NewEvent::of_pair(kind, tx.now(), &execution.key)
            };
            tx.row_event(event);
        }
    }
    Ok(())
}
