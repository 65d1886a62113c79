//! Which tasks may become the parent or a dependency of a task, for people who pick one of many.
//!
//! It looks at the relations of all tasks of a project at once. `change` decides about one edit,
//! and has the same result.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::TaskId;

/// The relation that a task gets to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The other task becomes its parent.
    Parent,
    /// The task waits for the other one.
    Dependency,
}

/// The relations of a task, without the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLinks {
    pub id: TaskId,
    pub parent: Option<TaskId>,
    pub dependencies: Vec<TaskId>,
}

impl Relation {
    /// Returns the tasks that cannot get this relation to a task: the task itself, and those with
    /// which it would be part of itself or wait for itself. `links` has the tasks of the project
    /// that have a parent or dependencies.
    pub fn impossible_for<'a>(
        self,
        task: &'a TaskId,
        links: &'a [TaskLinks],
    ) -> BTreeSet<&'a TaskId> {
        let mut parts = Edges::new();
        let mut waits_for = Edges::new();
        let mut waited_for_by = Edges::new();
        for TaskLinks { id, parent, dependencies } in links {
            // A parent waits for its parts.
            if let Some(parent) = parent {
                parts.entry(parent).or_default().push(id);
                waits_for.entry(parent).or_default().push(id);
                waited_for_by.entry(id).or_default().push(parent);
            }
            for dependency in dependencies {
                waits_for.entry(id).or_default().push(dependency);
                waited_for_by.entry(dependency).or_default().push(id);
            }
        }
        match self {
            // The parent will wait for the task.
            Self::Parent => reached(task, &waits_for),
            // The task will wait for the dependency, and waits for its parts already.
            Self::Dependency => {
                let mut all = reached(task, &waited_for_by);
                all.append(&mut reached(task, &parts));
                all
            }
        }
    }
}

type Edges<'a> = BTreeMap<&'a TaskId, Vec<&'a TaskId>>;

/// Returns `start` and all tasks to which the edges lead from it.
fn reached<'a>(start: &'a TaskId, edges: &Edges<'a>) -> BTreeSet<&'a TaskId> {
    let mut seen = BTreeSet::from([start]);
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        let next = edges.get(id).into_iter().flatten().copied();
        open.extend(next.filter(|id| seen.insert(id)));
    }
    seen
}
