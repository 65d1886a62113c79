//! Tasks and the one set of rules by which their status changes, whichever door the change comes through.
//!
//! ```text
//!  backlog ◄──► todo ◄──► in_progress ◄──► blocked ──► todo, cancelled
//!     └──────────┬─────────────┤
//!                │             ├──► done ─────┐
//!                └─────────────┴──► cancelled ┴──► todo   (reopened, by people only)
//! ```

use super::id::{AgentId, ProjectId, TaskId};
use super::limits;
use super::refusal::Refusal;
use super::time::Timestamp;
use super::words::words;

words! {
    /// Where a task stands.
    pub enum TaskStatus as "task status" {
        Backlog = "backlog",
        Todo = "todo",
        InProgress = "in_progress",
        Blocked = "blocked",
        Done = "done",
        Cancelled = "cancelled",
    }
}

words! {
    /// How urgent a task is; the later, the more.
    pub enum Priority as "priority" {
        Low = "low",
        Medium = "medium",
        High = "high",
        Urgent = "urgent",
    }
}

impl TaskStatus {
    /// Neither done nor cancelled.
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Done | Self::Cancelled)
    }
}

/// A piece of work in a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub project: ProjectId,
    pub parent: Option<TaskId>,
    pub title: String,
    pub description: String,
    pub status: TaskStatus,
    pub priority: Priority,
    pub assignee: Option<AgentId>,
    /// Tasks that must be finished before this one is in progress.
    pub dependencies: Vec<TaskId>,
    /// Why it is blocked; `None` in every other status.
    pub blocked_reason: Option<String>,
    pub created_at: Timestamp,
    /// Since when it has its status.
    pub status_since: Timestamp,
    pub revision: i64,
}

/// Who wants a task changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor<'a> {
    /// A person, or a file that a person applied.
    Person,
    Agent(&'a AgentId),
}

/// What the rules look at beside the task itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings<'a> {
    pub parent: Option<&'a Task>,
    pub subtasks: &'a [Task],
    pub dependencies: &'a [Task],
}

/// The tasks that a change of status rewrites, the task itself first; empty when nothing changes.
///
/// Blocking a task blocks its subtasks that are todo or in progress.
///
/// # Errors
/// The refusal that the caller may hand on as it is.
pub fn change_status(
    task: &Task,
    to: TaskStatus,
    reason: Option<&str>,
    actor: Actor<'_>,
    around: Surroundings<'_>,
    now: Timestamp,
) -> Result<Vec<Task>, Refusal> {
    check_right(task, actor, around)?;
    if task.status == to {
        return Ok(Vec::new());
    }
    check_transition(task, to, actor)?;
    check_needs(task, to, around)?;

    let mut changed = vec![moved(task, to, reason, now)];
    if to == TaskStatus::Blocked {
        let reason = format!("parent task {} is blocked", task.id);
        changed.extend(
            around
                .subtasks
                .iter()
                .filter(|subtask| matches!(subtask.status, TaskStatus::Todo | TaskStatus::InProgress))
                .map(|subtask| moved(subtask, TaskStatus::Blocked, Some(&reason), now)),
        );
    }
    Ok(changed)
}

fn moved(task: &Task, to: TaskStatus, reason: Option<&str>, now: Timestamp) -> Task {
    Task {
        status: to,
        blocked_reason: reason.filter(|_| to == TaskStatus::Blocked).map(str::to_owned),
        status_since: now,
        ..task.clone()
    }
}

/// An agent changes what is assigned to it, and the subtasks of that.
fn check_right(task: &Task, actor: Actor<'_>, around: Surroundings<'_>) -> Result<(), Refusal> {
    let Actor::Agent(agent) = actor else { return Ok(()) };
    let is_theirs = |task: &Task| task.assignee.as_ref() == Some(agent);
    if is_theirs(task) || around.parent.is_some_and(is_theirs) {
        Ok(())
    } else {
        Err(Refusal::NotYourTask { task: task.id.clone() })
    }
}

fn check_transition(task: &Task, to: TaskStatus, actor: Actor<'_>) -> Result<(), Refusal> {
    use TaskStatus::{Backlog, Blocked, Cancelled, Done, InProgress, Todo};
    let is_possible = match task.status {
        Backlog => matches!(to, Todo | InProgress | Cancelled),
        Todo => matches!(to, Backlog | InProgress | Done | Cancelled),
        InProgress => matches!(to, Todo | Blocked | Done | Cancelled),
        Blocked => matches!(to, Todo | InProgress | Cancelled),
        Done | Cancelled => matches!(to, Todo),
    };
    let refusal = || Refusal::ImpossibleStatus { task: task.id.clone(), from: task.status, to };
    if !is_possible {
        return Err(refusal());
    }
    match (task.status, to, actor) {
        (Done | Cancelled, _, Actor::Agent(_)) => Err(Refusal::PeopleOnly { task: task.id.clone(), from: task.status }),
        // A task that nobody began is done only by the agent that found it done.
        (Todo, Done, Actor::Person) => Err(refusal()),
        _ => Ok(()),
    }
}

fn check_needs(task: &Task, to: TaskStatus, around: Surroundings<'_>) -> Result<(), Refusal> {
    match to {
        TaskStatus::InProgress => {
            if task.assignee.is_none() {
                return Err(Refusal::NeedsAssignee { task: task.id.clone() });
            }
            let open = ids_where(around.dependencies, |dependency| dependency.status != TaskStatus::Done);
            if open.is_empty() { Ok(()) } else { Err(Refusal::DependenciesOpen { task: task.id.clone(), open }) }
        }
        TaskStatus::Done => check_subtasks_closed(task, around.subtasks),
        TaskStatus::Backlog | TaskStatus::Todo | TaskStatus::Blocked | TaskStatus::Cancelled => Ok(()),
    }
}

/// Whether `task` may be made as it is.
///
/// # Errors
/// `NeedsAssignee` and `DependenciesOpen` for one in progress; `Invalid` for a parent of another project or a done parent.
pub fn check_new(task: &Task, around: Surroundings<'_>) -> Result<(), Refusal> {
    check_title(task)?;
    limits::DESCRIPTION.take(&task.description)?;
    if let Some(parent) = around.parent {
        if parent.project != task.project {
            let problem =
                format!("parent task {} belongs to project {}, not {}", parent.id, parent.project, task.project);
            return Err(Refusal::Invalid(problem));
        }
        if !parent.status.is_open() && task.status.is_open() {
            return Err(Refusal::Invalid(format!("parent task {} is {}", parent.id, parent.status)));
        }
    }
    check_needs(task, task.status, around)
}

/// A task has a title that can be seen, on one line.
pub fn check_title(task: &Task) -> Result<(), Refusal> {
    limits::TITLE.take(&task.title)?;
    if task.title.trim().is_empty() {
        return Err(Refusal::Invalid("a task needs a title".to_owned()));
    }
    Ok(())
}

/// A task is done only after each of its subtasks is done or cancelled.
pub fn check_subtasks_closed(task: &Task, subtasks: &[Task]) -> Result<(), Refusal> {
    let open = ids_where(subtasks, |subtask| subtask.status.is_open());
    if open.is_empty() { Ok(()) } else { Err(Refusal::SubtasksOpen { task: task.id.clone(), open }) }
}

fn ids_where(tasks: &[Task], is_wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
    tasks.iter().filter(|task| is_wanted(task)).map(|task| task.id.clone()).collect()
}

/// The task an agent works on: the one its launch is bound to while that is in progress and still its own, otherwise the
/// most urgent of `in_progress`, the oldest first.
pub fn next_task<'a>(bound: Option<&TaskId>, in_progress: &'a [Task]) -> Option<&'a Task> {
    in_progress
        .iter()
        .find(|task| Some(&task.id) == bound)
        .or_else(|| in_progress.iter().min_by_key(|task| (std::cmp::Reverse(task.priority), task.created_at, &task.id)))
}

/// Whether `tasks` form a cycle by `next`; names one task on it.
pub fn find_cycle<'a>(start: &'a TaskId, next: impl Fn(&TaskId) -> Vec<&'a TaskId>) -> Option<&'a TaskId> {
    let mut seen = std::collections::BTreeSet::new();
    let mut open = next(start);
    while let Some(id) = open.pop() {
        if id == start {
            return Some(id);
        }
        if seen.insert(id) {
            open.extend(next(id));
        }
    }
    None
}

#[cfg(test)]
mod tests;
