//! `/tasks/{id}/comments`: what people say about a task.

use serde::{Deserialize, Serialize};

use domain::comment::Comment;
use domain::{CommentId, Timestamp, limits};

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
