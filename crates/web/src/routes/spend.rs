//! `/spend`: sums of what launches used.

use axum::Json;
use axum::extract::State;

use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::activity::UsageBody;
use api::spend::{SpendBody, SpendQuery};

pub(super) fn routes() -> Api {
    let text = "What launches used, by task, agent, project, provider, day or month";
    Api::new().get("/spend", list, about(text).query::<SpendQuery>().gives::<Vec<SpendBody>>())
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<SpendQuery>,
) -> Result<Json<Vec<SpendBody>>, Problem> {
    let sums = state.service.launches.spend(query.by, query.since).await?.into_iter();
    let bodies =
        sums.filter_map(|(key, usage)| Some(SpendBody { key, usage: UsageBody::of(usage)? }));
    Ok(Json(bodies.collect()))
}
