//! The rules for the tasks of a file: what they refer to, and in which states they may be.
//!
//! They are those of [`crate::task`], for many tasks at once. Each rule looks at a task and
//! its neighbours a limited number of times, so that a large or hostile file takes no longer.

use std::collections::BTreeMap;

use super::problems::Problems;
use super::read::Numbered;
use crate::id::TaskId;
use crate::task::{Cycle, find_cycles};
use crate::time::Timestamp;
use crate::{Task, TaskGraph, TaskStatus};

/// The number of tasks of a circle that a message names.
const MAX_SHOWN_TASKS: usize = 8;

/// The choice of what an import starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starts {
    /// Tasks in progress become todo.
    Nothing,
    /// Tasks in progress stay so, and those that wait for their dependencies begin after these.
    AsInFile,
}

/// Returns a task of a file as an import at `now` stores it.
pub fn imported(task: Task, starts: Starts, now: Timestamp) -> Task {
    let may_wait = matches!(task.status, TaskStatus::Todo | TaskStatus::Blocked);
    let is_wanted = starts == Starts::AsInFile && may_wait && task.assignee.is_some();
    let start_wanted_since = task.start_wanted_since.filter(|_| is_wanted);
    let is_begun = task.status == TaskStatus::InProgress;
    let is_reset = is_begun && starts == Starts::Nothing;
    let status = if is_reset { TaskStatus::Todo } else { task.status };
    let status_since = if is_begun { now } else { task.status_since };
    Task { status, start_wanted_since, status_since, ..task }
}

/// Adds the problems of new tasks. `graph` contains them, and of the store all tasks that they
/// refer to, with what these wait for and are part of.
pub fn check(new: &[Numbered<Task>], graph: &TaskGraph, problems: &mut Problems) {
    let n_before = problems.n_more + problems.told.len();
    for Numbered { line, object: task } in new {
        check_references(*line, task, graph, problems);
        check_state(*line, task, graph, problems);
    }
    let starts = new.iter().map(|task| &task.object.id);
    for Cycle { tasks, .. } in find_cycles(starts, |id| graph.waits_for(id), 1) {
        let lines: BTreeMap<&TaskId, usize> =
            new.iter().map(|task| (&task.object.id, task.line)).collect();
        let line = tasks.iter().find_map(|id| lines.get(id)).copied().unwrap_or(1);
        problems.add(line, circle(&tasks));
    }
    // The places of tasks in a tree make sense only if there is one.
    if problems.n_more + problems.told.len() == n_before {
        check_kin(new, graph, problems);
    }
}

fn check_references(line: usize, task: &Task, graph: &TaskGraph, problems: &mut Problems) {
    let named = task.parent.iter().map(|id| ("parent", id));
    let named = named.chain(task.dependencies.iter().map(|id| ("dependencies", id)));
    for (field, id) in named {
        let problem = match graph.find(id) {
            None => "is neither in the file nor here",
            Some(other) if other.project != task.project => "is in another project",
            Some(_) => continue,
        };
        problems.add(line, format!("task `{}`: `{field}` names `{id}`, which {problem}", task.id));
    }
}

fn check_state(line: usize, task: &Task, graph: &TaskGraph, problems: &mut Problems) {
    let id = &task.id;
    let parent = task.parent.as_ref().and_then(|parent| graph.find(parent));
    if let Some(parent) = parent.filter(|parent| task.status.is_open() && !parent.status.is_open())
    {
        problems.add(
            line,
            format!(
                "task `{id}` is {}, and its parent `{}` is {}: its subtasks can't be open",
                task.status, parent.id, parent.status
            ),
        );
    }
    if task.status == TaskStatus::InProgress && task.assignee.is_none() {
        problems.add(line, format!("task `{id}` is in_progress: expected an `assignee`"));
    }
}

fn circle(tasks: &[&TaskId]) -> String {
    let way = tasks.iter().chain(tasks.first());
    let shown: Vec<&str> = way.take(MAX_SHOWN_TASKS).map(|id| id.as_str()).collect();
    let more = if tasks.len() >= MAX_SHOWN_TASKS { " -> …" } else { "" };
    format!(
        "a task would wait for itself: {}{more}; a task waits for its dependencies and subtasks",
        shown.join(" -> ")
    )
}

/// Refuses dependencies on a task's own subtasks at any depth.
fn check_kin(new: &[Numbered<Task>], graph: &TaskGraph, problems: &mut Problems) {
    let places = places(graph);
    for Numbered { line, object: task } in new {
        let Some(own) = places.get(&task.id) else { continue };
        for dependency in &task.dependencies {
            let below = places.get(dependency);
            if below.is_some_and(|below| own.0 < below.0 && below.1 <= own.1) {
                problems.add(
                    *line,
                    format!(
                        "task `{}` depends on its own subtask `{dependency}`: it waits for that \
                         anyway",
                        task.id
                    ),
                );
            }
        }
    }
}

/// A step of the walk through the tree of parents.
enum Step<'a> {
    Enter(&'a TaskId),
    Leave(&'a TaskId),
}

/// Returns the place of each task in the tree of parents: when a walk enters it, and the last place
/// below it.
fn places(graph: &TaskGraph) -> BTreeMap<&TaskId, (usize, usize)> {
    let mut places = BTreeMap::new();
    let mut n_entered = 0;
    let has_parent = |task: &Task| task.parent.as_ref().is_some_and(|id| graph.find(id).is_some());
    let roots = graph.tasks().filter(|task| !has_parent(task));
    let mut steps: Vec<Step<'_>> = roots.map(|task| Step::Enter(&task.id)).collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Enter(id) => {
                n_entered += 1;
                places.insert(id, (n_entered, n_entered));
                steps.push(Step::Leave(id));
                steps.extend(graph.subtasks(id).map(|part| Step::Enter(&part.id)));
            }
            Step::Leave(id) => {
                if let Some(place) = places.get_mut(id) {
                    place.1 = n_entered;
                }
            }
        }
    }
    places
}

#[cfg(test)]
mod tests;
