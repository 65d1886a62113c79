//! Tasks, and the one set of rules by which they are created and changed through every interface.
//!
//! ```text
//!  backlog ◄──► todo ◄──► in_progress ◄──► blocked ──► todo, cancelled
//!     └──────────┬─────────────┤
//!                │             ├──► done ─────┐
//!                └─────────────┴──► cancelled ┴──► todo   (reopened, by people only)
//! ```
//!
//! People also set every open task to done, and block a task before it is begun.
//!
//! A task may have subtasks, and these may have subtasks, too. A closed task (done or cancelled)
//! never has an open subtask. A task can be done only if its subtasks are closed. Cancelling a task
//! cancels its open subtasks, and an open task cannot become part of a closed one. Blocking a task
//! blocks the subtasks below it that are todo or in progress. When the task continues, the subtasks
//! that were blocked by it become todo again. Cancelled subtasks stay cancelled when their parent
//! is reopened.
//!
//! A person may want a task in progress while its dependencies are open. It then stays todo, and
//! begins with the change that finishes the last dependency. An agent is refused instead.

pub mod batch;
mod board_filter;
mod chain;
mod cycle;
mod edit;
mod graph;
mod moves;
mod relation;
mod search;

pub use board_filter::{BoardFilter, TaskNeeds};
pub use chain::begun;
pub use cycle::{Cycle, find_cycles};
pub use edit::{NewTask, TaskEdit, each_once};
pub use graph::TaskGraph;
pub use moves::{Move, Mover};
pub use relation::{Relation, TaskLinks};
pub use search::{Rank, TaskSearch};

use serde::{Deserialize, Serialize};

use super::id::{AgentId, ProjectId, TaskId};
use super::language::Language;
use super::limits;
use super::refusal::Refusal;
use super::short_id::ShortId;
use super::time::Timestamp;
use super::words::words;

words! {
    /// The status of a task.
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
    /// Returns the name that people read on the pages.
    pub const fn name_in(self, language: Language) -> &'static str {
        match self {
            Self::Backlog => language.either("Backlog", "バックログ"),
            Self::Todo => language.either("To do", "未着手"),
            Self::InProgress => language.either("In progress", "進行中"),
            Self::Blocked => language.either("Blocked", "ブロック中"),
            Self::Done => language.either("Done", "完了"),
            Self::Cancelled => language.either("Cancelled", "取り消し"),
        }
    }

    /// Returns whether the task is neither done nor cancelled.
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Done | Self::Cancelled)
    }

    /// Returns whether the order of work leads from this status to `to`. Agents keep this order,
    /// but only people reopen a task.
    const fn leads_to(self, to: Self) -> bool {
        match self {
            Self::Backlog => matches!(to, Self::Todo | Self::InProgress | Self::Cancelled),
            Self::Todo => {
                matches!(to, Self::Backlog | Self::InProgress | Self::Done | Self::Cancelled)
            }
            Self::InProgress => {
                matches!(to, Self::Todo | Self::Blocked | Self::Done | Self::Cancelled)
            }
            Self::Blocked => matches!(to, Self::Todo | Self::InProgress | Self::Cancelled),
            Self::Done | Self::Cancelled => matches!(to, Self::Todo),
        }
    }

    /// Returns whether a person may change this status to `to`. A person may finish or block work
    /// at any time, also work that no agent has begun.
    pub const fn leads_people_to(self, to: Self) -> bool {
        match to {
            Self::Done => self.is_open(),
            Self::Blocked => matches!(self, Self::Backlog | Self::Todo | Self::InProgress),
            _ => self.leads_to(to),
        }
    }
}

/// A piece of work in a project.
///
/// Its JSON is its line in an export. Each field is exported, unless it says nothing to another
/// store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub id: TaskId,
    pub project: ProjectId,
    /// The id that people read and write. Its key is that of the project, so only the number is
    /// exported.
    #[serde(rename = "number", with = "super::short_id::number")]
    pub short_id: ShortId,
    pub title: String,
    pub description: String,
    pub status: TaskStatus,
    /// The reason why it is blocked; `None` in every other status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
    pub priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// Tasks that must be finished before this one can be in progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<TaskId>,
    /// The time since which a person wants it to begin as soon as its dependencies are done. Only a
    /// task that is todo has it, and one that is blocked together with its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_wanted_since: Option<Timestamp>,
    /// The time since which boards and lists leave it out; only a closed task has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// The time when it got its status.
    pub status_since: Timestamp,
    /// The time since which it is being checked; only a task in progress has it. Its agent does not
    /// work on it meanwhile.
    #[serde(skip)]
    pub checking_since: Option<Timestamp>,
    /// The number of rounds with a failed check since it was set in progress.
    #[serde(skip)]
    pub n_failed_rounds: u32,
    #[serde(skip)]
    pub revision: i64,
}

/// The author of a change of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor<'a> {
    /// A person, or a file that a person applied.
    Person,
    Agent(&'a AgentId),
}

/// Returns the tasks to write so that a task becomes `after`: the task itself first, then the tasks
/// that change with it. Returns none if nothing changes. Every change of a task goes through this
/// function.
///
/// `before` is the task as it is, or `None` for a new one. `graph` contains `after` in its place.
/// It also contains, as far as they exist, its ancestors, its subtasks with the open ones below
/// them, and its dependencies. If its parent or its dependencies change, it also contains what
/// those wait for and are part of.
///
/// # Errors
/// Returns a refusal that the caller may pass on as it is.
pub fn change(
    before: Option<&Task>,
    after: &Task,
    actor: Actor<'_>,
    graph: &TaskGraph,
    now: Timestamp,
) -> Result<Vec<Task>, Refusal> {
    let is_shaped = before.is_some_and(|before| {
        before.parent == after.parent && before.dependencies == after.dependencies
    });
    if !is_shaped {
        // This check is first, because the caller must not learn whether another project has such a
        // task.
        check_references(after, graph)?;
    }
    check_right(before, after, actor, graph)?;
    if before == Some(after) {
        return Ok(Vec::new());
    }
    if before.is_none_or(|before| before.title != after.title) {
        check_title(after)?;
    }
    if before.is_none_or(|before| before.project != after.project) {
        check_place(before, after, actor)?;
    }
    if !is_shaped {
        check_shape(after, graph)?;
    }
    if let Some(before) = before.filter(|before| before.status != after.status) {
        check_transition(before, after.status, actor)?;
    }
    check_needs(before, after, actor, graph)?;

    let after = &chain::without_withdrawn_wish(before, after, actor);
    let task = if chain::has_to_wait(before, after, graph) {
        chain::wanted(before, after, now)
    } else if before.is_some_and(|before| before.status == after.status) {
        Task {
            blocked_reason: after
                .blocked_reason
                .clone()
                .filter(|_| after.status == TaskStatus::Blocked),
            ..after.clone()
        }
    } else {
        moved(after, after.status, after.blocked_reason.as_deref(), now)
    };
    if before == Some(&task) {
        return Ok(Vec::new());
    }
    let mut changed = taken_along(before, &task, graph, now);
    changed.insert(0, task);
    Ok(chain::begin_wanted(changed, graph, now))
}

fn moved(task: &Task, to: TaskStatus, reason: Option<&str>, now: Timestamp) -> Task {
    Task {
        status: to,
        blocked_reason: reason.filter(|_| to == TaskStatus::Blocked).map(str::to_owned),
        start_wanted_since: task
            .start_wanted_since
            .filter(|_| matches!(to, TaskStatus::Todo | TaskStatus::Blocked)),
        checking_since: None,
        n_failed_rounds: if to == TaskStatus::InProgress { 0 } else { task.n_failed_rounds },
        archived_at: task.archived_at.filter(|_| !to.is_open()),
        status_since: now,
        ..task.clone()
    }
}

/// Returns the open tasks below that follow the status of `after`.
fn taken_along(
    before: Option<&Task>,
    after: &Task,
    graph: &TaskGraph,
    now: Timestamp,
) -> Vec<Task> {
    use TaskStatus::{Blocked, Cancelled, InProgress, Todo};
    let Some(was) = before.map(|before| before.status).filter(|was| *was != after.status) else {
        return Vec::new();
    };
    let reason = format!("parent task {} is blocked", after.id);
    let follows = |part: &Task| match (was, after.status) {
        (_, Cancelled) => part.status.is_open().then_some(Cancelled),
        (_, Blocked) => matches!(part.status, Todo | InProgress).then_some(Blocked),
        (Blocked, _) => (part.blocked_reason.as_ref() == Some(&reason)).then_some(Todo),
        _ => None,
    };
    let below = graph.descendants(&after.id).into_iter();
    below.filter_map(|part| Some(moved(part, follows(part)?, Some(&reason), now))).collect()
}

/// Checks that an agent changes only its own tasks and their parts. It may create parts of these,
/// and top tasks for later. Creating a task does not begin it.
fn check_right(
    before: Option<&Task>,
    after: &Task,
    actor: Actor<'_>,
    graph: &TaskGraph,
) -> Result<(), Refusal> {
    let Actor::Agent(agent) = actor else {
        return Ok(());
    };
    let is_theirs = |task: &Task| task.assignee.as_ref() == Some(agent);
    let is_right = match before {
        Some(before) => is_theirs(before),
        None => after.parent.is_none(),
    };
    // A task that is created together with it was checked itself.
    let is_new = |task: &Task| before.is_none() && task.revision == 0;
    let above = graph.ancestors(before.unwrap_or(after));
    if is_right || above.into_iter().any(|ancestor| is_theirs(ancestor) || is_new(ancestor)) {
        return Ok(());
    }
    let task =
        after.parent.clone().filter(|_| before.is_none()).unwrap_or_else(|| after.id.clone());
    Err(Refusal::NotYourTask { task })
}

/// Checks that a task has a visible title on one line.
pub(crate) fn check_title(task: &Task) -> Result<(), Refusal> {
    limits::TITLE.take(&task.title)?;
    if task.title.trim().is_empty() {
        return Err(Refusal::Missing { text: "title", problem: "a task needs a title" });
    }
    Ok(())
}

/// Checks that a task stays in its project, and that agents create no task that is begun or closed.
fn check_place(before: Option<&Task>, after: &Task, actor: Actor<'_>) -> Result<(), Refusal> {
    let is_for_later = matches!(after.status, TaskStatus::Backlog | TaskStatus::Todo);
    match (before, actor) {
        (Some(before), _) => Err(Refusal::StaysInProject {
            task: before.id.clone(),
            project: before.project.clone(),
        }),
        (None, Actor::Agent(_)) if !is_for_later => Err(Refusal::Invalid(format!(
            "an agent makes tasks that are backlog or todo, not {}",
            after.status
        ))),
        (None, _) => Ok(()),
    }
}

/// Checks that the parent and the dependencies exist in the same project.
fn check_references(task: &Task, graph: &TaskGraph) -> Result<(), Refusal> {
    let is_here = |id: &TaskId| graph.find(id).is_some_and(|other| other.project == task.project);
    match task.parent.iter().chain(&task.dependencies).find(|id| !is_here(id)) {
        Some(id) => Err(Refusal::NoSuchTask { task: id.clone(), project: task.project.clone() }),
        None => Ok(()),
    }
}

/// Checks that a task is not part of itself and does not wait for itself.
fn check_shape(task: &Task, graph: &TaskGraph) -> Result<(), Refusal> {
    let above = graph.ancestors(task);
    if above.iter().any(|ancestor| ancestor.id == task.id) {
        return Err(Refusal::PartOfItself { task: task.id.clone() });
    }
    for dependency in task.dependencies.iter().filter_map(|id| graph.find(id)) {
        let is_below = graph.ancestors(dependency).iter().any(|ancestor| ancestor.id == task.id);
        if is_below || above.iter().any(|ancestor| ancestor.id == dependency.id) {
            let task = task.id.clone();
            let dependency = dependency.id.clone();
            return Err(Refusal::DependsOnKin { task, dependency });
        }
    }
    match graph.find_cycle(&task.id) {
        Some(way) => Err(Refusal::WaitsForItself { way }),
        None => Ok(()),
    }
}

fn check_transition(task: &Task, to: TaskStatus, actor: Actor<'_>) -> Result<(), Refusal> {
    use TaskStatus::{Cancelled, Done};
    match (task.status, actor) {
        (Done | Cancelled, Actor::Agent(_)) if task.status.leads_to(to) => {
            Err(Refusal::PeopleOnly { task: task.id.clone(), from: task.status })
        }
        (from, Actor::Agent(_)) if from.leads_to(to) => Ok(()),
        (from, Actor::Person) if from.leads_people_to(to) => Ok(()),
        (from, _) => Err(Refusal::ImpossibleStatus { task: called(task, actor), from, to }),
    }
}

/// Returns the id of a task for a refusal. People read short ids. Agents get the ids that they use
/// in calls, and a task that is being created has no short id yet.
fn called(task: &Task, actor: Actor<'_>) -> String {
    match actor {
        Actor::Person if task.revision > 0 => task.short_id.to_string(),
        _ => task.id.to_string(),
    }
}

fn called_all(tasks: Vec<&Task>, actor: Actor<'_>) -> Vec<String> {
    tasks.into_iter().map(|task| called(task, actor)).collect()
}

/// Checks the conditions of a status. They are checked only when something about them changes, so
/// reopening a dependency stops no task.
fn check_needs(
    before: Option<&Task>,
    after: &Task,
    actor: Actor<'_>,
    graph: &TaskGraph,
) -> Result<(), Refusal> {
    let is_moved = before.is_none_or(|before| before.status != after.status);
    let is_replaced = is_moved || before.is_some_and(|before| before.parent != after.parent);
    let parent = after.parent.as_ref().and_then(|parent| graph.find(parent));
    if let Some(parent) =
        parent.filter(|parent| is_replaced && after.status.is_open() && !parent.status.is_open())
    {
        let status = parent.status;
        return Err(Refusal::ParentClosed { parent: called(parent, actor), status });
    }
    match after.status {
        TaskStatus::InProgress if after.assignee.is_none() => {
            Err(Refusal::NeedsAssignee { task: called(before.unwrap_or(after), actor) })
        }
        // The task waits for its dependencies.
        TaskStatus::InProgress if is_moved && actor == Actor::Person => Ok(()),
        TaskStatus::InProgress
            if is_moved
                || before.is_some_and(|before| before.dependencies != after.dependencies) =>
        {
            match chain::open_dependencies(after, graph) {
                open if open.is_empty() => Ok(()),
                open => Err(Refusal::DependenciesOpen {
                    task: called(before.unwrap_or(after), actor),
                    open: called_all(open, actor),
                }),
            }
        }
        TaskStatus::Done if is_moved => {
            match tasks_where(graph.subtasks(&after.id), |part| part.status.is_open()) {
                open if open.is_empty() => Ok(()),
                open => Err(Refusal::SubtasksOpen {
                    task: called(before.unwrap_or(after), actor),
                    open: called_all(open, actor),
                }),
            }
        }
        _ => Ok(()),
    }
}

fn tasks_where<'a>(
    tasks: impl Iterator<Item = &'a Task>,
    is_wanted: impl Fn(&Task) -> bool,
) -> Vec<&'a Task> {
    tasks.filter(|task| is_wanted(task)).collect()
}

/// Returns the task that an agent works on. It is the task of its launch, as long as this task is in
/// progress and assigned to the agent. Otherwise it is the most urgent task of `in_progress`, the
/// oldest first. A subtask of another task of `in_progress` (see `graph`) is done with that task.
pub fn next_task<'a>(
    bound: Option<&TaskId>,
    in_progress: &'a [Task],
    graph: &TaskGraph,
) -> Option<&'a Task> {
    let is_part = |task: &Task| {
        let above = graph.ancestors(task);
        in_progress.iter().any(|other| above.iter().any(|ancestor| ancestor.id == other.id))
    };
    let tops = in_progress.iter().filter(|task| !is_part(task));
    in_progress.iter().find(|task| Some(&task.id) == bound).or_else(|| {
        tops.min_by_key(|task| (std::cmp::Reverse(task.priority), task.created_at, &task.id))
    })
}

#[cfg(test)]
mod tests;
