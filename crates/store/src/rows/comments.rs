//! Comments of people on tasks.

use crate::{Read, StoreError};
use domain::comment::Comment;
use domain::event::NewEvent;
use domain::id::CommentId;
use domain::{Task, TaskId};

use super::Transaction;
use super::audit::{Entry, Fields, long, plain};
use super::record::{Record, insert_into, record};

record! {
    Comment {
        id;
        task = "task_id";
        author;
        text = "content";
        created_at;
    }
}

fn select(rest: &str) -> String {
    format!("SELECT {} FROM comments {rest}", Comment::columns().join(", "))
}

pub fn get(tx: &mut Read<'_>, id: &CommentId) -> Result<Option<Comment>, StoreError> {
    tx.row("comment", &select("WHERE id = ?1"), &[id.into()], Comment::read)
}

/// Returns the comments on a task, the oldest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Comment>, StoreError> {
    let sql = select("WHERE task_id = ?1 ORDER BY created_at, id");
    tx.rows("comment", &sql, &[task.into()], Comment::read)
}

/// Returns the newest comments on a task, the newest first, at most `limit`.
pub fn list_newest(
    tx: &mut Read<'_>,
    task: &TaskId,
    limit: usize,
) -> Result<Vec<Comment>, StoreError> {
    let sql = select("WHERE task_id = ?1 ORDER BY created_at DESC, id DESC LIMIT ?2");
    tx.rows("comment", &sql, &[task.into(), limit.into()], Comment::read)
}

/// Returns the number of comments on these tasks.
pub fn count<'a>(
    tx: &mut Read<'_>,
    tasks: impl Iterator<Item = &'a TaskId>,
) -> Result<usize, StoreError> {
    let mut n_comments = 0;
    for task in tasks {
        n_comments +=
            tx.number("SELECT COUNT(*) FROM comments WHERE task_id = ?1", &[task.into()])?;
    }
    Ok(usize::try_from(n_comments).unwrap_or_default())
}

/// Adds a comment on a task.
///
/// # Errors
/// [`StoreError::Outdated`] if there is one with its id.
pub fn add(tx: &mut Transaction<'_>, task: &Task, comment: &Comment) -> Result<(), StoreError> {
    insert(tx, comment)?;
    tx.audit(|_| Ok(Entry::between("comment", &comment.id, None, shown(comment))))?;
    tx.event(NewEvent {
        project: Some(task.project.clone()),
        task: Some(task.id.clone()),
        ..NewEvent::new("task.commented", tx.now())
    });
    Ok(())
}

/// Inserts the row of a comment.
///
/// # Errors
/// [`StoreError::Outdated`] if there is one with its id.
pub(super) fn insert(tx: &mut Transaction<'_>, comment: &Comment) -> Result<(), StoreError> {
    let sql = insert_into("comments", &Comment::columns());
    if tx.execute(&sql, &comment.values())? == 0 {
        return Err(StoreError::Outdated { what: "comment", id: comment.id.to_string() });
    }
    Ok(())
}

fn shown(comment: &Comment) -> Fields {
    Fields::from([("task_id", plain(&comment.task)), ("text", long(&comment.text))])
}
