//! `/notices`: the notices to working agents.

use axum::extract::{RawQuery, State};
use serde::{Deserialize, Serialize};

use super::history::HistoryQuery;
use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::page::Page;
use crate::{Problem, RestState};
use domain::notice::{NoticeAction, NoticeKind};
use domain::{LaunchId, Notice, NoticeId, TaskId, Timestamp};

/// A notice as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoticeBody {
    pub id: NoticeId,
    pub launch_id: LaunchId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(rename = "type")]
    pub kind: NoticeKind,
    pub action: NoticeAction,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// By a report, by the end of the launch, or because its reason is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Timestamp>,
}

/// The filter of the list of notices, the newest first.
pub type NoticeQuery = HistoryQuery<NoticeId>;

impl From<Notice> for NoticeBody {
    fn from(notice: Notice) -> Self {
        Self {
            id: notice.id,
            launch_id: notice.launch,
            task_id: notice.task,
            kind: notice.action.kind(),
            action: notice.action,
            created_at: notice.created_at,
            read_at: notice.read_at,
            settled_at: notice.settled_at,
        }
    }
}

pub(super) fn routes() -> Api {
    let text = "The notices of agents, the newest first";
    Api::new().get("/notices", list, about(text).query::<NoticeQuery>().gives::<Vec<NoticeBody>>())
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<NoticeQuery>,
    raw: RawQuery,
) -> Result<Page<NoticeBody>, Problem> {
    let (filter, limit) = query.into_filter(&state).await?;
    let notices = state.service.launches.notices(&filter).await?;
    Ok(Page::of(notices, limit, raw, |notice| notice.id.to_string()).map(NoticeBody::from))
}
