//! Chains: tasks that people want to begin as soon as their dependencies are done.

use std::collections::BTreeSet;

use super::{Actor, Task, TaskGraph, TaskStatus, moved, tasks_where};
use crate::id::TaskId;
use crate::time::Timestamp;

/// Returns the dependencies of a task that are not done. One that is cancelled is among them: a
/// person has to decide about it.
pub(super) fn open_dependencies<'a>(task: &Task, graph: &'a TaskGraph) -> Vec<&'a Task> {
    let dependencies = task.dependencies.iter().filter_map(|id| graph.find(id));
    tasks_where(dependencies, |dependency| dependency.status != TaskStatus::Done)
}

/// Returns `after` without the wish for its start, if a person gives it another status or assignee,
/// or if it has no assignee any more.
pub(super) fn without_withdrawn_wish(
    before: Option<&Task>,
    after: &Task,
    actor: Actor<'_>,
) -> Task {
    let is_changed = before
        .is_some_and(|before| before.status != after.status || before.assignee != after.assignee);
    let is_withdrawn = after.assignee.is_none() || actor == Actor::Person && is_changed;
    let start_wanted_since = after.start_wanted_since.filter(|_| !is_withdrawn);
    Task { start_wanted_since, ..after.clone() }
}

/// Returns whether a task that is to begin has to wait for its dependencies.
pub(super) fn has_to_wait(before: Option<&Task>, after: &Task, graph: &TaskGraph) -> bool {
    after.status == TaskStatus::InProgress
        && before.is_none_or(|before| before.status != after.status)
        && !open_dependencies(after, graph).is_empty()
}

/// Returns a task that is to begin as one that waits. Wanting it again changes nothing.
pub(super) fn wanted(before: Option<&Task>, after: &Task, now: Timestamp) -> Task {
    let todo = before.filter(|before| before.status == TaskStatus::Todo);
    let wanted_before = todo.and_then(|before| before.start_wanted_since);
    let status_since = todo.map_or(now, |before| before.status_since);
    let task = moved(after, TaskStatus::Todo, None, status_since);
    Task { start_wanted_since: Some(wanted_before.unwrap_or(now)), ..task }
}

/// Returns `changed` with the tasks that begin now, because their start is wanted and their last
/// dependency is done. `graph` contains the dependencies of each wanted task of `changed`, and the
/// wanted tasks that wait for a task of `changed` that is done, with their dependencies.
pub(super) fn begin_wanted(mut changed: Vec<Task>, graph: &TaskGraph, now: Timestamp) -> Vec<Task> {
    // Other changes let no task begin. A graph can have many tasks, and few changes look at all.
    let may_begin = |task: &Task| is_wanted(task) || task.status == TaskStatus::Done;
    if !changed.iter().any(may_begin) || !changed.iter().chain(graph.tasks()).any(is_wanted) {
        return changed;
    }
    let mut after = graph.clone();
    after.extend(changed.iter().cloned());
    for task in &mut changed {
        if let Some(begun) = begun(task, &after, now) {
            *task = begun;
        }
    }
    let known: BTreeSet<&TaskId> = changed.iter().map(|task| &task.id).collect();
    let done: BTreeSet<&TaskId> = changed
        .iter()
        .filter(|task| task.status == TaskStatus::Done)
        .map(|task| &task.id)
        .collect();
    let waiting = after.tasks().filter(|task| {
        !known.contains(&task.id) && task.dependencies.iter().any(|id| done.contains(id))
    });
    let begun: Vec<Task> = waiting.filter_map(|task| begun(task, &after, now)).collect();
    changed.extend(begun);
    changed
}

/// Returns a task in progress, if its start is wanted and its dependencies are done. `graph`
/// contains them.
pub fn begun(task: &Task, graph: &TaskGraph, now: Timestamp) -> Option<Task> {
    let begins = is_wanted(task) && open_dependencies(task, graph).is_empty();
    begins.then(|| moved(task, TaskStatus::InProgress, None, now))
}

fn is_wanted(task: &Task) -> bool {
    task.status == TaskStatus::Todo && task.start_wanted_since.is_some()
}
