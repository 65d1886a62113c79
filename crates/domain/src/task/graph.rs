//! Tasks and their relations: which task is part of which, and which task waits for which.
//!
//! The graph knows only the shape, no status and no rule. The caller of the rules fills it with the
//! tasks that they look at.

use std::collections::{BTreeMap, BTreeSet};

use super::Task;
use crate::id::TaskId;

/// Tasks by id. A task that one of them refers to may be missing.
#[derive(Debug, Clone, Default)]
pub struct TaskGraph {
    tasks: BTreeMap<TaskId, Task>,
    /// The subtasks by parent. It always agrees with `tasks`.
    parts: BTreeMap<TaskId, BTreeSet<TaskId>>,
}

impl TaskGraph {
    /// Inserts `task`, or replaces the task with its id.
    pub fn insert(&mut self, task: Task) {
        let before = self.tasks.insert(task.id.clone(), task.clone());
        if let Some(parts) =
            before.and_then(|before| before.parent).and_then(|parent| self.parts.get_mut(&parent))
        {
            parts.remove(&task.id);
        }
        if let Some(parent) = task.parent {
            self.parts.entry(parent).or_default().insert(task.id);
        }
    }

    pub fn find(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id)
    }

    /// Returns the tasks in the order of their ids.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// Returns the direct subtasks in the order of their ids.
    pub fn subtasks(&self, id: &TaskId) -> impl Iterator<Item = &Task> {
        self.parts.get(id).into_iter().flatten().filter_map(|part| self.tasks.get(part))
    }

    /// Returns the tasks that `task` is part of, the nearest first. A task that is its own ancestor
    /// is among them.
    pub fn ancestors(&self, task: &Task) -> Vec<&Task> {
        let mut above = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = task.parent.as_ref();
        while let Some(parent) =
            next.and_then(|id| self.tasks.get(id)).filter(|parent| seen.insert(&parent.id))
        {
            above.push(parent);
            next = parent.parent.as_ref();
        }
        above
    }

    /// Returns all parts of a task at every depth, each before its own parts.
    pub fn descendants(&self, id: &TaskId) -> Vec<&Task> {
        let mut below: Vec<&Task> = self.subtasks(id).collect();
        let mut seen: BTreeSet<&TaskId> = below.iter().map(|task| &task.id).collect();
        let mut n_looked_at = 0;
        while let Some(task) = below.get(n_looked_at).copied() {
            below.extend(
                self.subtasks(&task.id).filter(|part| part.id != *id && seen.insert(&part.id)),
            );
            n_looked_at += 1;
        }
        below
    }

    /// Returns the path from a task back to itself, if it waits for itself. A task waits for its
    /// dependencies and for its subtasks.
    pub fn find_cycle(&self, start: &TaskId) -> Option<Vec<TaskId>> {
        let mut came_from: BTreeMap<&TaskId, &TaskId> = BTreeMap::new();
        let mut open = vec![start];
        while let Some(id) = open.pop() {
            for next in self.waits_for(id) {
                if next == start {
                    let back = std::iter::successors(Some(id), |id| came_from.get(*id).copied());
                    let mut way: Vec<TaskId> =
                        std::iter::once(start).chain(back).cloned().collect();
                    way.reverse();
                    return Some(way);
                }
                if !came_from.contains_key(next) {
                    came_from.insert(next, id);
                    open.push(next);
                }
            }
        }
        None
    }

    /// Returns the dependencies and the subtasks of a task.
    pub(crate) fn waits_for(&self, id: &TaskId) -> impl Iterator<Item = &TaskId> {
        let dependencies = self.tasks.get(id).into_iter().flat_map(|task| &task.dependencies);
        dependencies.chain(self.subtasks(id).map(|subtask| &subtask.id))
    }
}

impl Extend<Task> for TaskGraph {
    fn extend<I: IntoIterator<Item = Task>>(&mut self, tasks: I) {
        for task in tasks {
            self.insert(task);
        }
    }
}

impl FromIterator<Task> for TaskGraph {
    fn from_iter<I: IntoIterator<Item = Task>>(tasks: I) -> Self {
        let mut graph = Self::default();
        graph.extend(tasks);
        graph
    }
}
