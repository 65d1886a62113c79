//! What an agent is to do next: for every state of its launch, its task and its chat there is exactly one answer.
//!
//! It says what, not how long to wait for it: whoever asks waits while the answer is to wait.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::id::TaskId;
use super::launch::{Launch, LaunchState, ReportResult, StopReason};
use super::notice::{Notice, NoticeDemand, NoticeKind};
use super::task::{Task, TaskStatus};

/// What an agent that works on a task is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStep {
    /// It was told something that it hasn't looked at.
    GetNotifications,
    GetMyTask,
    /// Work on the task itself: it has no open subtasks.
    Work(TaskId),
    ExecuteSubtask(TaskId),
    /// Have another agent begin with the subtask that is assigned to it.
    StartSubtask(TaskId),
    /// What is left is with other agents.
    WaitForSubtasks,
    ReportCompleted(ReportResult),
    /// Save what it has, log out and go.
    LogOut,
    /// Go: its session is over.
    Exit,
}

/// What decides about the next step of a task agent.
#[derive(Debug, Clone, Copy)]
pub struct TaskFacts<'a> {
    pub launch: &'a Launch,
    /// What it was told and hasn't dealt with.
    pub notices: &'a [Notice],
    /// The task of the launch.
    pub task: Option<&'a Task>,
    /// What is part of the task, at every depth; below a closed one there is nothing to do.
    pub subtasks: &'a [Task],
    /// Of the dependencies of the subtasks, those that aren't done.
    pub unfinished: &'a BTreeSet<TaskId>,
    /// Whether another task of the agent is in progress in its project.
    pub has_other_task: bool,
}

/// The next step of a task agent.
pub fn task_step(facts: TaskFacts<'_>) -> TaskStep {
    if !matches!(facts.launch.state, LaunchState::Running { .. }) {
        return TaskStep::Exit;
    }
    if facts.notices.iter().any(|notice| notice.read_at.is_none()) {
        return TaskStep::GetNotifications;
    }
    let mut demands = facts.notices.iter().filter(|notice| notice.demand == NoticeDemand::End);
    if let Some(notice) = demands.next() {
        return match notice.action.kind() {
            NoticeKind::StatusChange => TaskStep::ReportCompleted(ReportResult::Blocked),
            NoticeKind::Stop => TaskStep::LogOut,
        };
    }
    match facts.task {
        None if facts.has_other_task => TaskStep::GetMyTask,
        None => TaskStep::LogOut,
        Some(task) => step_of_task(task, facts),
    }
}

fn step_of_task(task: &Task, facts: TaskFacts<'_>) -> TaskStep {
    let is_theirs = |task: &Task| task.assignee.as_ref() == Some(&facts.launch.key.agent);
    match task.status {
        TaskStatus::InProgress if is_theirs(task) => step_among_subtasks(task, facts),
        _ if facts.has_other_task => TaskStep::GetMyTask,
        TaskStatus::Done => TaskStep::ReportCompleted(ReportResult::Success),
        TaskStatus::Backlog
        | TaskStatus::Todo
        | TaskStatus::InProgress
        | TaskStatus::Blocked
        | TaskStatus::Cancelled => TaskStep::ReportCompleted(ReportResult::Blocked),
    }
}

fn step_among_subtasks(task: &Task, facts: TaskFacts<'_>) -> TaskStep {
    let agent = &facts.launch.key.agent;
    let is_ready = |subtask: &Task| match subtask.status {
        TaskStatus::InProgress => true,
        TaskStatus::Todo | TaskStatus::Backlog => {
            !subtask.dependencies.iter().any(|dependency| facts.unfinished.contains(dependency))
        }
        TaskStatus::Blocked | TaskStatus::Done | TaskStatus::Cancelled => false,
    };
    let open_parts = |of: &TaskId| -> Vec<&Task> {
        facts
            .subtasks
            .iter()
            .filter(|part| part.parent.as_ref() == Some(of) && part.status.is_open())
            .collect()
    };
    // Its own parts down to those without open parts of their own, and on the way those of other agents, who see to theirs.
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut entered = open_parts(&task.id);
    if entered.is_empty() {
        return TaskStep::Work(task.id.clone());
    }
    while let Some(part) = entered.pop() {
        if part.assignee.as_ref().is_some_and(|assignee| assignee != agent) {
            others.push(part);
        } else if is_ready(part) {
            match open_parts(&part.id) {
                parts if parts.is_empty() => own.push(part),
                parts => entered.extend(parts),
            }
        }
    }
    // What was begun comes first, then the most urgent, then the oldest.
    let order = |part: &&Task| {
        let is_begun = part.status == TaskStatus::InProgress;
        (Reverse(is_begun), Reverse(part.priority), part.created_at, part.id.clone())
    };
    // First what others can do meanwhile.
    let waiting = others
        .iter()
        .copied()
        .filter(|part| part.status != TaskStatus::InProgress && is_ready(part));
    if let Some(next) = waiting.min_by_key(order) {
        return TaskStep::StartSubtask(next.id.clone());
    }
    if let Some(next) = own.into_iter().min_by_key(order) {
        return TaskStep::ExecuteSubtask(next.id.clone());
    }
    // A blocked one is waited for by nobody: only a person can end that.
    if others.iter().any(|part| part.status != TaskStatus::Blocked) {
        TaskStep::WaitForSubtasks
    } else {
        TaskStep::ReportCompleted(ReportResult::Blocked)
    }
}

/// What an agent in a chat is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatStep {
    /// There are messages for it.
    GetPendingMessages,
    /// There is nothing to do yet.
    WaitForMessages,
    /// Nobody has said anything for long.
    LogOut,
    /// Go: its session is over.
    Exit,
}

/// What decides about the next step of an agent in a chat.
#[derive(Debug, Clone, Copy)]
pub struct ChatFacts<'a> {
    pub launch: &'a Launch,
    /// The number of the newest message that it hasn't answered, of those that it would be given now.
    pub unread: Option<i64>,
    /// The number of the last message that its session was given.
    pub handed_out: i64,
    /// Whether nobody has said anything for longer than the idle time-out.
    pub is_idle: bool,
    /// Whether it has waited long enough with a message that it was given and hasn't answered: the answer may have been lost.
    pub is_overdue: bool,
}

/// The next step of an agent in a chat.
pub fn chat_step(facts: ChatFacts<'_>) -> ChatStep {
    match facts.launch.state {
        LaunchState::Running { .. } => {}
        // The chat ended between two questions; the agent still has its session.
        LaunchState::Stopping { reason: StopReason::ChatIdle, .. } => return ChatStep::LogOut,
        LaunchState::Starting { .. }
        | LaunchState::Stopping { .. }
        | LaunchState::Ending
        | LaunchState::Ended { .. } => return ChatStep::Exit,
    }
    match facts.unread {
        Some(newest) if newest > facts.handed_out || facts.is_overdue => {
            ChatStep::GetPendingMessages
        }
        _ if facts.is_idle => ChatStep::LogOut,
        _ => ChatStep::WaitForMessages,
    }
}

#[cfg(test)]
mod tests;
