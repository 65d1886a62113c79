//! `/executions`: the work of launches on tasks, with its usage and its result.

use axum::extract::{RawQuery, State};

use super::history::filter_of;
use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::page::Page;
use crate::{Problem, RestState};
use api::executions::{ExecutionItem, ExecutionQuery};

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
    let (filter, limit) = filter_of(query, &state).await?;
    let executions = state.service.launches.executions(&filter).await?;
    Ok(Page::of(executions, limit, raw, |execution| execution.id.to_string())
        .map(ExecutionItem::from))
}
