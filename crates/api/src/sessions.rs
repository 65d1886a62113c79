//! `/sessions`: the open and the past sessions, and a forced end of one.

use serde::{Deserialize, Serialize};

use super::MAX_LIMIT;
use domain::session::SessionEndReason;
use domain::{AgentId, LaunchId, ProjectId, Purpose, Session, SessionId, Timestamp};

/// A session as it is shown. Its token never is.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionBody {
    pub id: SessionId,
    pub launch_id: LaunchId,
    pub agent_id: AgentId,
    pub project_id: ProjectId,
    pub purpose: Purpose,
    pub created_at: Timestamp,
    /// The time of the last call. While a call is held, it is the present time.
    pub last_seen_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<SessionEndReason>,
}

/// The filter of the list of sessions, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    /// `true` leaves out what has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// The greatest number of entries. The default is 100, and the maximum is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<SessionId>,
}

impl From<Session> for SessionBody {
    fn from(session: Session) -> Self {
        Self {
            id: session.id,
            launch_id: session.launch,
            agent_id: session.key.agent,
            project_id: session.key.project,
            purpose: session.key.purpose,
            created_at: session.created_at,
            last_seen_at: session.last_seen_at,
            ended_at: session.ended.map(|(at, _)| at),
            end_reason: session.ended.map(|(_, reason)| reason),
        }
    }
}
