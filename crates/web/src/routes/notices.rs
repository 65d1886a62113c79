//! `/notices`: the notices to working agents.

use axum::extract::{RawQuery, State};

use super::history::filter_of;
use crate::extract::InQuery;
use crate::openapi::{Api, about};
use crate::page::Page;
use crate::{Problem, RestState};
use api::notices::{NoticeBody, NoticeQuery};

pub(super) fn routes() -> Api {
    let text = "The notices of agents, the newest first";
    Api::new().get("/notices", list, about(text).query::<NoticeQuery>().gives::<Vec<NoticeBody>>())
}

async fn list(
    State(state): State<RestState>,
    InQuery(query): InQuery<NoticeQuery>,
    raw: RawQuery,
) -> Result<Page<NoticeBody>, Problem> {
    let (filter, limit) = filter_of(query, &state).await?;
    let notices = state.service.launches.notices(&filter).await?;
    Ok(Page::of(notices, limit, raw, |notice| notice.id.to_string()).map(NoticeBody::from))
}
