//! `create_task`: an agent creates a part of its work for itself or another agent, or a task for
//! later.

use serde::{Deserialize, Serialize};

use super::{Effect, ToolSpec};
use crate::envelope::TaskSession;
use domain::id::{AgentId, TaskId};
use domain::{Priority, ShortId, Task, TaskStatus};
use service::{Draft, Service, ServiceError};

pub(crate) struct CreateTask;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub(crate) struct Input {
    /// The title, one line.
    title: String,
    /// The description: everything that the assignee needs to know.
    #[serde(default)]
    #[schemars(with = "String")]
    description: Option<String>,
    /// The task that it is part of: yours, or a part of yours. Leave it out for a task that is not
    /// part of your work; people decide when it begins.
    #[serde(default)]
    #[schemars(with = "String")]
    parent_task_id: Option<TaskId>,
    /// Its priority; medium if you leave it out.
    #[serde(default)]
    #[schemars(with = "Priority")]
    priority: Option<Priority>,
    /// Ids of tasks that must be done before it begins.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    dependencies: Option<Vec<TaskId>>,
    /// The agent that it is assigned to. A subtask without one is yours.
    #[serde(default)]
    #[schemars(with = "String")]
    assignee_id: Option<AgentId>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    task: NewTask,
    instruction: &'static str,
}

/// A task that was created.
#[derive(Serialize)]
pub(super) struct NewTask {
    id: TaskId,
    short_id: ShortId,
    title: String,
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee_id: Option<AgentId>,
}

impl From<Task> for NewTask {
    fn from(task: Task) -> Self {
        Self {
            id: task.id,
            short_id: task.short_id,
            title: task.title,
            status: task.status,
            parent_task_id: task.parent,
            assignee_id: task.assignee,
        }
    }
}

impl ToolSpec for CreateTask {
    const NAME: &'static str = "create_task";
    const TEXT: &'static str = "Adds a task to your project: a subtask of your task, for you or \
                                another agent, or a task for later. Use create_tasks_batch for \
                                several at once.";
    const EFFECT: Effect = Effect::Changes;
    type Who = TaskSession;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let draft = Draft {
            local_id: None,
            title: input.title,
            description: input.description.unwrap_or_default(),
            parent: input.parent_task_id.map(String::from),
            priority: input.priority.unwrap_or(Priority::Medium),
            dependencies: input
                .dependencies
                .unwrap_or_default()
                .into_iter()
                .map(String::from)
                .collect(),
            assignee: input.assignee_id,
        };
        let mut created = service.tasks.create(&caller, &[draft]).await?;
        let task = created.tasks.pop().expect("a draft makes a task");
        tracing::info!(task_id = %task.id, "agent added a task");
        Ok(Output { success: true, task: task.into(), instruction: created.instruction })
    }
}
