//! Limits on how much one launch of an agent may create. Each task and each message is a row of the
//! store that people must look through. Therefore an agent in a loop is told to stop before it
//! fills the store.
//!
//! Data that an agent only replaces needs no limit here: a launch has one saved context for each
//! task, and one report.

use super::id::TaskId;
use super::refusal::Refusal;

/// The number of rows that one launch has created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Creations {
    pub n_tasks: usize,
    pub n_messages: usize,
}

/// The limits. Each is a setting of this name in `limits`. Tasks and messages of people do not
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreationLimits {
    /// Tasks that one launch creates, including subtasks.
    pub tasks_per_launch: usize,
    /// Direct subtasks that a task may have after an agent added its own. The subtasks of people
    /// count, too.
    pub subtasks_per_task: usize,
    /// Messages that one launch writes in its chat.
    pub messages_per_launch: usize,
}

impl Default for CreationLimits {
    fn default() -> Self {
        Self { tasks_per_launch: 200, subtasks_per_task: 100, messages_per_launch: 1_000 }
    }
}

impl CreationLimits {
    /// Checks whether a launch that has created `n_created` tasks may create `n_new` more.
    ///
    /// # Errors
    /// Returns `TooManyTasks` if that exceeds the limit.
    pub fn check_tasks(&self, n_created: usize, n_new: usize) -> Result<(), Refusal> {
        let limit = self.tasks_per_launch;
        if n_created.saturating_add(n_new) > limit {
            return Err(Refusal::TooManyTasks { n_created, n_new, limit });
        }
        Ok(())
    }

    /// Checks whether an agent may add `n_new` subtasks to a task that has `n_subtasks`.
    ///
    /// # Errors
    /// Returns `TooManySubtasks` if that exceeds the limit.
    pub fn check_subtasks(
        &self,
        task: &TaskId,
        n_subtasks: usize,
        n_new: usize,
    ) -> Result<(), Refusal> {
        let limit = self.subtasks_per_task;
        if n_subtasks.saturating_add(n_new) > limit {
            return Err(Refusal::TooManySubtasks { task: task.clone(), n_subtasks, n_new, limit });
        }
        Ok(())
    }

    /// Checks whether a launch that has written `n_written` messages may write one more.
    ///
    /// # Errors
    /// Returns `TooManyMessages` if that exceeds the limit.
    pub const fn check_messages(&self, n_written: usize) -> Result<(), Refusal> {
        let limit = self.messages_per_launch;
        if n_written >= limit { Err(Refusal::TooManyMessages { n_written, limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_the_limit_says_may_be_created_and_no_more() {
        let limits =
            CreationLimits { tasks_per_launch: 3, subtasks_per_task: 2, messages_per_launch: 1 };
        let task: TaskId = "tsk".parse().unwrap();
        assert_eq!(limits.check_tasks(0, 3), Ok(()));
        assert_eq!(limits.check_tasks(2, 1), Ok(()));
        let refusal = limits.check_tasks(2, 2).unwrap_err();
        let text = "2 more tasks are too many: this launch has created 2, and `limits.tasks_per_launch` is 3";
        assert_eq!((refusal.to_string().as_str(), refusal.code()), (text, "limit_reached"));
        assert_eq!(limits.check_subtasks(&task, 1, 1), Ok(()));
        let refusal = limits.check_subtasks(&task, 2, 1).unwrap_err();
        let text =
            "1 more subtasks are too many: task tsk has 2, and `limits.subtasks_per_task` is 2";
        assert_eq!((refusal.to_string().as_str(), refusal.code()), (text, "limit_reached"));
        assert_eq!(limits.check_messages(0), Ok(()));
        let refusal = limits.check_messages(1).unwrap_err();
        let text = "This launch has written 1 messages, and `limits.messages_per_launch` is 1";
        assert_eq!((refusal.to_string().as_str(), refusal.code()), (text, "limit_reached"));
    }

    #[test]
    fn a_limit_that_was_lowered_refuses_what_is_new() {
        let limits = CreationLimits { tasks_per_launch: 3, ..CreationLimits::default() };
        assert!(limits.check_tasks(5, 1).is_err());
        assert!(limits.check_tasks(usize::MAX, usize::MAX).is_err());
    }
}
