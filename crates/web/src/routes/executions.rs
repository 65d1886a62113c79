//! `/executions`: the work of launches on tasks, with its usage and its result.

use axum::extract::{RawQuery, State};
use serde::{Deserialize, Serialize};

use super::history::HistoryQuery;
use super::tasks::ExecutionBody;
use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::page::Page;
use crate::{Problem, RestState};
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

pub(super) fn routes() -> Api {
    let text = "The work of agents on tasks, the newest first";
    Api::new().get(
        "/executions",
        list,
        about(text).query::<ExecutionQuery>().gives::<Vec<ExecutionItem>>(),
    )
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<ExecutionQuery>,
    raw: RawQuery,
) -> Result<Page<ExecutionItem>, Problem> {
    let (filter, limit) = query.into_filter(&state).await?;
    let executions = state.service.launches.executions(&filter).await?;
    Ok(Page::of(executions, limit, raw, |execution| execution.id.to_string())
        .map(ExecutionItem::from))
}
