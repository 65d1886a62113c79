//! Decides what an agent should do next. There is exactly one answer for every state of its launch,
//! its task and its chat.
//!
//! It does not say how long to wait. The caller waits while the answer is to wait.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::id::TaskId;
use super::launch::{Launch, LaunchState, ReportResult, StopReason};
use super::notice::{Notice, NoticeDemand, NoticeKind};
use super::task::{Task, TaskStatus};

/// The next step of an agent that works on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStep {
    /// It has a notice that it has not read.
    GetNotifications,
    GetMyTask,
    /// Work on the task itself, because it has no open subtasks.
    Work(TaskId),
    ExecuteSubtask(TaskId),
    /// Have another agent begin the subtask that is assigned to it.
    StartSubtask(TaskId),
    /// The remaining work is with other agents.
    WaitForSubtasks,
    ReportCompleted(ReportResult),
    /// Save the context, log out and exit.
    LogOut,
    /// Exit, because the session is over.
    Exit,
}

/// The facts for the next step of a task agent.
#[derive(Debug, Clone, Copy)]
pub struct TaskFacts<'a> {
    pub launch: &'a Launch,
    /// The notices that it was sent and has not settled.
    pub notices: &'a [Notice],
    /// The task of the launch.
    pub task: Option<&'a Task>,
    /// The subtasks of the task, at every depth. Below a closed subtask there is no work.
    pub subtasks: &'a [Task],
    /// The unfinished tasks that the subtasks depend on.
    pub unfinished: &'a BTreeSet<TaskId>,
    /// True if another task of the agent is in progress in its project.
    pub has_other_task: bool,
}

/// Returns the next step of a task agent.
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
        // It waits for its checks.
        TaskStatus::InProgress if is_theirs(task) && task.checking_since.is_some() => {
            TaskStep::ReportCompleted(ReportResult::Success)
        }
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
    // The search enters the agent's own parts, down to parts without open parts. It stops at the
    // parts of other agents, which do the rest of those.
    let mut own = Vec::new();
    let mut others = Vec::new();
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
    // Work that was begun comes first, then the most urgent, then the oldest.
    let order = |part: &&Task| {
        let is_begun = part.status == TaskStatus::InProgress;
        (Reverse(is_begun), Reverse(part.priority), part.created_at, part.id.clone())
    };
    // Work that others can do meanwhile comes first.
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
    // Waiting for a blocked part is useless, because only a person can unblock it.
    if others.iter().any(|part| part.status != TaskStatus::Blocked) {
        TaskStep::WaitForSubtasks
    } else {
        TaskStep::ReportCompleted(ReportResult::Blocked)
    }
}

/// The next step of an agent in a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatStep {
    /// There are messages for it.
    GetPendingMessages,
    /// There is nothing to do yet.
    WaitForMessages,
    /// The chat had no message for a long time.
    LogOut,
    /// Exit, because the session is over.
    Exit,
}

/// The facts for the next step of an agent in a chat.
#[derive(Debug, Clone, Copy)]
pub struct ChatFacts<'a> {
    pub launch: &'a Launch,
    /// The number of the newest unanswered message that it would be given now.
    pub unread: Option<i64>,
    /// The number of the last message that its session was given.
    pub handed_out: i64,
    /// True if the chat had no message for longer than the idle time-out.
    pub is_idle: bool,
    /// True if it has waited long enough with a message that it was given and has not answered. The
    /// answer of the server may have been lost.
    pub is_overdue: bool,
}

/// Returns the next step of an agent in a chat.
pub fn chat_step(facts: ChatFacts<'_>) -> ChatStep {
    match facts.launch.state {
        LaunchState::Running { .. } => {}
        // The chat ended between two questions, and the agent still has its session.
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
        // An agent that logs out has read what it was given, and it may have missed a message. It is
        // told to go when all are answered, or after the end of its chat, when it reads nothing.
        None if facts.is_idle => ChatStep::LogOut,
        _ => ChatStep::WaitForMessages,
    }
}

#[cfg(test)]
mod tests;
