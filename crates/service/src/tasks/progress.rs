//! `get_my_task_progress`: the progress of an agent's tasks. It only reads.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::TaskId;
use domain::{Task, TaskStatus};
use store::rows::{executions, tasks};
use store::{Read, StoreError, TaskFilter};

use super::Tasks;
use super::rules::{graph_above, tasks_below};
use crate::workspaces::own_result;
use crate::{Caller, OwnResult, ServiceError};

/// A task with its subtasks.
#[derive(Debug, Clone)]
pub struct TaskProgress {
    pub task: Task,
    /// The result, if the task has a clone of its own.
    pub result: Option<OwnResult>,
    pub subtasks: Vec<TaskProgress>,
}

impl Tasks {
    /// Returns the tasks of `caller` in its project that are open, or that its launch has worked
    /// on, by creation. They are its tasks without a parent, and its own parts of other agents'
    /// tasks. Below them are all subtasks of any assignee.
    pub async fn progress(&self, caller: &Caller) -> Result<Vec<TaskProgress>, ServiceError> {
        let caller = caller.clone();
        self.core.read(move |tx| Ok(progress(tx, &caller)?)).await
    }
}

fn progress(tx: &mut Read<'_>, caller: &Caller) -> Result<Vec<TaskProgress>, StoreError> {
    let key = &caller.session.key;
    let open = TaskFilter {
        project: Some(key.project.clone()),
        assignee: Some(key.agent.clone()),
        only_open: true,
        ..TaskFilter::default()
    };
    let mut mine = tasks::list(tx, &open)?;
    let listed: BTreeSet<TaskId> = mine.iter().map(|task| task.id.clone()).collect();
    for execution in executions::list_of_launch(tx, &caller.launch.id)? {
        let worked_on = tasks::get(tx, &execution.task)?;
        let is_mine =
            |task: &Task| task.assignee.as_ref() == Some(&key.agent) && !listed.contains(&task.id);
        mine.extend(worked_on.filter(is_mine));
    }
    mine.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let graph = graph_above(tx, &mine)?;
    let shown: BTreeSet<&TaskId> = mine.iter().map(|task| &task.id).collect();
    let mut tops = Vec::new();
    for task in &mine {
        // The task is shown below its ancestor.
        if graph.ancestors(task).iter().any(|ancestor| shown.contains(&ancestor.id)) {
            continue;
        }
        let mut by_parent: BTreeMap<TaskId, Vec<Task>> = BTreeMap::new();
        for part in tasks_below(tx, &task.id, |_| true)? {
            let parent = part.parent.clone().unwrap_or_else(|| task.id.clone());
            by_parent.entry(parent).or_default().push(part);
        }
        let mut results = BTreeMap::new();
        for part in by_parent.values().flatten().filter(|part| part.status == TaskStatus::Done) {
            results.extend(own_result(tx, &part.id)?.map(|result| (part.id.clone(), result)));
        }
        tops.push(TaskProgress::of(task.clone(), &mut by_parent, &mut results));
    }
    Ok(tops)
}

impl TaskProgress {
    fn of(
        task: Task,
        by_parent: &mut BTreeMap<TaskId, Vec<Task>>,
        results: &mut BTreeMap<TaskId, OwnResult>,
    ) -> Self {
        let parts = by_parent.remove(&task.id).unwrap_or_default();
        let subtasks = parts.into_iter().map(|part| Self::of(part, by_parent, results)).collect();
        Self { result: results.remove(&task.id), subtasks, task }
    }
}
