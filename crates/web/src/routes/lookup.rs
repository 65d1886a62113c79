//! `/lookup`: what a person names.

use axum::Json;
use axum::extract::State;

use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::lookup::{CompletionBody, LookupBody, LookupQuery};

pub(super) fn routes() -> Api {
    let names = "The agents, projects or tasks that a text names; one if it is unambiguous";
    let becomes = "What a text that a person types may become; at most 100, the newest of tasks";
    Api::new()
        .get("/lookup", look_up, about(names).query::<LookupQuery>().gives::<Vec<LookupBody>>())
        .get(
            "/completions",
            complete,
            about(becomes).query::<LookupQuery>().gives::<Vec<CompletionBody>>(),
        )
}

async fn complete(
    State(state): State<RestState>,
    InQuery(query): InQuery<LookupQuery>,
) -> Result<Json<Vec<CompletionBody>>, Problem> {
    let found = state.service.complete(query.kind, &query.text).await?;
    Ok(Json(found.into_iter().map(CompletionBody::from).collect()))
}

async fn look_up(
    State(state): State<RestState>,
    InQuery(query): InQuery<LookupQuery>,
) -> Result<Json<Vec<LookupBody>>, Problem> {
    let found = state.service.look_up(query.kind, &query.text).await?;
    Ok(Json(found.into_iter().map(LookupBody::from).collect()))
}
