//! `/notices`: what agents were told while they worked.

use axum::extract::{RawQuery, State};
use serde::{Deserialize, Serialize};

use crate::domain::notice::{NoticeAction, NoticeKind};
use crate::domain::{AgentId, LaunchId, Notice, NoticeId, ProjectId, TaskId, Timestamp};
use crate::rest::api::{Api, about};
use crate::rest::extract::InQuery;
use crate::rest::page::{Page, limit_of};
use crate::rest::{Problem, RestState};
use crate::service::HistoryFilter;

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

/// Which notices to list, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NoticeQuery {
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
    pub cursor: Option<NoticeId>,
}

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
    let text = "What agents were told while they worked, the newest first";
    Api::new().get("/notices", list, about(text).query::<NoticeQuery>().gives::<Vec<NoticeBody>>())
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<NoticeQuery>,
    raw: RawQuery,
) -> Result<Page<NoticeBody>, Problem> {
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
    let notices = state.service.notices(&filter).await?;
    Ok(Page::of(notices, limit, raw, |notice| notice.id.to_string()).map(NoticeBody::from))
}
