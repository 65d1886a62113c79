//! Comments of people on tasks.

use domain::Refusal;
use domain::comment::{Comment, comment_text};
use domain::id::{CommentId, TaskId};
use store::rows::comments;

use super::{Tasks, find};
use crate::ServiceError;

impl Tasks {
    /// Returns the comments on a task, the oldest first.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub async fn comments(&self, task: &TaskId) -> Result<Vec<Comment>, ServiceError> {
        let task = task.clone();
        self.core
            .read(move |tx| {
                find(tx, &task)?;
                Ok(comments::list_of_task(tx, &task)?)
            })
            .await
    }

    /// Adds a comment of a person on a task. With an id that the client chose, the call can be
    /// repeated without a second comment.
    ///
    /// # Errors
    /// `TaskNotFound`; `Missing` for an empty text and the refusals of
    /// [`limits`](domain::limits); `AlreadyExists` if another comment has the id.
    pub async fn comment(
        &self,
        task: &TaskId,
        id: Option<&CommentId>,
        text: &str,
    ) -> Result<Comment, ServiceError> {
        let text = comment_text(text)?.into_owned();
        let task = task.clone();
        let id = id.cloned();
        self.core
            .write(move |tx| {
                let task = find(tx, &task)?;
                let known = match &id {
                    Some(id) => comments::get(tx, id)?,
                    None => None,
                };
                if let Some(known) = known {
                    return if known.task == task.id && known.text == text {
                        Ok(known)
                    } else {
                        let what = format!("comment {}", known.id);
                        Err(Refusal::AlreadyExists { what, field: None }.into())
                    };
                }
                let comment = Comment {
                    id: id.clone().unwrap_or_else(|| tx.new_id(CommentId::PREFIX)),
                    task: task.id.clone(),
                    author: tx.author(),
                    text: text.clone(),
                    created_at: tx.now(),
                };
                comments::add(tx, &task, &comment)?;
                Ok(comment)
            })
            .await
    }
}
