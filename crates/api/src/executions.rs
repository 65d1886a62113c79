//! `/executions`: the work of launches on tasks, with its usage and its result.

use serde::{Deserialize, Serialize};

use super::history::HistoryQuery;
use super::tasks::ExecutionBody;
use domain::{Execution, ExecutionId, ProjectId, TaskId};

/// An execution by itself.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionItem {
    pub id: ExecutionId,
    pub task_id: TaskId,
    pub project_id: ProjectId,
    #[serde(flatten)]
    pub execution: ExecutionBody,
}

/// The filter of the list of executions, the newest first.
pub type ExecutionQuery = HistoryQuery<ExecutionId>;

impl From<Execution> for ExecutionItem {
    fn from(execution: Execution) -> Self {
        Self {
            id: execution.id.clone(),
            task_id: execution.task.clone(),
            project_id: execution.key.project.clone(),
            execution: execution.into(),
        }
    }
}
