//! `/sessions`: the open and the past sessions, and a forced end of one.

use axum::Json;
use axum::extract::{RawQuery, State};

use crate::extract::{InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::{Page, limit_of};
use crate::{Problem, RestState};
use api::sessions::{SessionBody, SessionQuery};
use domain::SessionId;
use service::HistoryFilter;

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
