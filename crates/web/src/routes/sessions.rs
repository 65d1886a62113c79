//! `/sessions`: the open and the past sessions, and a forced end of one.

use axum::Json;
use axum::extract::{RawQuery, State};
use serde::{Deserialize, Serialize};

use crate::extract::{InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::{MAX_LIMIT, Page, limit_of};
use crate::{Problem, RestState};
use domain::session::SessionEndReason;
use domain::{AgentId, LaunchId, ProjectId, Purpose, Session, SessionId, Timestamp};
use service::HistoryFilter;

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
    /// The time of the last call; now, while a call is held.
    pub last_seen_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<SessionEndReason>,
}

/// Which sessions to list, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchId>,
    /// Only what goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// At most so many; 100 without it, 1000 at most.
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

pub(super) fn routes() -> Api {
    let ends = "Ends a session, and the process behind it";
    Api::new()
        .get(
            "/sessions",
            list,
            about("The sessions of agents, the newest first")
                .query::<SessionQuery>()
                .gives::<Vec<SessionBody>>(),
        )
        .get("/sessions/{id}", show, about("One session").gives::<SessionBody>())
        .post("/sessions/{id}", end, about(ends).gives::<SessionBody>())
        .delete("/sessions/{id}", end, about(ends).gives::<SessionBody>())
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<SessionQuery>,
    raw: RawQuery,
) -> Result<Page<SessionBody>, Problem> {
    let limit = limit_of(query.limit)?;
    let filter = HistoryFilter {
        agent: query.agent,
        project: query.project,
        launch: query.launch,
        task: None,
        only_open: query.open,
        after: query.cursor,
        limit: limit + 1,
    };
    let sessions = state.service.sessions.list(&filter).await?;
    Ok(Page::of(sessions, limit, raw, |session| session.id.to_string()).map(SessionBody::from))
}

async fn show(
    State(state): State<RestState>,
    InPath(id): InPath<SessionId>,
) -> Result<Json<SessionBody>, Problem> {
    Ok(Json(state.service.sessions.get(&id).await?.into()))
}

async fn end(
    State(state): State<RestState>,
    InPath(id): InPath<SessionId>,
) -> Result<Json<SessionBody>, Problem> {
    let (session, launch) = state.service.sessions.end(&id).await?;
    tracing::info!(session_id = %id, launch_id = %launch, "a person ended a session");
    Ok(Json(session.into()))
}
