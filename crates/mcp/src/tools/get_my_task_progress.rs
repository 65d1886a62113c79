//! `get_my_task_progress`: returns the progress of the agent's tasks. It has no side effect.

use serde::Serialize;

use super::{Effect, NoInput, ToolSpec};
use crate::envelope::TaskSession;
use domain::id::TaskId;
use domain::{ShortId, Task, TaskStatus};
use service::{OwnResult, Service, ServiceError, TaskProgress};

pub(crate) struct GetMyTaskProgress;

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    tasks: Vec<Top>,
}

#[derive(Serialize)]
struct Top {
    id: TaskId,
    short_id: ShortId,
    title: String,
    status: TaskStatus,
    subtasks: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    id: TaskId,
    short_id: ShortId,
    title: String,
    status: TaskStatus,
    /// The result of a subtask that is done and has a clone of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<PartResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subtasks: Vec<Part>,
}

#[derive(Serialize)]
struct PartResult {
    branch: String,
    /// The commit to merge: `git merge COMMIT` in the clone of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// False until the coordinator has taken the commits. Ask again then.
    is_complete: bool,
}

impl From<OwnResult> for PartResult {
    fn from(OwnResult { branch, commit, is_kept }: OwnResult) -> Self {
        Self { branch, commit, is_complete: is_kept }
    }
}

impl From<TaskProgress> for Top {
    fn from(TaskProgress { task, subtasks, .. }: TaskProgress) -> Self {
        let subtasks = subtasks.into_iter().map(Part::from).collect();
        let Task { id, short_id, title, status, .. } = task;
        Self { id, short_id, title, status, subtasks }
    }
}

impl From<TaskProgress> for Part {
    fn from(TaskProgress { task, result, subtasks }: TaskProgress) -> Self {
        let subtasks = subtasks.into_iter().map(Self::from).collect();
        let Task { id, short_id, title, status, .. } = task;
        Self { id, short_id, title, status, result: result.map(PartResult::from), subtasks }
    }
}

impl ToolSpec for GetMyTaskProgress {
    const NAME: &'static str = "get_my_task_progress";
    const TEXT: &'static str =
        "Returns your tasks and their subtasks with their status. It changes nothing.";
    const EFFECT: Effect = Effect::Reads;
    type Who = TaskSession;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        let tasks = service.tasks.progress(&caller).await?;
        Ok(Output { success: true, tasks: tasks.into_iter().map(Top::from).collect() })
    }
}
