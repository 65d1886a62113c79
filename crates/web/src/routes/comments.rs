//! `/tasks/{id}/comments`: what people say about a task.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::extract::{InBody, InTask};
use crate::openapi::{Api, about};
use crate::{Problem, RestState};
use api::comments::{CommentBody, NewComment};

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
