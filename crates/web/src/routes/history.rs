//! The filter of the lists of past events of agents.

use crate::page::limit_of;
use crate::{Problem, RestState};
use api::history::HistoryQuery;
use service::HistoryFilter;

/// Returns the filter, with a limit of one row more than is shown, and the number of rows to show.
pub(super) async fn filter_of<Id>(
    query: HistoryQuery<Id>,
    state: &RestState,
) -> Result<(HistoryFilter<Id>, usize), Problem> {
    let limit = limit_of(query.limit)?;
    let task = match query.task {
        Some(task) => Some(state.service.tasks.full_id(task).await?),
        None => None,
    };
    let filter = HistoryFilter {
        agent: query.agent,
        project: query.project,
        launch: query.launch,
        task,
        only_open: query.open,
        after: query.cursor,
        limit: limit + 1,
    };
    Ok((filter, limit))
}
