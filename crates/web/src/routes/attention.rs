//! `/attention`: the conditions that need a person, with what the person of the request did with
//! them.

use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::auth::Operator;
use crate::extract::{InBody, InPath, InQuery};
use crate::openapi::{Api, about};
use crate::page::{MAX_LIMIT, Page};
use crate::{Problem, RestState};
use domain::attention::{AttentionGroup, AttentionKind, AttentionState, Cause};
use domain::waiting::WaitAction;
use domain::{
    AgentId, AttentionId, Language, LaunchId, ProjectId, Refusal, ShortId, TaskId, Timestamp,
};
use service::MarkedAttention;

/// A condition that needs a person.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttentionBody {
    /// It stays the same as long as the condition lasts.
    pub id: AttentionId,
    pub kind: AttentionKind,
    pub group: AttentionGroup,
    /// Its state for the person of this request.
    pub state: AttentionState,
    /// The time until which the person put it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later_until: Option<Timestamp>,
    /// The title of the task, or the object in a few words.
    pub title: String,
    /// The sentence that says what is wrong.
    pub text: String,
    /// The command or the step by which a person ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The action of a person that ends it at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<WaitAction>,
    /// The time since which it exists, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The time at which it ends by itself, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_short_id: Option<ShortId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_id: Option<LaunchId>,
    /// The provider whose account it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The item of a forge that it is about: `owner/name#7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_url: Option<String>,
}

/// The filter of the list, in the order in which people see it: accounts, failures, blocked tasks,
/// operation, and the newest first within each.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttentionQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<AttentionKind>,
    /// Only the entries about this project and its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<AttentionState>,
    /// At most so many; all without it and without `cursor`, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    pub limit: Option<usize>,
    /// The last one of the part before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<AttentionId>,
}

/// The mark of an entry.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarkRequest {
    /// The time until which it is put off, within a year. Without it and without `forSeconds`, the
    /// entry is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The seconds for which it is put off, by the clock of the server, instead of `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
}

impl From<MarkedAttention> for AttentionBody {
    fn from(marked: MarkedAttention) -> Self {
        let MarkedAttention { entry, mark, state } = marked;
        let task = entry.task();
        let provider = match &entry.cause {
            Cause::Account { provider, .. } => Some(provider.clone()),
            _ => None,
        };
        Self {
            id: entry.id(),
            kind: entry.kind(),
            group: entry.kind().group(),
            state,
            later_until: mark
                .and_then(|mark| mark.until)
                .filter(|_| state == AttentionState::Later),
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
    let bodies = entries.into_iter().map(AttentionBody::from).filter(is_wanted).collect();
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
    Ok(Json(found.into()))
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
