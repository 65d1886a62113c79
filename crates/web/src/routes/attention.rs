//! `/attention`: the conditions that need a person, with what the person of the request did with
//! them.

use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use crate::auth::Operator;
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::Page;
use crate::{Problem, RestState};
use api::attention::{AttentionBody, AttentionQuery, MarkRequest};
use domain::attention::{AttentionState, Cause};
use domain::{AttentionId, Language, Refusal, Timestamp};
use service::MarkedAttention;

/// Describes an entry with its mark.
fn body_of(marked: MarkedAttention) -> AttentionBody {
    let MarkedAttention { entry, mark, state } = marked;
    let task = entry.task();
    let provider = match &entry.cause {
        Cause::Account { provider, .. } => Some(provider.clone()),
        _ => None,
    };
    AttentionBody {
        id: entry.id(),
        kind: entry.kind(),
        group: entry.kind().group(),
        state,
        later_until: mark.and_then(|mark| mark.until).filter(|_| state == AttentionState::Later),
        title: entry.title(Language::English),
        text: entry.text(Language::English),
        remedy: entry.remedy(Language::English),
        action: entry.action(),
        since: entry.since,
        until: entry.until(),
        task_id: task.map(|task| task.id.clone()),
        task_short_id: task.map(|task| task.short_id.clone()),
        agent_id: entry.agent().cloned(),
        project_id: entry.project().cloned(),
        launch_id: entry.launch().cloned(),
        provider,
        item: entry.item().map(|write| write.key.to_string()),
        item_url: entry.item().map(|write| write.url.clone()),
    }
}

pub(super) fn routes() -> Api {
    let list_text = "What needs a person";
    let mark_text = "Put an entry off, or mark it as done, for the person of the request";
    Api::new()
        .get(
            "/attention",
            list,
            about(list_text).query::<AttentionQuery>().gives::<Vec<AttentionBody>>(),
        )
        .get("/attention/{id}", one, about("One entry").gives::<AttentionBody>())
        .post("/attention/{id}/mark", mark, about(mark_text).takes::<MarkRequest>())
        .delete("/attention/{id}/mark", unmark, about("Make an entry open again"))
}

/// Returns the entries with the marks of a person.
pub(crate) async fn entries(
    state: &RestState,
    person: &str,
) -> Result<Vec<MarkedAttention>, Problem> {
    let rejected = state.configuration.configuration_state().rejected;
    Ok(state.service.attention(person, rejected).await?)
}

/// Marks an entry for a person.
pub(crate) async fn put_mark(
    state: &RestState,
    person: &str,
    item: &AttentionId,
    until: Option<Timestamp>,
) -> Result<(), Problem> {
    let rejected = state.configuration.configuration_state().rejected;
    Ok(state.service.mark_attention(person, item, until, rejected).await?)
}

async fn list(
    State(state): State<RestState>,
    operator: Operator,
    InQuery(query): InQuery<AttentionQuery>,
    raw: RawQuery,
) -> Result<Page<AttentionBody>, Problem> {
    let is_wanted = |body: &AttentionBody| {
        query.kind.is_none_or(|kind| body.kind == kind)
            && query.state.is_none_or(|state| body.state == state)
            && query.project.as_ref().is_none_or(|id| body.project_id.as_ref() == Some(id))
    };
    let entries = entries(&state, &operator.name).await?;
    let bodies = entries.into_iter().map(body_of).filter(is_wanted).collect();
    let cursor = query.cursor.as_ref().map(AttentionId::as_str);
    Page::cut(bodies, query.limit, cursor, raw, |body: &AttentionBody| body.id.to_string())
}

async fn one(
    State(state): State<RestState>,
    operator: Operator,
    InPath(item): InPath<AttentionId>,
) -> Result<Json<AttentionBody>, Problem> {
    let entries = entries(&state, &operator.name).await?;
    let found = entries.into_iter().find(|marked| marked.entry.id() == item);
    let found = found.ok_or(Refusal::AttentionNotFound { item })?;
    Ok(Json(body_of(found)))
}

async fn mark(
    State(state): State<RestState>,
    operator: Operator,
    InPath(item): InPath<AttentionId>,
    InBody(request): InBody<MarkRequest>,
) -> Result<StatusCode, Problem> {
    let until = match request {
        MarkRequest { until: Some(_), for_seconds: Some(_) } => {
            let detail = "expected `until` or `forSeconds`, and not both";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_body", detail));
        }
        MarkRequest { for_seconds: Some(seconds), .. } => {
            Some(state.service.time() + Duration::from_secs(seconds))
        }
        MarkRequest { until, .. } => until,
    };
    put_mark(&state, &operator.name, &item, until).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn unmark(
    State(state): State<RestState>,
    operator: Operator,
    InPath(item): InPath<AttentionId>,
) -> Result<StatusCode, Problem> {
    state.service.unmark_attention(&operator.name, &item).await?;
    Ok(StatusCode::NO_CONTENT)
}
