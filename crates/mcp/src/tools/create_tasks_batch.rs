//! `create_tasks_batch`: creates several tasks that may refer to one another; all of them or none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::create_task::NewTask;
use super::{Effect, ToolSpec};
use crate::envelope::TaskSession;
use domain::Priority;
use domain::id::{AgentId, TaskId};
use service::{Draft, Service, ServiceError};

pub(crate) struct CreateTasksBatch;

#[derive(Deserialize, schemars::JsonSchema)]
pub(crate) struct Input {
    /// The tasks, at most 100. All of them are added, or none.
    tasks: Vec<Entry>,
    /// The parent of all tasks in this call that name none: your task, or a part of it.
    #[serde(default)]
    #[schemars(with = "String")]
    parent_task_id: Option<TaskId>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
struct Entry {
    /// A name of your choice. Other tasks of this call can refer to it.
    local_id: String,
    /// The title, one line.
    title: String,
    /// The description: everything that the assignee needs to know.
    #[serde(default)]
    #[schemars(with = "String")]
    description: Option<String>,
    /// The task it is part of: a local_id of this call, or the id of a task of yours. Without one here or for all tasks, it is something that isn't part of your work.
    #[serde(default)]
    #[schemars(with = "String")]
    parent_task_id: Option<String>,
    /// Its priority; medium if you leave it out.
    #[serde(default)]
    #[schemars(with = "Priority")]
    priority: Option<Priority>,
    /// Tasks that must be done before it begins: local_ids of this call, or ids.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    dependencies: Option<Vec<String>>,
    /// The agent that it is assigned to. A subtask without one is yours.
    #[serde(default)]
    #[schemars(with = "String")]
    assignee_id: Option<AgentId>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    success: bool,
    tasks: Vec<NewTask>,
    local_id_to_real_id: BTreeMap<String, TaskId>,
    instruction: &'static str,
}

impl From<Entry> for Draft {
    fn from(entry: Entry) -> Self {
        Self {
            local_id: Some(entry.local_id),
            title: entry.title,
            description: entry.description.unwrap_or_default(),
            parent: entry.parent_task_id,
            priority: entry.priority.unwrap_or(Priority::Medium),
            dependencies: entry.dependencies.unwrap_or_default(),
            assignee: entry.assignee_id,
        }
    }
}

impl ToolSpec for CreateTasksBatch {
    const NAME: &'static str = "create_tasks_batch";
    const TEXT: &'static str = "Adds several tasks to your project at once, all or none. Each \
                                has a local_id, which the others can name as parent or \
                                dependency. The answer contains the real ids.";
    const EFFECT: Effect = Effect::Changes;
    type Who = TaskSession;
    type Input = Input;
    type Output = Output;

    async fn call(
        service: &Service,
        TaskSession(caller): TaskSession,
        input: Input,
    ) -> Result<Output, ServiceError> {
        let mut drafts: Vec<Draft> = input.tasks.into_iter().map(Draft::from).collect();
        if let Some(parent) = input.parent_task_id {
            let parent = String::from(parent);
            for draft in drafts.iter_mut().filter(|draft| draft.parent.is_none()) {
                draft.parent = Some(parent.clone());
            }
        }
        let created = service.tasks.create(&caller, &drafts).await?;
        tracing::info!(n_tasks = created.tasks.len(), "agent added tasks");
        Ok(Output {
            success: true,
            tasks: created.tasks.into_iter().map(NewTask::from).collect(),
            local_id_to_real_id: created.local_id_to_real_id,
            instruction: created.instruction,
        })
    }
}
