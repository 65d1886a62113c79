//! `get_my_task`: returns the task of an agent, binds it to the launch, and stores the start of its
//! execution.

use std::path::PathBuf;
use std::sync::Arc;

use domain::comment::{Comment, MAX_FOR_AGENT, for_agent};
use domain::conversation::FreshReason;
use domain::id::{ExecutionId, TaskId};
use domain::task::next_task;
use domain::{
    Attempt, Check, Execution, InstanceKey, LastEnd, Launch, Task, TaskStatus, Usage, Workspace,
};
use store::rows::{Transaction, comments, executions, launches, projects, tasks, workspaces};
use store::{Read, StoreError, TaskFilter};

use super::Tasks;
use super::rules::graph_above;
use crate::checks;
use crate::sessions::caller::fence;
use crate::workspaces::{
    DependencyResult, OwnCheckouts, dependencies_of, directory_of, renew_conflict,
};
use crate::{Caller, ServiceError};

/// A task as its agent sees it.
#[derive(Debug, Clone)]
pub struct MyTask {
    pub task: Task,
    pub working_directory: PathBuf,
    /// The clone that it works in; `None` for the directory of the project.
    pub workspace: Option<Workspace>,
    /// The results of the tasks that it depends on, if it has a clone.
    pub dependencies: Vec<DependencyResult>,
    /// The number of this attempt at the task. The first one is 1.
    pub attempt: u32,
    /// The end of the attempt before, by any agent.
    pub last_end: Option<LastEnd>,
    /// True if its CLI continues the conversation before it; `None` if there was none.
    pub continued: Option<bool>,
    /// The reason why it does not continue it.
    pub fresh_because: Option<FreshReason>,
    /// The texts that the agent's own last run on the task left.
    pub context: Option<Execution>,
    /// The texts that the previous assignee left.
    pub handoff: Option<Execution>,
    /// The checks that failed after the last reported success, with their evidence.
    pub checks: Vec<Check>,
    /// The newest comments of people, the oldest of them first.
    pub comments: Vec<Comment>,
}

impl Tasks {
    /// Returns the task of `caller`; `None` if no task of its project that is assigned to it is in
    /// progress.
    pub async fn mine(&self, caller: &Caller) -> Result<Option<MyTask>, ServiceError> {
        // An agent that asks again changes nothing, and does not use the only writer.
        let first = caller.clone();
        let checkouts = Arc::clone(&self.checkouts);
        let found = self.core.read(move |tx| find(tx, &first, &checkouts)).await?;
        if found.as_ref().is_none_or(TaskOfLaunch::is_bound) {
            return Ok(found.map(|found| found.answer));
        }
        // Its branch may have moved. It stays the same while the agent works.
        if let Some(workspace) = found.and_then(|found| found.answer.workspace) {
            Box::pin(renew_conflict(&self.core, &self.checkouts, &workspace)).await?;
        }
        let caller = caller.clone();
        let checkouts = Arc::clone(&self.checkouts);
        self.core
            .write(move |tx| {
                let Some(TaskOfLaunch { answer, launch, own }) = find(tx, &caller, &checkouts)?
                else {
                    return Ok(None);
                };
                bind(tx, launch, &answer.task.id, own)?;
                Ok(Some(answer))
            })
            .await
    }

    /// Returns the text for an agent that asked for its task.
    pub fn instruction(&self, has_task: bool) -> &'static str {
        if has_task { self.core.guidance().task_given() } else { self.core.guidance().no_task() }
    }
}

/// The task that a launch works on, or begins to work on.
struct TaskOfLaunch {
    answer: MyTask,
    launch: Launch,
    /// The execution of the launch on the task. `None` before the first answer.
    own: Option<Execution>,
}

impl TaskOfLaunch {
    /// Returns whether the store has the start of the work already.
    fn is_bound(&self) -> bool {
        self.own.is_some() && self.launch.task.as_ref() == Some(&self.answer.task.id)
    }
}

/// Finds the task of `caller`.
fn find(
    tx: &mut Read<'_>,
    caller: &Caller,
    checkouts: &OwnCheckouts,
) -> Result<Option<TaskOfLaunch>, ServiceError> {
    let key = &caller.session.key;
    let launch = fence(tx, caller)?;
    let in_progress = in_progress(tx, key)?;
    let graph = graph_above(tx, &in_progress)?;
    let bound = launch.task.as_ref().or(launch.claimed_task.as_ref());
    let next = next_task(bound, &in_progress, &graph);
    // A clone is of one task. If that was closed meanwhile, another launch does the next one.
    let is_of_clone =
        |task: &&Task| launch.workspace.is_none() || launch.task.as_ref() == Some(&task.id);
    let Some(task) = next.filter(is_of_clone) else {
        return Ok(None);
    };
    let project = projects::get(tx, &key.project)?;
    let earlier = executions::list_of_task(tx, &task.id)?;
    let left_by = |is_mine: bool| {
        let mut others = earlier.iter().filter(|execution| execution.launch != launch.id);
        others.find(|execution| (execution.key.agent == key.agent) == is_mine).cloned()
    };
    let last_end = match LastEnd::of(&launch.id, &earlier) {
        Some(end) => {
            let ended = launches::get(tx, &end.launch)?;
            let last_line = ended.and_then(|launch| launch.activity.progress);
            Some(LastEnd { last_line, ..end })
        }
        None => None,
    };
    let fresh_because = launch.fresh_because.filter(|why| why.is_news());
    // The task of its conversation may have been closed since its start.
    let is_of_task = launch.claimed_task.as_ref().is_none_or(|claimed| *claimed == task.id);
    let is_told = is_of_task && (launch.is_continued() || fresh_because.is_some());
    let answer = MyTask {
        continued: is_told.then(|| launch.is_continued()),
        fresh_because: fresh_because.filter(|_| is_told),
        attempt: Attempt::of(&launch.id, &earlier).number,
        last_end,
        task: task.clone(),
        working_directory: directory_of(tx, &launch, project.as_ref(), checkouts)?,
        workspace: match &launch.workspace {
            Some(id) => workspaces::get(tx, id)?,
            None => None,
        },
        dependencies: match &launch.workspace {
            Some(_) => dependencies_of(tx, task)?.results,
            None => Vec::new(),
        },
        context: left_by(true),
        handoff: left_by(false),
        checks: checks::failed_of(tx, task)?,
        comments: for_agent(comments::list_newest(tx, &task.id, MAX_FOR_AGENT)?),
    };
    let own = earlier.iter().find(|execution| execution.launch == launch.id).cloned();
    Ok(Some(TaskOfLaunch { answer, launch, own }))
}

/// Returns the tasks that an agent has to work on in its project: those in progress that are not
/// being checked.
pub(crate) fn in_progress(tx: &mut Read<'_>, key: &InstanceKey) -> Result<Vec<Task>, StoreError> {
    let mut tasks = begun(tx, key)?;
    tasks.retain(|task| task.checking_since.is_none());
    Ok(tasks)
}

/// Returns the tasks of an agent that are being checked, the longest first.
pub(crate) fn in_check(tx: &mut Read<'_>, key: &InstanceKey) -> Result<Vec<Task>, StoreError> {
    let mut tasks = begun(tx, key)?;
    tasks.retain(|task| task.checking_since.is_some());
    tasks.sort_by_key(|task| task.checking_since);
    Ok(tasks)
}

/// Returns the tasks of an agent in a project that are in progress.
fn begun(tx: &mut Read<'_>, key: &InstanceKey) -> Result<Vec<Task>, StoreError> {
    let filter = TaskFilter {
        project: Some(key.project.clone()),
        assignee: Some(key.agent.clone()),
        status: Some(TaskStatus::InProgress),
        ..TaskFilter::default()
    };
    tasks::list(tx, &filter)
}

/// Begins the work of a launch on a task. It is not stored yet.
pub(crate) fn new_execution(tx: &mut Transaction<'_>, launch: &Launch, task: &TaskId) -> Execution {
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

/// Gives a task to a launch: writes the task on the launch, and a new execution unless there is
/// `earlier`.
pub(crate) fn bind(
    tx: &mut Transaction<'_>,
    launch: Launch,
    task: &TaskId,
    earlier: Option<Execution>,
) -> Result<Execution, StoreError> {
    let execution = if let Some(earlier) = earlier {
        earlier
    } else {
        let new = new_execution(tx, &launch, task);
        executions::put(tx, None, &new)?;
        new
    };
    if launch.task.as_ref() != Some(task) {
        launches::put(tx, &Launch { task: Some(task.clone()), ..launch })?;
    }
    Ok(execution)
}
