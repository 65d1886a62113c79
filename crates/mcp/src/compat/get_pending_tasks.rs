//! `get_pending_tasks`, deprecated: lists all tasks that the agent could work on.

use serde::Serialize;

use super::Deprecated;
use crate::envelope::TaskSession;
use crate::tools::{Effect, NoInput, ToolSpec};
use domain::id::{ProjectId, TaskId};
use domain::{Priority, ShortId, TaskStatus};
use service::{Service, ServiceError};

static DEPRECATED: Deprecated = Deprecated::new(GetPendingTasks::NAME, "get_my_task");

pub(super) struct GetPendingTasks;

#[derive(Serialize)]
pub(super) struct Output {
    success: bool,
    tasks: Vec<Pending>,
}

#[derive(Serialize)]
struct Pending {
    task_id: TaskId,
    short_id: ShortId,
    project_id: ProjectId,
    title: String,
    description: String,
    status: TaskStatus,
    priority: Priority,
    working_directory: std::path::PathBuf,
}

impl ToolSpec for GetPendingTasks {
    const NAME: &'static str = "get_pending_tasks";
    const TEXT: &'static str =
        "Deprecated: use get_my_task. Lists the tasks in progress that are assigned to you.";
    const EFFECT: Effect = Effect::Reads;
    type Who = TaskSession;
    type Input = NoInput;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        _: NoInput,
    ) -> Result<Output, ServiceError> {
        DEPRECATED.is_used();
        let (working_directory, tasks) = service.pending_tasks(&caller).await?;
        let tasks = tasks.into_iter().map(|task| Pending {
            task_id: task.id,
            short_id: task.short_id,
            project_id: task.project,
            title: task.title,
            description: task.description,
            status: task.status,
            priority: task.priority,
            working_directory: working_directory.clone(),
        });
        Ok(Output { success: true, tasks: tasks.collect() })
    }
}
