//! Comments of people on tasks.

use crate::domain::comment::Comment;
use crate::domain::event::NewEvent;
use crate::domain::id::CommentId;
use crate::domain::{Task, TaskId};
use crate::store::{BoxError, Cells, Read, StoreError};

use super::Transaction;
use super::audit::{AuditValue, Entry, Fields, plain};

const COLUMNS: &str = "id, task_id, author, content, created_at";

fn read(cells: &mut Cells<'_>) -> Result<Comment, BoxError> {
    Ok(Comment {
        id: cells.get()?,
        task: cells.get()?,
        author: cells.get()?,
        text: cells.get()?,
        created_at: cells.get()?,
    })
}

pub fn get(tx: &mut Read<'_>, id: &CommentId) -> Result<Option<Comment>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM comments WHERE id = ?1");
    tx.row("comment", &sql, &[id.into()], read)
}

/// Returns the comments on a task, the oldest first.
pub fn list_of_task(tx: &mut Read<'_>, task: &TaskId) -> Result<Vec<Comment>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM comments WHERE task_id = ?1 ORDER BY created_at, id");
    tx.rows("comment", &sql, &[task.into()], read)
}

/// Returns the newest comments on a task, the newest first, at most `limit`.
pub fn list_newest(
    tx: &mut Read<'_>,
    task: &TaskId,
    limit: usize,
) -> Result<Vec<Comment>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM comments WHERE task_id = ?1 \
        ORDER BY created_at DESC, id DESC LIMIT ?2"
    );
    tx.rows("comment", &sql, &[task.into(), limit.into()], read)
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
    let sql = "INSERT INTO comments (id, task_id, author, content, created_at) \
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO NOTHING";
    let values = [
        (&comment.id).into(),
        (&comment.task).into(),
        (&comment.author).into(),
        (&comment.text).into(),
        comment.created_at.into(),
    ];
    if tx.execute(sql, &values)? == 0 {
        return Err(StoreError::Outdated { what: "comment", id: comment.id.to_string() });
    }
    Ok(())
}

fn shown(comment: &Comment) -> Fields {
    Fields::from([
        ("task_id", plain(&comment.task)),
        ("text", AuditValue::Long(comment.text.clone())),
    ])
}
