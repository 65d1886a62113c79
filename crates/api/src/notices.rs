//! `/notices`: the notices to working agents.

use serde::{Deserialize, Serialize};

use super::history::HistoryQuery;
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
    /// The time when a report, the end of the launch or the end of its reason settled it.
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
