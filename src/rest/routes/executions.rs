//! `/executions`: the work of launches on tasks, with what it took and what came of it.

use axum::extract::{RawQuery, State};
use serde::{Deserialize, Serialize};

use super::tasks::ExecutionBody;
use crate::domain::{AgentId, Execution, ExecutionId, LaunchId, ProjectId, TaskId};
use crate::rest::api::{Api, about};
use crate::rest::extract::InQuery;
use crate::rest::page::{Page, limit_of};
use crate::rest::{Problem, RestState};
use crate::service::HistoryFilter;

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

/// Which executions to list, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutionQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Only what goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// At most so many; 100 without it, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ExecutionId>,
}

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
    Api::new().get("/executions", list, about(text).query::<ExecutionQuery>().gives::<Vec<ExecutionItem>>())
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<ExecutionQuery>,
    raw: RawQuery,
) -> Result<Page<ExecutionItem>, Problem> {
    let limit = limit_of(query.limit)?;
    let filter = HistoryFilter {
        agent: query.agent,
        project: query.project,
        launch: query.launch,
        task: query.task,
        only_open: query.open,
        after: query.cursor,
        limit: limit + 1,
    };
    let executions = state.service.executions(&filter).await?;
    Ok(Page::of(executions, limit, raw, |execution| execution.id.to_string()).map(ExecutionItem::from))
}
