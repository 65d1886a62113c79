//! Hooks: commands of the operator that run in the clone of a task at certain moments of its life.

use super::{RemoveOrder, Workspace, WorkspaceState};
use crate::id::{AgentId, LaunchId, ProjectId, TaskId, WorkspaceId};
use crate::words::words;

words! {
    /// The moment at which a hook runs.
    pub enum Hook as "hook" {
        /// The clone was made, and no agent has used it.
        AfterCreate = "after_create",
        /// An agent or a check is about to start in the clone.
        BeforeRun = "before_run",
        /// All processes of an agent or a check in the clone have ended.
        AfterRun = "after_run",
        /// The files of the clone are about to be removed.
        BeforeRemove = "before_remove",
    }
}

/// The word that begins the reason of a workspace whose hook failed.
const FAILED: &str = "hook_failed";

impl Hook {
    /// Returns the reason of a workspace whose hook failed.
    pub fn failure(self, why: &str) -> String {
        format!("{FAILED}: {self}: {why}")
    }

    /// Returns the reason of a workspace for people, without the word for a failed hook.
    pub fn told(reason: &str) -> &str {
        let rest = reason.split_once(": ").filter(|(word, _)| *word == FAILED);
        rest.map_or(reason, |(_, rest)| rest)
    }

    /// Returns the hook that failed, if the reason of a workspace says so.
    pub(super) fn of_failure(reason: &str) -> Option<Self> {
        let (word, rest) = reason.split_once(": ")?;
        let (hook, _) = rest.split_once(": ")?;
        hook.parse().ok().filter(|_| word == FAILED)
    }
}

/// The facts about a workspace that its hooks get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFacts {
    pub id: WorkspaceId,
    pub project: ProjectId,
    /// The task that the workspace belongs to.
    pub task: TaskId,
    /// The assignee of that task.
    pub agent: Option<AgentId>,
    /// The provider of the agent.
    pub ai_type: Option<String>,
    /// The commit that the work began at; `None` before the workspace was made, and if the source
    /// had no commit.
    pub base_commit: Option<String>,
    /// The launch that used the workspace last, and whose content is to be kept.
    pub ended_launch: Option<LaunchId>,
    /// The step that would remove the workspace. Without content, nothing of it is kept.
    pub removal: RemoveOrder,
    /// The entries that could not be kept.
    pub left_out: Vec<String>,
}

impl Workspace {
    /// Returns whether a failed hook keeps the next launch from starting. It is tried again.
    pub fn waits_for_hook(&self) -> bool {
        let failed = self.reason.as_deref().and_then(Hook::of_failure);
        matches!(
            (self.state, failed),
            (WorkspaceState::Wanted, Some(Hook::AfterCreate))
                | (WorkspaceState::Ready, Some(Hook::BeforeRun))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::workspace::WorkspaceReport;

    #[test]
    fn only_the_hooks_before_a_launch_keep_it_from_starting() {
        let id = "wsp".parse().expect("an id");
        let project = "prj".parse().expect("an id");
        let task = "tsk".parse().expect("an id");
        let branch = "agents/prj-1".to_owned();
        let wanted = Workspace::wanted(id, project, task, branch, Timestamp::from_millis(0));
        let waits = |state, reason: Option<String>| {
            Workspace { state, reason, ..wanted.clone() }.waits_for_hook()
        };
        let failed = |hook: Hook| Some(hook.failure("exit code 3: no network"));
        assert!(waits(WorkspaceState::Wanted, failed(Hook::AfterCreate)));
        assert!(waits(WorkspaceState::Ready, failed(Hook::BeforeRun)));
        assert!(!waits(WorkspaceState::Ready, failed(Hook::AfterRun)));
        assert!(!waits(WorkspaceState::Ready, failed(Hook::BeforeRemove)));
        assert!(!waits(WorkspaceState::Broken, failed(Hook::BeforeRun)));
        assert!(!waits(WorkspaceState::Ready, Some("other: before_run: x".to_owned())));
        assert!(!waits(WorkspaceState::Ready, None));
        let by = "crd".parse().expect("an id");
        let after = |reason: Option<String>| {
            let before = Workspace { state: WorkspaceState::Ready, reason, ..wanted.clone() };
            before.on(WorkspaceReport::ReadyToRun, &by).reason
        };
        assert_eq!(
            Hook::told(&Hook::BeforeRun.failure("exit code 3")),
            "before_run: exit code 3",
            "the reason to wait is said already"
        );
        assert_eq!(Hook::told("no such branch: main"), "no such branch: main");
        assert_eq!(after(failed(Hook::BeforeRun)), None, "it has passed");
        assert_eq!(after(failed(Hook::AfterRun)), failed(Hook::AfterRun), "it stays recorded");
    }
}
