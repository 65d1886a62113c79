//! New tasks, and the changes that people make to tasks.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Priority, Task, TaskStatus};
use crate::id::{AgentId, ProjectId, TaskId};
use crate::limits;
use crate::refusal::Refusal;
use crate::short_id::ShortId;
use crate::time::Timestamp;

/// A new task.
#[derive(Debug, Clone)]
pub struct NewTask {
    pub id: Option<TaskId>,
    pub project: ProjectId,
    pub title: String,
    pub description: String,
    pub status: TaskStatus,
    pub priority: Priority,
    pub assignee: Option<AgentId>,
    pub parent: Option<TaskId>,
    pub dependencies: Vec<TaskId>,
}

/// The changes of a task. A field that is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct TaskEdit {
    pub title: Option<String>,
    pub description: Option<String>,
    pub priority: Option<Priority>,
    /// `Some(None)` takes the task away from its assignee.
    pub assignee: Option<Option<AgentId>>,
    /// `Some(None)` makes it a task without a parent.
    pub parent: Option<Option<TaskId>>,
    /// The complete new list.
    pub dependencies: Option<Vec<TaskId>>,
    pub status: Option<TaskStatus>,
    /// The reason why the task is blocked. Other tasks have no reason.
    pub reason: Option<String>,
    /// Whether the open subtasks of a task that becomes done are cancelled. Without it, they keep
    /// the task from being done.
    pub cancels_subtasks: bool,
    /// The revision on which the edit is based; `None` edits any revision.
    pub seen: Option<i64>,
}

impl NewTask {
    /// Returns a task that has only a title, is todo, and has medium priority.
    pub fn new(project: ProjectId, title: impl Into<String>) -> Self {
        Self {
            id: None,
            project,
            title: title.into(),
            description: String::new(),
            status: TaskStatus::Todo,
            priority: Priority::Medium,
            assignee: None,
            parent: None,
            dependencies: Vec::new(),
        }
    }

    /// Returns the task, which is not stored yet.
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub fn to_task(&self, id: TaskId, short_id: ShortId, now: Timestamp) -> Result<Task, Refusal> {
        Ok(Task {
            id,
            short_id,
            project: self.project.clone(),
            parent: self.parent.clone(),
            title: limits::TITLE.take(&self.title)?.into_owned(),
            description: limits::DESCRIPTION.take(&self.description)?.into_owned(),
            status: self.status,
            priority: self.priority,
            assignee: self.assignee.clone(),
            dependencies: each_once(&self.dependencies),
            blocked_reason: None,
            start_wanted_since: None,
            checking_since: None,
            n_failed_rounds: 0,
            archived_at: None,
            created_at: now,
            status_since: now,
            revision: 0,
        })
    }
}

impl Task {
    /// Returns the fields of a request for such a task, by their names in the API.
    pub(crate) fn requested(&self) -> [(&'static str, Value); 8] {
        let dependencies: BTreeSet<_> = self.dependencies.iter().collect();
        // A task that is to be in progress and waits for its dependencies is todo.
        let is_wanted = self.start_wanted_since.is_some();
        let status = if is_wanted { TaskStatus::InProgress } else { self.status };
        [
            ("projectId", json!(self.project)),
            ("title", json!(self.title)),
            ("description", json!(self.description)),
            ("status", json!(status)),
            ("priority", json!(self.priority)),
            ("assigneeId", json!(self.assignee)),
            ("parentId", json!(self.parent)),
            ("dependencies", json!(dependencies)),
        ]
    }
}

impl TaskEdit {
    /// Returns the task with the changes of this edit. Only a blocked task has a reason.
    ///
    /// # Errors
    /// The refusals of [`limits`].
    pub fn apply(&self, task: &Task) -> Result<Task, Refusal> {
        let status = self.status.unwrap_or(task.status);
        let reason = limits::REASON.take_optional(self.reason.as_deref())?.map(Cow::into_owned);
        let reason = reason.or_else(|| task.blocked_reason.clone());
        let dependencies = self.dependencies.as_deref().map(each_once);
        Ok(Task {
            title: limits::TITLE.edit(self.title.as_deref(), task.title.clone())?,
            description: limits::DESCRIPTION
                .edit(self.description.as_deref(), task.description.clone())?,
            priority: self.priority.unwrap_or(task.priority),
            parent: self.parent.clone().unwrap_or_else(|| task.parent.clone()),
            dependencies: dependencies.unwrap_or_else(|| task.dependencies.clone()),
            assignee: self.assignee.clone().unwrap_or_else(|| task.assignee.clone()),
            status,
            blocked_reason: reason.filter(|_| status == TaskStatus::Blocked),
            // A status that a person gives withdraws the wish, also if it is the same.
            start_wanted_since: task.start_wanted_since.filter(|_| self.status.is_none()),
            ..task.clone()
        })
    }
}

/// Returns the ids in their order, without duplicates.
pub fn each_once(ids: &[TaskId]) -> Vec<TaskId> {
    let mut once: Vec<TaskId> = Vec::with_capacity(ids.len());
    for id in ids {
        if !once.contains(id) {
            once.push(id.clone());
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn id(text: &str) -> TaskId {
        text.parse().unwrap()
    }

    fn task() -> Task {
        let new = NewTask {
            assignee: Some("ann".parse().unwrap()),
            parent: Some(id("tsk_0")),
            dependencies: vec![id("b"), id("a"), id("b")],
            ..NewTask::new("prj".parse().unwrap(), "Login")
        };
        new.to_task(id("tsk"), "PRJ-1".parse().unwrap(), NOW).unwrap()
    }

    #[test]
    fn a_new_task_lists_each_dependency_once_and_in_order() {
        assert_eq!(task().dependencies, [id("b"), id("a")]);
    }

    #[test]
    fn an_edit_changes_only_its_own_fields() {
        assert_eq!(TaskEdit::default().apply(&task()), Ok(task()));
        let edit = TaskEdit { assignee: Some(None), parent: Some(None), ..TaskEdit::default() };
        assert_eq!(edit.apply(&task()), Ok(Task { assignee: None, parent: None, ..task() }));
        let long = TaskEdit { title: Some("x".repeat(1_000)), ..TaskEdit::default() };
        assert!(matches!(long.apply(&task()), Err(Refusal::TooLong { .. })));
    }

    #[test]
    fn a_task_keeps_its_reason_while_it_is_blocked() {
        let edit = |status, reason: Option<&str>| TaskEdit {
            status,
            reason: reason.map(str::to_owned),
            ..TaskEdit::default()
        };
        let reason = |edit: TaskEdit, task: &Task| edit.apply(task).unwrap().blocked_reason;
        let blocked = edit(Some(TaskStatus::Blocked), Some("no key")).apply(&task()).unwrap();
        assert_eq!(blocked.blocked_reason.as_deref(), Some("no key"));
        assert_eq!(reason(edit(None, None), &blocked).as_deref(), Some("no key"));
        assert_eq!(reason(edit(None, Some("no disk")), &blocked).as_deref(), Some("no disk"));
        assert_eq!(reason(edit(Some(TaskStatus::Todo), None), &blocked), None);
        assert_eq!(reason(edit(None, Some("no key")), &task()), None);
    }
}
