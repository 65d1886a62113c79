//! The steps of every change of a task: read the tasks that the rules need, and write the result.

use std::collections::BTreeSet;

use domain::event::NewEvent;
use domain::id::TaskId;
use domain::notice::WorkChange;
use domain::task::{Actor, change};
use domain::{Task, TaskGraph, TaskStatus};
use store::rows::{Transaction, tasks};
use store::{Read, StoreError, TaskFilter};

use crate::ServiceError;
use crate::launches::conversations;

/// A task before the change, if it exists, and after it.
pub(crate) type Wish<'a> = (Option<&'a Task>, &'a Task);

/// A changed task, and the resulting changes for agents.
pub(crate) struct Changed {
    pub(crate) task: Task,
    pub(crate) news: Vec<WorkChange>,
}

/// Changes a task to its wanted state, with the effects on other tasks. Writes nothing if the state
/// is the same already.
///
/// # Errors
/// The refusals of [`change`].
pub(crate) fn change_task(
    tx: &mut Transaction<'_>,
    before: Option<&Task>,
    after: &Task,
    actor: Actor<'_>,
) -> Result<Changed, ServiceError> {
    let graph = graph_around(tx, &[(before, after)])?;
    let changed = change(before, after, actor, &graph, tx.now())?;
    let task = changed.first().unwrap_or(after).clone();
    Ok(Changed { task, news: write_changed(tx, before, changed)? })
}

/// Writes the tasks that [`change`] returned for a task, with an event for each new task and each
/// new status. Returns the resulting changes for agents.
pub(crate) fn write_changed(
    tx: &mut Transaction<'_>,
    before: Option<&Task>,
    changed: Vec<Task>,
) -> Result<Vec<WorkChange>, StoreError> {
    let keeps_status = |task: &Task| {
        before.is_some_and(|before| before.id == task.id && before.status == task.status)
    };
    let mut news = Vec::new();
    for task in changed {
        let event = (!keeps_status(&task)).then(|| tasks::status_event(&task, tx.now()));
        news.extend(write_task(tx, task, event)?);
    }
    Ok(news)
}

/// Moves a task to another status. Only a blocked task has a reason.
///
/// # Errors
/// The errors of [`change_task`].
pub(crate) fn move_task(
    tx: &mut Transaction<'_>,
    task: &Task,
    to: TaskStatus,
    reason: Option<&str>,
    actor: Actor<'_>,
) -> Result<Changed, ServiceError> {
    let reason = reason.map(str::to_owned).or_else(|| task.blocked_reason.clone());
    let blocked_reason = reason.filter(|_| to == TaskStatus::Blocked);
    change_task(tx, Some(task), &Task { status: to, blocked_reason, ..task.clone() }, actor)
}

/// Writes a task with its event, and returns the resulting changes for agents. A new task has none.
pub(crate) fn write_task(
    tx: &mut Transaction<'_>,
    task: Task,
    event: Option<NewEvent>,
) -> Result<Option<WorkChange>, StoreError> {
    let before = if task.revision > 0 { tasks::get(tx, &task.id)? } else { None };
    tasks::put(tx, &task)?;
    if let Some(event) = event {
        tx.event(event);
    }
    if let Some(before) = &before {
        conversations::note_task(tx, before, &task)?;
    }
    let before = before.filter(|before| *before != task).map(Box::new);
    let after = Box::new(task);
    Ok(before.map(|before| WorkChange::Task { before, after }))
}

/// Returns the tasks of `wishes` in their wanted state, with the tasks around them that [`change`]
/// reads.
pub(crate) fn graph_around(
    tx: &mut Read<'_>,
    wishes: &[Wish<'_>],
) -> Result<TaskGraph, StoreError> {
    let mut graph: TaskGraph = wishes.iter().map(|(_, after)| (*after).clone()).collect();
    // The graph has the dependencies of a wish at every depth, so no other wish reads them again.
    let mut walked = BTreeSet::new();
    for (before, after) in wishes {
        add_above(tx, &mut graph, after)?;
        let is_shaped = |before: &Task| {
            before.parent == after.parent && before.dependencies == after.dependencies
        };
        if !before.is_some_and(is_shaped) {
            add_all_that_is_waited_for(tx, &mut graph, after, &mut walked)?;
        } else if before.is_some_and(|before| before.status != after.status) {
            for dependency in &after.dependencies {
                add(tx, &mut graph, dependency)?;
            }
            for part in tasks_below(tx, &after.id, |part| part.status.is_open())? {
                add_dependencies_of_wanted(tx, &mut graph, &part)?;
                insert_new(&mut graph, part);
            }
        }
        add_dependencies_of_wanted(tx, &mut graph, after)?;
        if after.status == TaskStatus::Done {
            let waiting = tasks::list_wanted(tx, Some(&after.project))?;
            for task in waiting.into_iter().filter(|task| task.dependencies.contains(&after.id)) {
                add_dependencies_of_wanted(tx, &mut graph, &task)?;
                insert_new(&mut graph, task);
            }
        }
    }
    Ok(graph)
}

/// Adds the dependencies of a task that begins when they are done.
fn add_dependencies_of_wanted(
    tx: &mut Read<'_>,
    graph: &mut TaskGraph,
    task: &Task,
) -> Result<(), StoreError> {
    if task.start_wanted_since.is_some() {
        for dependency in &task.dependencies {
            add(tx, graph, dependency)?;
        }
    }
    Ok(())
}

/// Returns these tasks with all their ancestors.
pub(crate) fn graph_above(tx: &mut Read<'_>, tasks: &[Task]) -> Result<TaskGraph, StoreError> {
    let mut graph: TaskGraph = tasks.iter().cloned().collect();
    for task in tasks {
        add_above(tx, &mut graph, task)?;
    }
    Ok(graph)
}

fn add_above(tx: &mut Read<'_>, graph: &mut TaskGraph, task: &Task) -> Result<(), StoreError> {
    let mut next = task.parent.clone();
    let mut seen = BTreeSet::new();
    while let Some(id) = next.take().filter(|id| seen.insert(id.clone())) {
        next = add(tx, graph, &id)?.and_then(|parent| parent.parent);
    }
    Ok(())
}

fn add_all_that_is_waited_for(
    tx: &mut Read<'_>,
    graph: &mut TaskGraph,
    task: &Task,
    walked: &mut BTreeSet<TaskId>,
) -> Result<(), StoreError> {
    let mut open = vec![task.id.clone()];
    while let Some(id) = open.pop() {
        if !walked.insert(id.clone()) {
            continue;
        }
        let Some(waiting) = add(tx, graph, &id)? else {
            continue;
        };
        open.extend(waiting.dependencies);
        for part in parts_of(tx, &id)? {
            open.push(part.id.clone());
            insert_new(graph, part);
        }
    }
    for dependency in &task.dependencies {
        if let Some(dependency) = add(tx, graph, dependency)? {
            add_above(tx, graph, &dependency)?;
        }
    }
    Ok(())
}

/// Returns the task with this id from the graph, or from the store. In the second case it is added
/// to the graph.
fn add(tx: &mut Read<'_>, graph: &mut TaskGraph, id: &TaskId) -> Result<Option<Task>, StoreError> {
    if let Some(known) = graph.find(id) {
        return Ok(Some(known.clone()));
    }
    let found = tasks::get(tx, id)?;
    graph.extend(found.clone());
    Ok(found)
}

/// Returns the direct subtasks of a task.
pub(crate) fn parts_of(tx: &mut Read<'_>, parent: &TaskId) -> Result<Vec<Task>, StoreError> {
    tasks::list(tx, &TaskFilter { parent: Some(parent.clone()), ..TaskFilter::default() })
}

/// Returns the subtasks of a task, and at every depth the subtasks of each task that `is_entered`.
/// Each task is before its own subtasks.
pub(crate) fn tasks_below(
    tx: &mut Read<'_>,
    id: &TaskId,
    is_entered: impl Fn(&Task) -> bool,
) -> Result<Vec<Task>, StoreError> {
    let mut below = parts_of(tx, id)?;
    let mut n_looked_at = 0;
    while let Some(task) = below.get(n_looked_at) {
        if is_entered(task) {
            let parts = parts_of(tx, &task.id)?;
            below.extend(parts);
        }
        n_looked_at += 1;
    }
    Ok(below)
}

fn insert_new(graph: &mut TaskGraph, task: Task) {
    if graph.find(&task.id).is_none() {
        graph.insert(task);
    }
}
