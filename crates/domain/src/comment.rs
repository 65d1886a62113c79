//! Comments of people on a task. Everyone who opens the task reads them, and so does its agent,
//! when it asks for the task.

use std::borrow::Cow;

use super::chat::n_fitting;
use super::id::{CommentId, TaskId};
use super::limits;
use super::refusal::Refusal;
use super::time::Timestamp;

/// The most comments that an agent gets with its task.
pub const MAX_FOR_AGENT: usize = 20;
/// The most text of comments that an agent gets with its task, in bytes. The newest comment is
/// always included.
const MAX_TEXT_FOR_AGENT: usize = 16 * 1024;

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    pub id: CommentId,
    pub task: TaskId,
    /// The name of the person who wrote it; `None` if it is not known.
    pub author: Option<String>,
    /// The text, as Markdown.
    pub text: String,
    pub created_at: Timestamp,
}

/// Returns the text of a comment in the form that is stored.
///
/// # Errors
/// [`Refusal::Missing`] for an empty text, and the refusals of [`limits`].
pub fn comment_text(text: &str) -> Result<Cow<'_, str>, Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::Missing {
            text: "text",
            problem: "text is empty: expected a comment",
        });
    }
    limits::COMMENT.take(text)
}

/// Returns the comments that an agent gets, the oldest first. `newest` are at most
/// [`MAX_FOR_AGENT`], the newest first.
pub fn for_agent(mut newest: Vec<Comment>) -> Vec<Comment> {
    let texts = newest.iter().map(|comment| comment.text.as_str());
    newest.truncate(n_fitting(texts, MAX_TEXT_FOR_AGENT));
    newest.reverse();
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(number: i64, length: usize) -> Comment {
        Comment {
            id: format!("cmt_{number}").parse().unwrap(),
            task: "tsk".parse().unwrap(),
            author: None,
            text: "x".repeat(length),
            created_at: Timestamp::from_millis(number),
        }
    }

    #[test]
    fn an_agent_gets_the_newest_comments_that_fit_in_their_order() {
        let newest = vec![comment(3, 10), comment(2, MAX_TEXT_FOR_AGENT - 10), comment(1, 1)];
        let ids: Vec<_> = for_agent(newest).into_iter().map(|each| each.id.to_string()).collect();
        assert_eq!(ids, ["cmt_2", "cmt_3"]);
        assert_eq!(for_agent(vec![comment(1, 2 * MAX_TEXT_FOR_AGENT)]).len(), 1);
        assert_eq!(for_agent(Vec::new()), []);
    }

    #[test]
    fn a_comment_has_a_text() {
        assert!(comment_text(" \n").is_err());
        assert!(comment_text(&"x".repeat(limits::COMMENT.most() + 1)).is_err());
        assert_eq!(comment_text("one\ntwo").as_deref(), Ok("one\ntwo"));
    }
}
