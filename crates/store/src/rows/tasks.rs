//! Tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::{ArchivedTasks, Read, StoreError, TaskFilter, cell};
use domain::Timestamp;
use domain::event::NewEvent;
use domain::task::TaskLinks;
use domain::{AgentId, ProjectId, ProjectKey, ShortId, Task, TaskId, TaskStatus};

use super::cells::json;
use super::filter::{self, Filter};
use super::record::{entity, record};
use super::{Transaction, Wake};

record! {
    ShortId {
        key = "project_key";
        number;
    }
}

entity! {
    Task in "tasks" called "task" {
        id;
        short_id: ShortId, audited plain;
        project = "project_id", audited plain;
        parent = "parent_id", audited plain;
        title, audited plain;
        description, audited long;
        status, audited plain;
        priority, audited plain;
        assignee = "assignee_id", audited plain;
        dependencies as json, audited plain;
        blocked_reason, audited plain;
        created_at;
        status_since;
        start_wanted_since, audited plain;
        checking_since, audited plain;
        n_failed_rounds;
        archived_at, audited plain;
    }
}

pub fn get(tx: &mut Read<'_>, id: &TaskId) -> Result<Option<Task>, StoreError> {
    tx.find("WHERE id = ?1", &[id.into()])
}

/// Returns the task with a short id. A key that its project had once leads to the same tasks.
pub fn find_short(tx: &mut Read<'_>, id: &ShortId) -> Result<Option<Task>, StoreError> {
    tx.find(
        "WHERE project_id = (SELECT project_id FROM project_keys WHERE key = ?1) AND number = ?2",
        &[(&id.key).into(), id.number.into()],
    )
}

/// Returns the tasks with these ids, read together. A task that does not exist is left out.
pub fn list_of_ids(
    tx: &mut Read<'_>,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<BTreeMap<TaskId, Task>, StoreError> {
    let ids: BTreeSet<TaskId> = ids.into_iter().collect();
    let ids: Vec<TaskId> = ids.into_iter().collect();
    let tasks: Vec<Task> = filter::list_of_ids::<_, TaskId>(tx, &ids)?;
    Ok(tasks.into_iter().map(|task| (task.id.clone(), task)).collect())
}

/// Returns the short ids of tasks. A task that does not exist is left out.
pub fn short_ids(
    tx: &mut Read<'_>,
    tasks: impl IntoIterator<Item = TaskId>,
) -> Result<BTreeMap<TaskId, ShortId>, StoreError> {
    let tasks = list_of_ids(tx, tasks)?;
    Ok(tasks.into_iter().map(|(id, task)| (id, task.short_id)).collect())
}

/// Returns the short ids and the titles of tasks. A task that does not exist is left out.
pub fn titles(
    tx: &mut Read<'_>,
    tasks: impl IntoIterator<Item = TaskId>,
) -> Result<BTreeMap<TaskId, (ShortId, String)>, StoreError> {
    let tasks = list_of_ids(tx, tasks)?;
    Ok(tasks.into_iter().map(|(id, task)| (id, (task.short_id, task.title))).collect())
}

/// Returns the first tasks by id whose ids begin with a text.
pub fn list_with_prefix(
    tx: &mut Read<'_>,
    prefix: &str,
    limit: usize,
) -> Result<Vec<Task>, StoreError> {
    let end = filter::end_of_prefix(prefix);
    let rest = "WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
    tx.list(rest, &[prefix.into(), (&end).into(), limit.into()])
}

/// Returns the newest tasks of a project with numbers in a range.
pub fn list_of_numbers(
    tx: &mut Read<'_>,
    project: &ProjectId,
    numbers: &RangeInclusive<u32>,
    limit: usize,
) -> Result<Vec<Task>, StoreError> {
    tx.list(
        "WHERE project_id = ?1 AND number >= ?2 AND number <= ?3 ORDER BY number DESC LIMIT ?4",
        &[project.into(), (*numbers.start()).into(), (*numbers.end()).into(), limit.into()],
    )
}

/// Gives the tasks of a project another key.
pub fn set_key(
    tx: &mut Transaction<'_>,
    project: &ProjectId,
    key: &ProjectKey,
) -> Result<(), StoreError> {
    let sql = "UPDATE tasks SET project_key = ?1, revision = revision + 1 WHERE project_id = ?2";
    tx.execute(sql, &[key.into(), project.into()]).map(drop)
}

/// Returns the tasks of a filter by creation, then id.
pub fn list(tx: &mut Read<'_>, wanted: &TaskFilter) -> Result<Vec<Task>, StoreError> {
    let mut filter = Filter::default();
    if let Some(project) = &wanted.project {
        filter.is("project_id", project);
    }
    if let Some(assignee) = &wanted.assignee {
        filter.is("assignee_id", assignee);
    }
    if let Some(parent) = &wanted.parent {
        filter.is("parent_id", parent);
    }
    match wanted.status {
        // The status is in the text, because a partial index is not considered for a parameter.
        Some(TaskStatus::InProgress) => filter.also("status = 'in_progress'"),
        Some(TaskStatus::Blocked) => filter.also("status = 'blocked'"),
        Some(status) => filter.is("status", status),
        None => {}
    }
    if wanted.only_open {
        filter.also("status IN ('backlog', 'todo', 'in_progress', 'blocked')");
    }
    match wanted.archived {
        ArchivedTasks::Included => {}
        ArchivedTasks::LeftOut => filter.also("archived_at IS NULL"),
        ArchivedTasks::Only => filter.also("archived_at IS NOT NULL"),
    }
    filter.list(tx, "ORDER BY created_at, id")
}

/// Returns the tasks of a project with numbers after `after`, in the order of their numbers. A task
/// that is created later has a greater number.
pub fn list_by_number(
    tx: &mut Read<'_>,
    project: &ProjectId,
    after: u32,
    limit: usize,
) -> Result<Vec<Task>, StoreError> {
    let rest = "WHERE project_id = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
    tx.list(rest, &[project.into(), after.into(), limit.into()])
}

/// Returns the relations of the tasks of a project that have a parent or dependencies.
pub fn list_links(tx: &mut Read<'_>, project: &ProjectId) -> Result<Vec<TaskLinks>, StoreError> {
    let sql = "SELECT id, parent_id, dependencies FROM tasks WHERE project_id = ?1 \
        AND (parent_id IS NOT NULL OR dependencies <> '[]') ORDER BY id";
    tx.rows("task", sql, &[project.into()], |cells| {
        Ok(TaskLinks { id: cells.get()?, parent: cells.get()?, dependencies: cells.json()? })
    })
}

/// Returns the open tasks of a project whose status changed last, without archived ones.
pub fn list_newest_open(
    tx: &mut Read<'_>,
    project: &ProjectId,
    limit: usize,
) -> Result<Vec<Task>, StoreError> {
    let rest = "WHERE project_id = ?1 AND archived_at IS NULL \
        AND status IN ('backlog', 'todo', 'in_progress', 'blocked') \
        ORDER BY status_since DESC, id LIMIT ?2";
    tx.list(rest, &[project.into(), limit.into()])
}

/// Returns the agents that have tasks of a project, by id.
pub fn list_assignees(tx: &mut Read<'_>, project: &ProjectId) -> Result<Vec<AgentId>, StoreError> {
    let sql = "SELECT DISTINCT assignee_id FROM tasks \
        WHERE project_id = ?1 AND assignee_id IS NOT NULL ORDER BY assignee_id";
    tx.rows("task", sql, &[project.into()], cell)
}

/// Returns the tasks that begin when their dependencies are done, of all projects or of one, by
/// creation, then id.
pub fn list_wanted(
    tx: &mut Read<'_>,
    project: Option<&ProjectId>,
) -> Result<Vec<Task>, StoreError> {
    let mut filter = Filter::default();
    if let Some(project) = project {
        filter.is("project_id", project);
    }
    filter.also("start_wanted_since IS NOT NULL");
    filter.list(tx, "ORDER BY created_at, id")
}

/// Returns the tasks that wait for `task`, without archived ones, by creation, then id.
pub fn list_dependents(tx: &mut Read<'_>, task: &Task) -> Result<Vec<Task>, StoreError> {
    let rest = "WHERE project_id = ?1 AND archived_at IS NULL AND dependencies <> '[]' \
        ORDER BY created_at, id";
    let mut found: Vec<Task> = tx.list(rest, &[(&task.project).into()])?;
    found.retain(|other| other.dependencies.contains(&task.id));
    Ok(found)
}

/// Returns the blocked tasks that the report of an agent blocked, because it had failed.
pub fn list_failed(tx: &mut Read<'_>) -> Result<BTreeSet<TaskId>, StoreError> {
    let sql = "SELECT id FROM tasks WHERE status = 'blocked' AND EXISTS (SELECT 1 FROM executions \
        WHERE executions.task_id = tasks.id AND executions.result = 'failed' \
            AND executions.ended_at >= tasks.status_since)";
    Ok(tx.rows("task", sql, &[], cell)?.into_iter().collect())
}

/// Returns the number of tasks with each status.
pub fn count_by_status(tx: &mut Read<'_>) -> Result<Vec<(TaskStatus, u64)>, StoreError> {
    let sql = "SELECT status, COUNT(*) FROM tasks GROUP BY status ORDER BY status";
    tx.rows("task", sql, &[], |cells| Ok((cells.get()?, cells.get::<i64>()?.unsigned_abs())))
}

/// Returns since when the oldest task waits that is in progress, and whose agent has no launch.
pub fn oldest_waiting(tx: &mut Read<'_>) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT MIN(status_since) FROM tasks \
        WHERE status = 'in_progress' AND checking_since IS NULL AND assignee_id IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM launches \
            WHERE agent_id = assignee_id AND launches.project_id = tasks.project_id \
                AND purpose = 'task' AND state <> 'ended')";
    let since: Option<Option<Timestamp>> = tx.row("task", sql, &[], cell)?;
    Ok(since.flatten())
}

/// Returns the number of open tasks of each project that has any.
pub fn count_open(tx: &mut Read<'_>) -> Result<BTreeMap<ProjectId, usize>, StoreError> {
    let sql = "SELECT project_id, COUNT(*) FROM tasks \
        WHERE status IN ('backlog', 'todo', 'in_progress', 'blocked') GROUP BY project_id";
    let counts = tx.rows("task", sql, &[], |cells| {
        let project: ProjectId = cells.get()?;
        let n_open: i64 = cells.get()?;
        Ok((project, usize::try_from(n_open)?))
    })?;
    Ok(counts.into_iter().collect())
}

/// Writes a task.
pub fn put(tx: &mut Transaction<'_>, task: &Task) -> Result<(), StoreError> {
    tx.replace_audited(task, &task.id, |tx| get(tx, &task.id))?;
    tx.row_event(event("task.changed", task, tx.now()));
    tx.wake(Wake::Coordinators);
    tx.wake(Wake::AgentsOf(task.project.clone()));
    Ok(())
}

/// Returns the event that tells of the status of a changed task, before it is written.
pub fn status_event(task: &Task, at: Timestamp) -> NewEvent {
    event(if task.revision == 0 { "task.created" } else { "task.status" }, task, at)
}

/// Returns an event of this kind about a task.
pub fn named_event(kind: &'static str, task: &Task, at: Timestamp) -> NewEvent {
    event(kind, task, at)
}

fn event(kind: &'static str, task: &Task, at: Timestamp) -> NewEvent {
    NewEvent {
        agent: task.assignee.clone(),
        project: Some(task.project.clone()),
        task: Some(task.id.clone()),
        detail: Some(task.status.to_string()),
        ..NewEvent::new(kind, at)
    }
}
