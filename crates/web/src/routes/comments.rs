//! `/tasks/{id}/comments`: what people say about a task.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::extract::{InBody, InTask};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use domain::comment::Comment;
use domain::limits;
use domain::{CommentId, Timestamp};

/// A comment of a person on a task.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommentBody {
    pub id: CommentId,
    /// The name of the person; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Markdown.
    pub text: String,
    pub created_at: Timestamp,
}

/// A new comment.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewComment {
    /// The id; absent for a generated one. With an id, the request can be repeated without a second
    /// comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<CommentId>,
    /// Markdown.
    #[schemars(transform = limits::COMMENT.described_as_needed())]
    pub text: String,
}

impl From<Comment> for CommentBody {
    fn from(comment: Comment) -> Self {
        Self {
            id: comment.id,
            author: comment.author,
            text: comment.text,
            created_at: comment.created_at,
        }
    }
}

pub(super) fn routes() -> Api {
    let path = "/tasks/{id}/comments";
    Api::new()
        .get(
            path,
            list,
            about("The comments on a task, the oldest first").gives::<Vec<CommentBody>>(),
        )
        .post(path, add, about("Comments on a task").takes::<NewComment>().makes::<CommentBody>())
}

async fn list(
    State(state): State<RestState>,
    InTask(id): InTask,
) -> Result<Json<Vec<CommentBody>>, Problem> {
    let comments = state.service.tasks.comments(&id).await?;
    Ok(Json(comments.into_iter().map(CommentBody::from).collect()))
}

async fn add(
    State(state): State<RestState>,
    InTask(id): InTask,
    InBody(request): InBody<NewComment>,
) -> Result<(StatusCode, Json<CommentBody>), Problem> {
    let comment = state.service.tasks.comment(&id, request.id.as_ref(), &request.text).await?;
    tracing::info!(task_id = %id, comment_id = %comment.id, "comment added");
    Ok((StatusCode::CREATED, Json(comment.into())))
}
