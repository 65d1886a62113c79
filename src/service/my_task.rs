//! `get_my_task`: the task an agent works on, bound to its launch from then on; the start of its execution is recorded.

use std::path::PathBuf;

use crate::domain::id::{ExecutionId, TaskId};
use crate::domain::task::next_task;
use crate::domain::{Execution, InstanceKey, Launch, Task, TaskGraph, TaskStatus, Usage};
use crate::rows::{Transaction, executions, launches, tasks};
use crate::store::{Change, Commit, Read, StoreError, TaskFilter};

use super::{Caller, Service, ServiceError};

/// A task as its agent sees it.
#[derive(Debug, Clone)]
pub struct MyTask {
    pub task: Task,
    pub working_directory: PathBuf,
    /// What the agent's own last run on the task left.
    pub context: Option<Execution>,
    /// What the previous assignee left.
    pub handoff: Option<Execution>,
}

impl Service {
    /// The task of `caller`; `None` if nothing of its project that is assigned to it is in progress.
    pub async fn my_task(&self, caller: &Caller) -> Result<Option<MyTask>, ServiceError> {
        let key = &caller.session.key;
        self.transact(|| async move {
            let (launch, expect) = self.fence(caller).await?;
            let in_progress = self.tasks_in_progress(key).await?;
            let graph = self.graph_above(&in_progress).await?;
            let Some(task) = next_task(launch.task.as_ref(), &in_progress, &graph) else {
                return Ok((Commit::default(), None));
            };
            let project = self.store.project(&key.project).await?;
            let earlier = self.store.executions_of_task(&task.id).await?;
            let left_by = |is_mine: bool| {
                let mut others = earlier.iter().filter(|execution| execution.launch != launch.id);
                others.find(|execution| (execution.key.agent == key.agent) == is_mine).cloned()
            };
            let answer = MyTask {
                task: task.clone(),
                working_directory: project
                    .map(|project| project.working_directory)
                    .unwrap_or_default(),
                context: left_by(true),
                handoff: left_by(false),
            };
            let is_recorded = earlier.iter().any(|execution| execution.launch == launch.id);
            let changes = self.changes_to_bind(launch, task, is_recorded);
            Ok((Commit { expect, changes }, Some(answer)))
        })
        .await
    }

    /// What to tell an agent that asked for its task.
    pub fn task_instruction(&self, has_task: bool) -> &'static str {
        if has_task { self.guidance().task_given() } else { self.guidance().no_task() }
    }

    /// What an agent may work on in its project.
    pub(super) async fn tasks_in_progress(
        &self,
        key: &InstanceKey,
    ) -> Result<Vec<Task>, ServiceError> {
        let filter = TaskFilter {
            project: Some(key.project.clone()),
            assignee: Some(key.agent.clone()),
            status: Some(TaskStatus::InProgress),
            ..TaskFilter::default()
        };
        Ok(self.store.tasks(&filter).await?)
    }

    /// `tasks` and what they are part of.
    pub(super) async fn graph_above(&self, tasks: &[Task]) -> Result<TaskGraph, ServiceError> {
        let mut graph: TaskGraph = tasks.iter().cloned().collect();
        for task in tasks {
            self.add_above(&mut graph, task).await?;
        }
        Ok(graph)
    }

    /// The record of a launch's work on a task, at its start.
    pub(super) fn new_execution(&self, launch: &Launch, task: &TaskId) -> Execution {
        Execution {
            id: self.world.new_id(ExecutionId::PREFIX),
            launch: launch.id.clone(),
            task: task.clone(),
            key: launch.key.clone(),
            started_at: self.now(),
            ended_at: None,
            result: None,
            summary: None,
            next_steps: None,
            progress: None,
            findings: None,
            outcome: None,
            usage: Usage::default(),
            failure: None,
            revision: 0,
        }
    }

    pub(super) fn changes_to_bind(
        &self,
        launch: Launch,
        task: &Task,
        is_recorded: bool,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        if !is_recorded {
            changes.push(Change::Execution(self.new_execution(&launch, &task.id)));
        }
        if launch.task.as_ref() != Some(&task.id) {
            changes.push(Change::Launch(Launch { task: Some(task.id.clone()), ..launch }));
        }
        changes
    }
}

/// Returns the tasks in progress of an agent in its project.
pub(super) fn in_progress(tx: &mut Read<'_>, key: &InstanceKey) -> Result<Vec<Task>, StoreError> {
    let filter = TaskFilter {
        project: Some(key.project.clone()),
        assignee: Some(key.agent.clone()),
        status: Some(TaskStatus::InProgress),
        ..TaskFilter::default()
    };
    tasks::list(tx, &filter)
}

/// Begins the work of a launch on a task. It is not stored yet.
pub(super) fn new_execution(tx: &mut Transaction<'_>, launch: &Launch, task: &TaskId) -> Execution {
    Execution {
        id: tx.new_id(ExecutionId::PREFIX),
        launch: launch.id.clone(),
        task: task.clone(),
        key: launch.key.clone(),
        started_at: tx.now(),
        ended_at: None,
        result: None,
        summary: None,
        next_steps: None,
        progress: None,
        findings: None,
        outcome: None,
        usage: Usage::default(),
        failure: None,
        revision: 0,
    }
}

/// Gives a task to a launch: a new execution, unless `earlier` is there, and the task on the launch.
pub(super) fn bind(
    tx: &mut Transaction<'_>,
    launch: Launch,
    task: &TaskId,
    earlier: Option<Execution>,
) -> Result<Execution, StoreError> {
    let execution = match earlier {
        Some(earlier) => earlier,
        None => {
            let new = new_execution(tx, &launch, task);
            executions::put(tx, &new)?;
            new
        }
    };
    if launch.task.as_ref() != Some(task) {
        launches::put(tx, &Launch { task: Some(task.clone()), ..launch })?;
    }
    Ok(execution)
}
